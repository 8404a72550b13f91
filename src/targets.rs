//! The targets of handlers that are away, and the records that wait for them.
//!
//! A target belongs to its handler, but a handler may have several targets, of which one is away: what counts
//! is how long the records have waited, not whether other calls of the handler succeed. The knowledge is of
//! this process: after a restart or a handover, the wait of a record starts again.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{name::Name, record::RecordId, telemetry::Signal};

/// The most records whose waits are known. Those beyond it wait, too, but their failures never count.
const LIMIT: usize = 65_536;
/// How long a record counts as waiting after its next try was due. After that it is with another instance, or gone.
const OVERDUE: Duration = Duration::from_secs(60);
/// The shortest time between two searches for the longest wait of a handler.
const SEARCHED_EVERY: Duration = Duration::from_secs(1);

/// The records of this instance that wait for the targets of their handlers.
#[derive(Clone, Default)]
pub(crate) struct Targets(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The number of waiting records, so that a call that succeeds takes no lock. Follows `waits`.
    waiting: AtomicUsize,
    waits: Mutex<Waits>,
}

/// A record that waits. Times are on the clock.
struct Wait {
    handler: Name,
    since: Duration,
    /// When its next try is due.
    due: Duration,
}

#[derive(Default)]
struct Waits {
    /// Added by `wait`, removed by `end` and once they are overdue.
    records: HashMap<RecordId, Wait>,
    /// The handlers with an alarm that has not ended. Added by `wait`, removed by `end`.
    alarms: HashMap<Name, Alarm>,
    /// The last search for the longest wait, by handler. Written by `wait`.
    searched: HashMap<Name, Duration>,
}

/// An alarm, and the time of its last signal, on the clock.
struct Alarm {
    since: Duration,
    told: Duration,
}

impl Targets {
    /// How long this record has waited for its target, or zero if it does not wait. The clock is read only if
    /// a record waits.
    pub(crate) fn waited(&self, id: RecordId, now: impl FnOnce() -> Duration) -> Duration {
        if self.0.waiting.load(Relaxed) == 0 {
            return Duration::ZERO;
        }
        self.waits().records.get(&id).map_or(Duration::ZERO, |wait| now().saturating_sub(wait.since))
    }

    /// A record waits until `due` for its target. Returns the alarm to raise, if a record of its handler has
    /// waited for `alarm`. While it does, the alarm is raised again each time that long.
    pub(crate) fn wait(
        &self,
        id: RecordId,
        handler: &Name,
        (now, due): (Duration, Duration),
        alarm: Duration,
    ) -> Option<Signal> {
        let mut waits = self.waits();
        let raised = waits.wait(id, handler, (now, due), alarm);
        self.0.waiting.store(waits.records.len(), Relaxed);
        raised
    }

    /// The record does not wait any more. Returns the end of the alarm of its handler, if it was the last one.
    pub(crate) fn end(&self, id: RecordId, now: impl FnOnce() -> Duration) -> Option<Signal> {
        if self.0.waiting.load(Relaxed) == 0 {
            return None;
        }
        let mut waits = self.waits();
        let ended = waits.end(id, now());
        self.0.waiting.store(waits.records.len(), Relaxed);
        ended
    }

    /// The handlers with an alarm, and how long their records have waited.
    pub(crate) fn away(&self, now: Duration) -> Vec<(Name, Duration)> {
        let mut waits = self.waits();
        waits.clear_overdue(now);
        let lasted = |alarm: &Alarm| now.saturating_sub(alarm.since);
        let mut away: Vec<_> =
            waits.alarms.iter().map(|(handler, alarm)| (handler.clone(), lasted(alarm))).collect();
        away.sort_unstable();
        away
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waits {
    fn wait(
        &mut self,
        id: RecordId,
        handler: &Name,
        (now, due): (Duration, Duration),
        alarm: Duration,
    ) -> Option<Signal> {
        let searched = self.searched.get(handler);
        let searches = searched.is_none_or(|at| now.saturating_sub(*at) >= SEARCHED_EVERY);
        if searches || self.records.len() >= LIMIT {
            // Before this record is added, so that it does not keep up the alarm of an earlier outage.
            self.clear_overdue(now);
        }
        let has_capacity = self.records.len() < LIMIT;
        match self.records.get_mut(&id) {
            Some(wait) => wait.due = due,
            None if has_capacity => {
                self.records.insert(id, Wait { handler: handler.clone(), since: now, due });
            }
            None => {}
        }
        if !searches {
            return None;
        }
        self.searched.insert(handler.clone(), now);
        self.raise(handler, now, alarm)
    }

    fn raise(&mut self, handler: &Name, now: Duration, alarm: Duration) -> Option<Signal> {
        let waiting = self.records.values().filter(|wait| wait.handler == *handler);
        let (records, since) =
            waiting.fold((0, now), |(records, since), wait| (records + 1, since.min(wait.since)));
        let lasted = now.saturating_sub(since);
        let told = self.alarms.get(handler).map(|alarm| alarm.told);
        if lasted < alarm || told.is_some_and(|told| now.saturating_sub(told) < alarm.max(SEARCHED_EVERY)) {
            return None;
        }
        self.alarms.insert(handler.clone(), Alarm { since, told: now });
        Some(Signal::TargetAway { handler: handler.clone(), lasted, records })
    }

    fn end(&mut self, id: RecordId, now: Duration) -> Option<Signal> {
        let Wait { handler, .. } = self.records.remove(&id)?;
        let alarm = self.alarms.remove(&handler)?;
        self.clear_overdue(now);
        if self.records.values().any(|wait| wait.handler == handler) {
            self.alarms.insert(handler, alarm);
            return None;
        }
        Some(Signal::TargetBack { handler, lasted: now.saturating_sub(alarm.since) })
    }

    /// Removes the records that are overdue, and the alarms of handlers that have no other.
    fn clear_overdue(&mut self, now: Duration) {
        let Self { records, alarms, .. } = self;
        records.retain(|_, wait| now.saturating_sub(wait.due) <= OVERDUE);
        alarms.retain(|handler, _| records.values().any(|wait| wait.handler == *handler));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALARM: Duration = Duration::from_secs(10);

    /// A record of a handler fails at this second and is due one second later.
    fn waits_at(targets: &Targets, id: RecordId, handler: &str, at: u64) -> Option<(u64, usize)> {
        let at = Duration::from_secs(at);
        match targets.wait(id, &handler.into(), (at, at + Duration::from_secs(1)), ALARM)? {
            Signal::TargetAway { lasted, records, .. } => Some((lasted.as_secs(), records)),
            other => panic!("{other:?}"),
        }
    }

    fn ends_at(targets: &Targets, id: RecordId, at: u64) -> Option<u64> {
        match targets.end(id, || Duration::from_secs(at))? {
            Signal::TargetBack { lasted, .. } => Some(lasted.as_secs()),
            other => panic!("{other:?}"),
        }
    }

    fn away_at(targets: &Targets, at: u64) -> Vec<(String, u64)> {
        let away = targets.away(Duration::from_secs(at));
        away.into_iter().map(|(handler, lasted)| (handler.to_string(), lasted.as_secs())).collect()
    }

    #[test]
    fn an_alarm_is_raised_when_a_record_has_waited_for_long_and_ends_with_the_last_one() {
        let targets = Targets::default();
        for at in 0..10 {
            assert_eq!(waits_at(&targets, 1, "relay", at), None, "{at}");
            assert_eq!(waits_at(&targets, 2, "relay", at), None, "{at}");
        }
        assert_eq!(away_at(&targets, 9), []);
        assert_eq!(waits_at(&targets, 1, "relay", 10), Some((10, 2)));
        assert_eq!(away_at(&targets, 12), [("relay".to_owned(), 12)]);
        for at in 11..20 {
            assert_eq!(waits_at(&targets, 1, "relay", at), None, "{at}");
        }
        assert_eq!(waits_at(&targets, 1, "relay", 20), Some((20, 2)), "a line each time that long");
        assert_eq!(ends_at(&targets, 1, 21), None, "the other one waits still");
        assert_eq!(ends_at(&targets, 2, 22), Some(22));
        assert_eq!(ends_at(&targets, 2, 22), None);
        assert_eq!((away_at(&targets, 22), waits_at(&targets, 1, "relay", 23)), (vec![], None));
    }

    /// One endpoint of a handler is away, and the calls of the others succeed.
    #[test]
    fn what_succeeds_meanwhile_ends_no_wait() {
        let targets = Targets::default();
        for at in 0..10 {
            assert_eq!(waits_at(&targets, 1, "hooks", at), None);
            assert_eq!(ends_at(&targets, 2, at), None);
        }
        assert_eq!(targets.waited(1, || Duration::from_secs(10)), ALARM);
        assert_eq!(targets.waited(2, || Duration::from_secs(10)), Duration::ZERO);
        assert_eq!(waits_at(&targets, 1, "hooks", 10), Some((10, 1)));
    }

    /// The records of one handler come back just before those of the other, each time.
    #[test]
    fn each_handler_has_its_alarm() {
        let targets = Targets::default();
        for at in 0..10 {
            assert_eq!(
                (waits_at(&targets, 1, "relay", at), waits_at(&targets, 2, "hooks", at)),
                (None, None)
            );
        }
        assert_eq!(waits_at(&targets, 1, "relay", 10), Some((10, 1)));
        assert_eq!(waits_at(&targets, 2, "hooks", 10), Some((10, 1)));
    }

    #[test]
    fn an_alarm_whose_records_have_gone_is_not_that_of_the_next_outage() {
        let targets = Targets::default();
        for at in 0..=10 {
            waits_at(&targets, 1, "relay", at);
        }
        assert_eq!(waits_at(&targets, 2, "relay", 100), None);
        assert_eq!(ends_at(&targets, 2, 101), None, "no alarm was raised for it");
    }

    #[test]
    fn a_record_that_does_not_come_back_waits_no_more() {
        let targets = Targets::default();
        for at in 0..=10 {
            waits_at(&targets, 1, "relay", at);
        }
        assert_eq!(away_at(&targets, 71), [("relay".to_owned(), 71)], "it was due at second 11");
        assert_eq!(away_at(&targets, 72), []);
        assert_eq!(targets.waited(1, || Duration::from_secs(72)), Duration::ZERO);
    }

    #[test]
    fn as_many_waits_are_known_as_memory_is_meant_for() {
        let targets = Targets::default();
        let most = LIMIT as RecordId;
        for id in 0..most + 5 {
            waits_at(&targets, id, "relay", 0);
        }
        let waited = |id| targets.waited(id, || Duration::from_secs(5)).as_secs();
        assert_eq!((waited(most - 1), waited(most)), (5, 0));
        waits_at(&targets, most, "relay", 100);
        assert_eq!(targets.waited(most, || Duration::from_secs(105)).as_secs(), 5, "the others were overdue");
    }
}
