//! The result: a report, or a violation with the lines that show it.

use std::{collections::BTreeMap, fmt};

use crate::{Event, Invariant};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The problem, as a sentence.
    pub text: String,
    /// The events that show the problem, in their order.
    pub excerpt: Vec<Event>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} violated: {}", self.invariant, self.text)?;
        for event in &self.excerpt {
            write!(f, "\n  {}", serde_json::to_string(event).map_err(|_| fmt::Error)?)?;
        }
        Ok(())
    }
}

/// What was judged without a violation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of events.
    pub events: u64,
    /// The number of judgements per invariant. An invariant that is missing was not judged.
    pub judged: BTreeMap<Invariant, u64>,
    /// The number of times that each state was reached that should occur in some run: the states that the
    /// producer [saw](crate::What::Saw), and the states that the judge finds:
    ///
    /// - of producers: `rollback`, `savepoint undone`, `unknown commit`, `unknown commit that happened` (a record of it
    ///   was there before the reply was given up), `late commit with a lower id`;
    /// - of calls: `batch`, `fallback`, `retry`, `repeat` (of what had succeeded), `overlap`, `call of a former owner`,
    ///   `call of a forgotten record`, `call of a stranger` (who has joined before a failover);
    /// - of rows: `held`, `failed`, `repair`;
    /// - of the cluster: `takeover`, `eviction`, `movement` (found minimal), `crash`, `crash in a call`, `failover`,
    ///   `forgotten commit`.
    pub reached: BTreeMap<String, u64>,
}

impl Report {
    /// Adds the report of another run of the class.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        for (invariant, count) in &other.judged {
            *self.judged.entry(*invariant).or_default() += count;
        }
        for (what, count) in &other.reached {
            *self.reached.entry(what.clone()).or_default() += count;
        }
    }

    /// Checks that each of these was reached.
    ///
    /// # Errors
    /// [`Invariant::Sometimes`], with those that were not reached.
    pub fn require<'a>(&self, sometimes: impl IntoIterator<Item = &'a str>) -> Result<(), Violation> {
        let missing: Vec<&str> =
            sometimes.into_iter().filter(|what| !self.reached.contains_key(*what)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let text = format!("never reached: {}", missing.join(", "));
        Err(Violation { invariant: Invariant::Sometimes, text, excerpt: Vec::new() })
    }
}
