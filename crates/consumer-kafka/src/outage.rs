//! The lines that the log writes while brokers are away. librdkafka reports each attempt to connect that fails,
//! several per second. `keylane` has a similar rule in `src/telemetry/outage.rs`, which is not public.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

/// The time between two lines of an outage.
const EVERY: Duration = Duration::from_secs(60);

/// The line to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Begins,
    GoesOn { lasted: Duration, failures: u64 },
    Ends { lasted: Duration, failures: u64 },
}

/// The current outage, if any.
#[derive(Debug, Default)]
pub(crate) struct Outage(Option<Current>);

#[derive(Debug)]
struct Current {
    began: Instant,
    /// The time of the last line. Written by `failed`.
    told: Instant,
    /// The time of the last failure. Written by `failed`.
    last: Instant,
    failures: u64,
    /// Whether the last report showed a connection, with no failure since. Written by `failed` and `reported`.
    connected: bool,
}

impl Outage {
    /// An attempt to connect has failed.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Line> {
        let Some(current) = &mut self.0 else {
            self.0 = Some(Current { began: now, told: now, last: now, failures: 1, connected: false });
            return Some(Line::Begins);
        };
        (current.last, current.connected) = (now, false);
        current.failures += 1;
        if now.saturating_duration_since(current.told) < EVERY {
            return None;
        }
        current.told = now;
        Some(Line::GoesOn { lasted: current.lasted(), failures: current.failures })
    }

    /// The client reports whether it is connected to any broker. Two reports with a connection, and no failure between
    /// them, end the outage: other brokers may still be away.
    pub(crate) fn reported(&mut self, connected: bool) -> Option<Line> {
        let current = self.0.as_mut()?;
        if !(connected && current.connected) {
            current.connected = connected;
            return None;
        }
        let current = self.0.take()?;
        Some(Line::Ends { lasted: current.lasted(), failures: current.failures })
    }
}

impl Current {
    fn lasted(&self) -> Duration {
        self.last.saturating_duration_since(self.began)
    }
}

/// Whether the error says that a broker cannot be reached. Each other error has a line of its own.
pub(crate) fn is_away(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::Authentication
            | Code::SSL
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_one_line_at_each_end_and_one_a_minute() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        let after = |tenths: u64| start + Duration::from_millis(tenths * 100);
        let lines: Vec<(u64, Line)> =
            (0..1500).filter_map(|tenths| Some((tenths, outage.failed(after(tenths))?))).collect();
        let goes_on = |seconds, failures| Line::GoesOn { lasted: Duration::from_secs(seconds), failures };
        assert_eq!(lines, [(0, Line::Begins), (600, goes_on(60, 601)), (1200, goes_on(120, 1201))]);
        let mut reports = |connected: &[bool]| -> Vec<_> {
            connected.iter().filter_map(|connected| outage.reported(*connected)).collect()
        };
        assert_eq!(reports(&[true, false, false, true]), [], "one report is not the end");
        let ends = Line::Ends { lasted: Duration::from_millis(149_900), failures: 1500 };
        assert_eq!(reports(&[true, true]), [ends]);
        assert_eq!(outage.failed(after(1600)), Some(Line::Begins));
    }

    #[test]
    fn a_broker_that_stays_away_beside_others_makes_no_line_per_report() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        let lines = (0..50).filter_map(|second| match second % 5 {
            0 => outage.reported(true),
            _ => outage.failed(start + Duration::from_secs(second)),
        });
        assert_eq!(lines.collect::<Vec<_>>(), [Line::Begins]);
    }
}
