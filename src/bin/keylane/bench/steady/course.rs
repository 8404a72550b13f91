//! What is seen of a steady flow while it passes, by tenths of its time.

use std::{ops::Range, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::{
    super::{engine::Engine, stage::Stage},
    Result,
    flow::{Flow, Passage},
};

/// The time is looked at in so many parts.
pub(super) const TENTHS: usize = 10;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The passages and looks of one run.
pub(super) struct Course {
    lasts: f64,
    /// By the time of their commit.
    passages: Vec<Passage>,
    looks: Vec<Look>,
}

/// What was there at a time, in seconds since the start.
struct Look {
    at: f64,
    backlog: usize,
    bytes: i64,
}

/// A tenth of the time.
pub(super) struct Tenth {
    /// From commit to handler, in milliseconds.
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    /// The most that there was of each.
    pub(super) backlog: usize,
    pub(super) bytes: Option<i64>,
}

impl Course {
    pub(super) fn new(lasts: Duration) -> Self {
        Self { lasts: lasts.as_secs_f64(), passages: Vec::new(), looks: Vec::new() }
    }

    /// Looks at the flow and the table for ever.
    pub(super) async fn watch<E: Engine>(&mut self, stage: &Stage<E>, flow: &Flow) -> Result<()> {
        let mut conn = E::connect(&stage.pool).await?;
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let at = flow.start().elapsed().as_secs_f64();
            let look =
                Look { at, backlog: flow.backlog(), bytes: E::number(&mut conn, E::RECORD_BYTES).await? };
            self.looks.push(look);
            stage.bar.set_position(at as u64);
        }
    }

    pub(super) fn add(&mut self, passages: impl Iterator<Item = Passage>) {
        self.passages.extend(passages);
        self.passages.sort_by(|one, other| one.committed.total_cmp(&other.committed));
    }

    /// How many were committed a second.
    pub(super) fn rate(&self) -> Option<f64> {
        let last = self.passages.last()?;
        Some(self.passages.len() as f64 / last.committed)
    }

    pub(super) fn tenths(&self) -> [Tenth; TENTHS] {
        std::array::from_fn(|number| {
            let [start, end] = [number, number + 1].map(|end| self.lasts * end as f64 / TENTHS as f64);
            // The last one has what comes late, too.
            let time = start..if number + 1 == TENTHS { f64::INFINITY } else { end };
            let looks = || self.looks.iter().filter(|look| time.contains(&look.at));
            let mut waits = self.waits(&time);
            Tenth {
                p50: percentile(&mut waits, 0.50),
                p99: percentile(&mut waits, 0.99),
                backlog: looks().map(|look| look.backlog).max().unwrap_or(0),
                bytes: looks().map(|look| look.bytes).max(),
            }
        })
    }

    /// The 99th percentile of each second, at its end.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let seconds = 0..self.lasts.ceil() as usize;
        let point = |second: usize| {
            let end = (second + 1) as f64;
            Some((end, percentile(&mut self.waits(&(second as f64..end)), 0.99)?))
        };
        seconds.filter_map(point).collect()
    }

    /// How long those waited who were committed in this time.
    fn waits(&self, time: &Range<f64>) -> Vec<f64> {
        let place = |end: f64| self.passages.partition_point(|passage| passage.committed < end);
        self.passages[place(time.start)..place(time.end)].iter().map(|passage| passage.waited).collect()
    }
}

/// The least value that this share of all values does not exceed.
fn percentile(values: &mut [f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let place = (values.len() as f64 * share).ceil() as usize;
    let (_, value, _) = values.select_nth_unstable_by(place.saturating_sub(1).min(last), f64::total_cmp);
    Some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 0.5), Some(100.0));
        assert_eq!(percentile(&mut values, 0.99), Some(198.0));
        assert_eq!(percentile(&mut [7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&mut [], 0.5), None);
    }

    #[test]
    fn passages_and_looks_fall_into_their_tenths() {
        let mut course = Course::new(Duration::from_secs(20));
        let passage = |committed: f64, waited: f64| Passage { committed, waited };
        course.add([passage(25.0, 3.0), passage(2.0, 2.0), passage(1.9, 1.0)].into_iter());
        course.looks.push(Look { at: 2.5, backlog: 7, bytes: 8192 });
        let tenths = course.tenths();
        let p99: Vec<_> = tenths.iter().map(|tenth| tenth.p99).collect();
        assert_eq!((p99[0], p99[1], p99[2], p99[9]), (Some(1.0), Some(2.0), None, Some(3.0)));
        assert_eq!((tenths[0].bytes, tenths[1].bytes, tenths[1].backlog), (None, Some(8192), 7));
        assert_eq!(course.points(), [(2.0, 1.0), (3.0, 2.0)]);
    }
}
