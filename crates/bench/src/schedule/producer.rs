//! A service that writes in transactions of its own, one after another on one connection.

use std::time::Duration;

use keylane::{Outbox, OutboxEvent};
use tokio::{task::JoinSet, time::Instant};

use super::{
    Result, Setting, Writer,
    engine::{Engine, Row},
    options::Load,
    tally::Event,
};

/// A connection and what its next event is.
pub(super) struct Producer<E: Engine> {
    pub(super) conn: E::Connection,
    pub(super) outbox: Outbox<E>,
    pub(super) load: Load,
    pub(super) number: usize,
}

/// All producers at once until the time is over; how many transactions they committed.
pub(super) async fn write<E: Engine>(
    producers: &mut Vec<Producer<E>>,
    writer: Writer,
    setting: Setting,
    time: Duration,
) -> Result<usize> {
    let until = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for mut producer in producers.drain(..) {
        tasks.spawn(async move {
            let mut committed = 0;
            while Instant::now() < until {
                producer.transaction(writer, setting).await?;
                committed += 1;
            }
            Result::Ok((producer, committed))
        });
    }
    let mut all = 0;
    while let Some(done) = tasks.join_next().await {
        let (producer, committed) = done??;
        producers.push(producer);
        all += committed;
    }
    Ok(all)
}

impl<E: Engine> Producer<E> {
    /// The same statements around the work of each writer.
    async fn transaction(&mut self, writer: Writer, setting: Setting) -> Result<()> {
        let events = self.events(setting.rows());
        E::begin_work(&mut self.conn).await?;
        match setting {
            Setting::Single { .. } => self.single(writer, &events[0]).await?,
            Setting::Many { .. } => self.many(writer, &events).await?,
        }
        E::commit_work(&mut self.conn).await
    }

    async fn single(&mut self, writer: Writer, event: &Event) -> Result<()> {
        E::insert_business(&mut self.conn, &event.key(), event.text()).await?;
        match writer {
            Writer::Business => {}
            Writer::Hand => E::insert_record(&mut self.conn, &Row::of(event)?).await?,
            Writer::Library => {
                self.outbox.schedule(&mut self.conn, event).await?;
            }
        }
        Ok(())
    }

    async fn many(&mut self, writer: Writer, events: &[Event]) -> Result<()> {
        match writer {
            Writer::Library => {
                self.outbox.schedule_all(&mut self.conn, events).await?;
            }
            Writer::Hand | Writer::Business => {
                let rows = events.iter().map(Row::of).collect::<Result<Vec<_>>>()?;
                E::insert_records(&mut self.conn, &rows).await?;
            }
        }
        Ok(())
    }

    fn events(&mut self, rows: usize) -> Vec<Event> {
        let first = self.number;
        self.number += rows;
        (first..self.number).map(|number| Event::numbered(number, self.load)).collect()
    }
}
