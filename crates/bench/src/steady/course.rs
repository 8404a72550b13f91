//! The course of a steady flow, by tenths of its time.

use std::{ops::Range, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    super::{
        arrivals::{Arrivals, Entry},
        engine::Engine,
        quantile::quantile,
        stage::Stage,
    },
    Result,
};

/// The time is divided into this many parts.
pub(super) const TENTHS: usize = 10;
/// Between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The events and samples of one run.
pub(super) struct Course {
    start: Instant,
    lasts: f64,
    /// By the time of their commit.
    passages: Vec<Passage>,
    samples: Vec<Sample>,
}

/// An event that was committed and has come to its handler.
#[derive(Clone, Copy)]
struct Passage {
    /// When its commit returned, in seconds since the start.
    committed: f64,
    /// The time from the commit to the handler, in milliseconds.
    waited: f64,
}

/// The state at a time, in seconds since the start.
struct Sample {
    at: f64,
    backlog: usize,
    bytes: i64,
}

/// A tenth of the time.
pub(super) struct Tenth {
    /// From commit to handler, in milliseconds.
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    /// The maximum of each figure.
    pub(super) backlog: usize,
    pub(super) bytes: Option<i64>,
}

impl Course {
    pub(super) fn new(start: Instant, lasts: Duration) -> Self {
        Self { start, lasts: lasts.as_secs_f64(), passages: Vec::new(), samples: Vec::new() }
    }

    /// Samples the arrivals and the table. Never ends.
    pub(super) async fn watch<E: Engine>(&mut self, stage: &Stage<E>, arrivals: &Arrivals) -> Result<()> {
        let mut conn = E::connect(&stage.pool).await?;
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let at = self.start.elapsed().as_secs_f64();
            let sample = Sample {
                at,
                backlog: arrivals.backlog(),
                bytes: E::number(&mut conn, E::RECORD_BYTES).await?,
            };
            self.samples.push(sample);
            stage.bar.set_position(at as u64);
        }
    }

    /// Adds the events that have entered the handler.
    pub(super) fn add(&mut self, entries: impl Iterator<Item = Entry>) {
        let passages = entries.map(|Entry { at, waited, .. }| Passage {
            committed: (at - waited - self.start).as_secs_f64(),
            waited: waited.as_secs_f64() * 1e3,
        });
        self.passages.extend(passages);
        self.passages.sort_by(|one, other| one.committed.total_cmp(&other.committed));
    }

    /// Commits per second.
    pub(super) fn rate(&self) -> Option<f64> {
        let last = self.passages.last()?;
        Some(self.passages.len() as f64 / last.committed)
    }

    pub(super) fn tenths(&self) -> [Tenth; TENTHS] {
        std::array::from_fn(|number| {
            let [start, end] = [number, number + 1].map(|end| self.lasts * end as f64 / TENTHS as f64);
            // The last tenth has the late events, too.
            let time = start..if number + 1 == TENTHS { f64::INFINITY } else { end };
            let samples = || self.samples.iter().filter(|sample| time.contains(&sample.at));
            let waits = self.waits(&time);
            Tenth {
                p50: quantile(&waits, 0.50),
                p99: quantile(&waits, 0.99),
                backlog: samples().map(|sample| sample.backlog).max().unwrap_or(0),
                bytes: samples().map(|sample| sample.bytes).max(),
            }
        })
    }

    /// The 99th percentile of each second, at its end.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let seconds = 0..self.lasts.ceil() as usize;
        let point = |second: usize| {
            let end = (second + 1) as f64;
            Some((end, quantile(&self.waits(&(second as f64..end)), 0.99)?))
        };
        seconds.filter_map(point).collect()
    }

    /// The waits of the events that were committed in this time, sorted.
    fn waits(&self, time: &Range<f64>) -> Vec<f64> {
        let place = |end: f64| self.passages.partition_point(|passage| passage.committed < end);
        let passages = &self.passages[place(time.start)..place(time.end)];
        let mut waits: Vec<f64> = passages.iter().map(|passage| passage.waited).collect();
        waits.sort_by(f64::total_cmp);
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_and_samples_fall_into_their_tenths() {
        let start = Instant::now();
        let mut course = Course::new(start, Duration::from_secs(20));
        let entry = |committed: f64, waited: u64| {
            let waited = Duration::from_millis(waited);
            Entry { number: 0, at: start + Duration::from_secs_f64(committed) + waited, waited }
        };
        course.add([entry(25.0, 3), entry(2.0, 2), entry(1.9, 1)].into_iter());
        course.samples.push(Sample { at: 2.5, backlog: 7, bytes: 8192 });
        let tenths = course.tenths();
        let p99: Vec<_> = tenths.iter().map(|tenth| tenth.p99).collect();
        assert_eq!((p99[0], p99[1], p99[2], p99[9]), (Some(1.0), Some(2.0), None, Some(3.0)));
        assert_eq!((tenths[0].bytes, tenths[1].bytes, tenths[1].backlog), (None, Some(8192), 7));
        assert_eq!(course.points(), [(2.0, 1.0), (3.0, 2.0)]);
    }
}
