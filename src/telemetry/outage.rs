//! The lines that the log writes about an outage.

use std::time::Duration;

/// The time between two lines of an outage. If no call fails for longer, the outage is over.
const EVERY: Duration = Duration::from_secs(60);

/// The line to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Begins,
    GoesOn { lasted: Duration, failures: u64 },
    Ends { lasted: Duration, failures: u64 },
}

/// The current outage of the database, if any.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Current>);

#[derive(Debug)]
struct Current {
    began: Duration,
    told: Duration,
    last: Duration,
    failures: u64,
    /// Whether a beat got a reply after the last failure. Written by `failed` and `answered`.
    answered: bool,
}

impl Outage {
    /// A call has failed at this time of the process clock. Returns the line to write.
    pub(super) fn failed(&mut self, now: Duration) -> Option<Line> {
        // Without heartbeats, no reply shows that an outage has ended.
        self.0.take_if(|current| now.saturating_sub(current.last) > EVERY);
        let Some(current) = &mut self.0 else {
            self.0 = Some(Current { began: now, told: now, last: now, failures: 1, answered: false });
            return Some(Line::Begins);
        };
        (current.last, current.answered) = (now, false);
        current.failures += 1;
        if now.saturating_sub(current.told) < EVERY {
            return None;
        }
        current.told = now;
        Some(Line::GoesOn { lasted: current.lasted(), failures: current.failures })
    }

    /// A beat got a reply. Two replies without a failure between them end the outage: a single reply
    /// may come while other connections or other statements still fail.
    pub(super) fn answered(&mut self) -> Option<Line> {
        let current = self.0.as_mut()?;
        if !current.answered {
            current.answered = true;
            return None;
        }
        let current = self.0.take()?;
        Some(Line::Ends { lasted: current.lasted(), failures: current.failures })
    }
}

impl Current {
    fn lasted(&self) -> Duration {
        self.last.saturating_sub(self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_one_line_at_each_end_and_one_a_minute() {
        let (mut outage, start) = (Outage::default(), Duration::from_secs(7));
        let after = |millis| start + Duration::from_millis(millis);
        let lines: Vec<(u64, Line)> =
            (0..1_500).filter_map(|call| Some((call * 100, outage.failed(after(call * 100))?))).collect();
        let goes_on = |seconds, failures| Line::GoesOn { lasted: Duration::from_secs(seconds), failures };
        assert_eq!(lines, [(0, Line::Begins), (60_000, goes_on(60, 601)), (120_000, goes_on(120, 1201))]);
        assert_eq!(outage.answered(), None);
        assert_eq!(outage.failed(after(150_000)), None, "one answer is not the end");
        assert_eq!(outage.answered(), None);
        let ends = Line::Ends { lasted: Duration::from_secs(150), failures: 1501 };
        assert_eq!(outage.answered(), Some(ends));
        assert_eq!(outage.answered(), None);
        assert_eq!(outage.failed(after(151_000)), Some(Line::Begins));
    }

    #[test]
    fn a_failure_long_after_the_last_begins_another() {
        let (mut outage, start) = (Outage::default(), Duration::from_secs(7));
        assert_eq!(outage.failed(start), Some(Line::Begins));
        assert_eq!(outage.failed(start + Duration::from_secs(61)), Some(Line::Begins));
    }
}
