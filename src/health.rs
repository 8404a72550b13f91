//! The health of workers as plain values: for a readiness page, an alarm or a person.

use std::{fmt, time::Duration};

use crate::{name::Name, ownership::Ownership, partition::PartitionSet};

/// The shortest time that a failure must last to count as a reason.
const LEAST: Duration = Duration::from_secs(1);
/// The same time in poll intervals, if that is longer.
const POLLS: u32 = 3;

/// The health of the workers at one moment, known without a query.
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
    /// Whether the workers are alive. If false, only a new start brings them back. Outages do not make it
    /// false.
    pub live: bool,
    /// Whether the workers deliver the records of their partitions: they have joined, their lease holds, and
    /// they are not stopping.
    pub ready: bool,
    /// The reasons for degraded work, if any.
    pub state: HealthState,
}

/// Healthy, or degraded with reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthState {
    /// There is no reason.
    Healthy,
    /// All reasons, at least one.
    Degraded(Vec<Degradation>),
}

/// A reason for degraded work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Degradation {
    /// The workers have ended, or are about to: [`Running::finished`](crate::Running::finished) returns the
    /// reason.
    Stopping,
    /// This process has not joined the cluster: it joins, or joins again after an eviction.
    NotJoined,
    /// Heartbeats get no reply in time: no call of a handler begins until one does.
    LeaseLapsed {
        /// The time since the end of the lease.
        lapsed_for: Duration,
    },
    /// Fetches fail: no new records are found.
    FetchesFail {
        /// The time since the first failed fetch.
        failing_for: Duration,
    },
    /// A write of outcomes takes long.
    SettleWaits {
        /// The time since the write began.
        waiting_for: Duration,
    },
    /// No live instance owns these partitions.
    PartitionsUnowned {
        /// The partitions.
        partitions: PartitionSet,
    },
    /// The target of a handler is away, and records have waited for it longer than
    /// [`RetryPolicy::unavailable_alarm`](crate::RetryPolicy).
    TargetAway {
        /// The id of the handler.
        handler: Name,
        /// The longest wait of a record, as this process has seen it.
        waiting_for: Duration,
    },
    /// Notifications are enabled, but this process cannot listen: it finds the commits of other processes by
    /// polls only.
    NotificationsAbsent,
}

impl Health {
    /// The health of workers. `session` is `None` while they are not in the cluster.
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

/// The reasons in a session. Failures that have lasted no longer than the limit are left out.
fn amiss(session: &Ownership, lease_holds: bool, limit: Duration) -> impl Iterator<Item = Degradation> {
    let vitals = session.vitals();
    let long = |lasted: &Duration| *lasted > limit;
    let lapsed = (!lease_holds).then(|| Degradation::LeaseLapsed { lapsed_for: session.lapsed_for() });
    let failing = vitals.fetches_fail_for().filter(long);
    let waiting = vitals.settles_for().filter(long);
    let unowned = Some(vitals.unowned()).filter(|partitions| !partitions.is_empty());
    let absent = vitals.listen_state().is_absent().then_some(Degradation::NotificationsAbsent);
    let away = vitals.targets().away(session.clock().now());
    let away =
        away.into_iter().map(|(handler, waiting_for)| Degradation::TargetAway { handler, waiting_for });
    let reasons = [
        lapsed,
        failing.map(|failing_for| Degradation::FetchesFail { failing_for }),
        waiting.map(|waiting_for| Degradation::SettleWaits { waiting_for }),
        unowned.map(|partitions| Degradation::PartitionsUnowned { partitions }),
        absent,
    ];
    reasons.into_iter().flatten().chain(away)
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
            Self::TargetAway { handler, waiting_for } => {
                write!(f, "records of the handler {handler} have waited {waiting_for:.1?} for its target")
            }
            Self::NotificationsAbsent => f.write_str("commits of other processes are found by polls alone"),
        }
    }
}
