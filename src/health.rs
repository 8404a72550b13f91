//! How workers are, as plain values: for a readiness page, an alarm or a person.

use std::{fmt, time::Duration};

use crate::{ownership::Ownership, partition::PartitionSet};

/// The shortest time that a failure must last before it counts as a reason, however short the poll interval.
const LEAST: Duration = Duration::from_secs(1);
/// How many poll intervals it must last.
const POLLS: u32 = 3;

/// The state of the workers at one time, known without a query.
///
/// ```
/// # use keylane::Running;
/// /// What a page of readiness answers, in any web framework.
/// fn readiness(running: &Running) -> (u16, String) {
///     let health = running.health();
///     (if health.ready { 200 } else { 503 }, health.state.to_string())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// False if the workers have died: only a new start brings them back. Outages do not make it false.
    pub live: bool,
    /// The workers deliver what is theirs: they have joined, their lease holds, and they are not leaving.
    pub ready: bool,
    /// Whether anything is amiss.
    pub state: HealthState,
}

/// Whether anything is amiss.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthState {
    /// Nothing is amiss.
    Healthy,
    /// Something is amiss: all reasons, at least one.
    Degraded(Vec<Degradation>),
}

/// Something that is amiss.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Degradation {
    /// The workers have ended, or are about to: [`Running::finished`](crate::Running::finished) tells why.
    Stopping,
    /// This process is in no cluster: it joins, or joins again after an eviction.
    NotJoined,
    /// Heartbeats get no answer in time: nothing is dispatched until one does.
    LeaseLapsed {
        /// Since when.
        lapsed_for: Duration,
    },
    /// Fetches fail: nothing new is found.
    FetchesFail {
        /// Since the first that failed.
        failing_for: Duration,
    },
    /// Outcomes wait to be written.
    SettleWaits {
        /// Since the write began.
        waiting_for: Duration,
    },
    /// Nobody in the cluster owns these partitions.
    PartitionsUnowned {
        /// Which.
        partitions: PartitionSet,
    },
    /// Notifications are wanted, but other processes cannot be heard: their commits are found by polls alone.
    NotificationsAbsent,
}

impl Health {
    /// The health of workers with or without a session, which poll at this interval.
    pub(crate) fn of(
        (live, stopping): (bool, bool),
        session: Option<&Ownership>,
        poll_interval: Duration,
    ) -> Self {
        let mut reasons = Vec::new();
        if stopping {
            reasons.push(Degradation::Stopping);
        }
        let holds = session.is_some_and(Ownership::lease_holds);
        match session {
            None if stopping => {}
            None => reasons.push(Degradation::NotJoined),
            Some(session) => reasons.extend(amiss(session, holds, (poll_interval * POLLS).max(LEAST))),
        }
        let state = match reasons.is_empty() {
            true => HealthState::Healthy,
            false => HealthState::Degraded(reasons),
        };
        Self { live, ready: live && !stopping && holds, state }
    }
}

/// What is amiss in a session. Failures that have lasted no longer than the limit are left out.
fn amiss(session: &Ownership, lease_holds: bool, limit: Duration) -> impl Iterator<Item = Degradation> {
    let vitals = session.vitals();
    let long = |lasted: &Duration| *lasted > limit;
    let lapsed = (!lease_holds).then(|| Degradation::LeaseLapsed { lapsed_for: session.lapsed_for() });
    let failing = vitals.fetches_fail_for().filter(long);
    let waiting = vitals.settles_for().filter(long);
    let unowned = Some(vitals.unowned()).filter(|partitions| !partitions.is_empty());
    let absent = vitals.listen_state().is_absent().then_some(Degradation::NotificationsAbsent);
    let reasons = [
        lapsed,
        failing.map(|failing_for| Degradation::FetchesFail { failing_for }),
        waiting.map(|waiting_for| Degradation::SettleWaits { waiting_for }),
        unowned.map(|partitions| Degradation::PartitionsUnowned { partitions }),
        absent,
    ];
    reasons.into_iter().flatten()
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Degraded(reasons) = self else { return f.write_str("healthy") };
        f.write_str("degraded")?;
        for (at, reason) in reasons.iter().enumerate() {
            write!(f, "{} {reason}", if at == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopping => f.write_str("the workers have ended or are about to"),
            Self::NotJoined => f.write_str("this process has not joined the cluster"),
            Self::LeaseLapsed { lapsed_for } => {
                write!(f, "the lease has lapsed {lapsed_for:.1?} ago: heartbeats get no answer")
            }
            Self::FetchesFail { failing_for } => write!(f, "fetches have failed for {failing_for:.1?}"),
            Self::SettleWaits { waiting_for } => {
                write!(f, "outcomes have waited {waiting_for:.1?} to be written")
            }
            Self::PartitionsUnowned { partitions } => write!(f, "nobody owns the partitions {partitions}"),
            Self::NotificationsAbsent => f.write_str("commits of other processes are found by polls alone"),
        }
    }
}
