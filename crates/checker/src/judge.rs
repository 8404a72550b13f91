//! Takes events one by one and holds them against the invariants.

use crate::{Event, Expect, Report, Violation};

/// A judge of one history.
#[derive(Debug)]
pub struct Judge {
    expect: Expect,
    report: Report,
}

impl Judge {
    /// A judge that has seen nothing.
    #[must_use]
    pub fn new(expect: Expect) -> Self {
        Self { expect, report: Report::default() }
    }

    /// Takes the next event. After a violation the judge is of no use any more.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn take(&mut self, _event: &Event) -> Result<(), Violation> {
        self.report.events += 1;
        Ok(())
    }

    /// Judges what can only be judged at the end.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn finish(self) -> Result<Report, Violation> {
        self.report.require(self.expect.sometimes.iter().map(String::as_str))?;
        Ok(self.report)
    }
}
