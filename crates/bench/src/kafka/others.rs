//! `bench kafka --others`: how fast another handler drains its backlog while the brokers are away.

use std::{fmt, sync::Arc};

use keylane::{Outbox, Registration};
use keylane_kafka::{KafkaConfig, KafkaSink, Route};
use tokio::time::timeout;

use super::{Engine, Figure, Options, Report, Result, STALL, Stage, of_a_relay, raw};
use crate::{
    handler::{Count, HANDLER},
    tally::{Event, Settles, Tally},
    trial,
};

/// The handler that takes the same events.
const SECOND: &str = "second";

/// The neighbour of the measured handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A handler that takes everything.
    Handler,
    /// A sink whose brokers are away.
    Sink,
}

/// Measures the handler beside each in turn, as often as asked.
pub(super) async fn run<E: Engine>(stage: &Stage<E>, options: &Options, report: &mut Report) -> Result<()> {
    let mut turn = vec![Beside::Nothing, Beside::Handler, Beside::Sink];
    let runs = options.show.runs.get();
    for run in 1..=runs {
        let mut rates = Vec::new();
        for beside in &turn {
            stage.bar.set_message(format!("run {run} of {runs}: {beside}"));
            let figures = measure(stage, options, *beside).await?;
            report.add_all(&beside.to_string(), &figures);
            rates.push((*beside, figures[0]));
        }
        let of = |wanted| rates.iter().find(|(beside, _)| *beside == wanted).map(|(_, rate)| rate);
        if let (Some(alone), Some(handler), Some(sink)) =
            (of(Beside::Nothing), of(Beside::Handler), of(Beside::Sink))
        {
            report.add_all("brokers away / handler", &[sink.over(handler)]);
            report.add_all("brokers away / alone", &[sink.over(alone)]);
        }
        turn.rotate_left(1);
    }
    let Options { records, payload_bytes, .. } = options;
    report.note(format!("{records} records of {payload_bytes} bytes for a handler that does nothing"));
    report.note("beside it, but for `alone`, a second handler is to have the same events");
    Ok(())
}

async fn measure<E: Engine>(stage: &Stage<E>, options: &Options, beside: Beside) -> Result<[Figure; 4]> {
    let (records, load) = (options.records.get(), options.load(options.keys[0]));
    let second = |tally: &Arc<Tally>| Registration::typed(SECOND, Count(Arc::clone(tally)));
    let unused = Arc::new(Tally::new(0, 0..=0));
    let scheduled = (beside != Beside::Nothing).then(|| second(&unused));
    let tally = stage.fill_for(scheduled, records, |number| Event::numbered(number, load)).await?;
    let others = match beside {
        Beside::Nothing => None,
        Beside::Handler => Some(second(&Arc::new(tally.part(records)))),
        Beside::Sink => {
            let sink = KafkaSink::new(KafkaConfig::new(raw::NOBODY))?.route(Route::to("nowhere"));
            Some(sink.registration(SECOND))
        }
    };
    let outbox: Outbox<E> = Outbox::builder(stage.pool.clone())
        .config(of_a_relay(&stage.config))
        .handler(Registration::typed(HANDLER, Count(Arc::clone(&tally))))
        .handlers(others)
        .observer(Settles(Arc::clone(&tally)))
        .build()
        .await?;
    let measured = trial::measured(stage, outbox, &tally, tally.all_handled());
    let (cost, _) = timeout(STALL, measured).await.map_err(|_| format!("not drained after {STALL:?}"))??;
    tally.check()?;
    Ok(cost.per_record(records))
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "alone",
            Self::Handler => "beside a handler",
            Self::Sink => "beside brokers that are away",
        })
    }
}
