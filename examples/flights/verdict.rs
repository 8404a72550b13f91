//! The verdict: the week on one side, the ledgers on the other. The outbox is not asked. What must hold, the
//! checker judges; here is counted what the week came to.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use keylane_checker::{
    CallKind, End, Event, Expect, Invariant, Judge, Repeats, Report, Truth, Violation, What,
};

use crate::{
    flights::Flight,
    ledger::{LAPSE, Nanos},
    settings::name_of,
    show::Course,
};

/// One call for a flight.
struct Call<'a> {
    replica: &'a str,
    kind: CallKind,
    begun: Nanos,
    /// Not given: it never ended.
    end: Option<(Nanos, End)>,
}

impl Call<'_> {
    fn entered(&self) -> Option<Nanos> {
        self.end.filter(|(_, end)| *end == End::Ok).map(|(at, _)| at)
    }
}

/// A flight that was scheduled.
struct Entry<'a> {
    key: &'a str,
    committed: Option<Nanos>,
    calls: Vec<Call<'a>>,
}

/// What the ledgers come to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) records: usize,
    /// Flights of the week that did not get that far.
    pub(crate) unscheduled: usize,
    /// Aircraft, and cancelled flights that never got one.
    pub(crate) keys: usize,
    /// Entered by the bookkeeper, and by the fallback handler.
    pub(crate) delivered: usize,
    pub(crate) fallback: usize,
    /// Failed once, delivered by a later attempt.
    pub(crate) retried: usize,
    /// Never entered.
    pub(crate) lost: usize,
    /// Scheduled while an earlier flight of the aircraft was not in the books yet.
    pub(crate) waited: usize,
    /// Handled again because the killed replica had ended them, but not told the database yet.
    pub(crate) unreported: usize,
    /// Handled again because the killed replica was in the middle of them.
    pub(crate) interrupted: usize,
    pub(crate) first_after_kill: Option<Duration>,
    /// From the first call to the last entry.
    pub(crate) span: Duration,
    /// The first of the checker's invariants that does not hold: order, no repetition without a reason, no loss.
    pub(crate) violation: Option<Violation>,
}

/// Weighs the ledgers against the week.
pub(crate) fn weigh(flights: &[Flight], course: &Course) -> Verdict {
    let entries = entries(&course.history);
    let records = entries.iter().filter(|entry| entry.committed.is_some()).count();
    let keys: BTreeSet<String> = flights.iter().map(Flight::aircraft).collect();
    let unscheduled = flights.len() - records;
    let mut verdict = Verdict { records, unscheduled, keys: keys.len(), ..Verdict::default() };
    let mut aircraft: BTreeMap<&str, Vec<&Entry<'_>>> = BTreeMap::new();
    for entry in &entries {
        let flown = aircraft.entry(entry.key).or_default();
        verdict.add(entry, flown.last().copied(), course);
        flown.push(entry);
    }
    let calls = || entries.iter().flat_map(|entry| &entry.calls);
    let (begun, end) = (calls().map(|call| call.begun).min(), calls().filter_map(Call::entered).max());
    verdict.span = Duration::from_nanos(end.zip(begun).map_or(0, |(end, begun)| end - begun));
    let first = aircraft.values().filter_map(|flown| first_after_kill(flown, course)).min();
    verdict.first_after_kill = first.map(Duration::from_nanos);
    verdict.violation = judge(&course.history).err();
    verdict
}

/// What must hold in every run.
fn judge(history: &[Event]) -> Result<Report, Violation> {
    let (truth, repeats) = (Truth::Calls, Repeats::Explained);
    let mut excusing = Expect::default().excusing;
    excusing.insert(LAPSE.to_owned());
    let mut judge = Judge::new(Expect { truth, repeats, excusing, ownership: false, ..Expect::default() });
    history.iter().try_for_each(|event| judge.take(event))?;
    judge.finish()
}

/// All flights that were scheduled, in that order, with their calls.
fn entries(history: &[Event]) -> Vec<Entry<'_>> {
    let (mut entries, mut places) = (Vec::new(), HashMap::new());
    let (mut transactions, mut open) = (HashMap::new(), HashMap::new());
    for event in history {
        match &event.what {
            What::Scheduling { tx, event, key, .. } => {
                transactions.insert(*tx, entries.len());
                places.insert(*event, entries.len());
                entries.push(Entry { key, committed: None, calls: Vec::new() });
            }
            What::Committed { tx } => {
                if let Some(place) = transactions.get(tx) {
                    entries[*place].committed = Some(event.at);
                }
            }
            What::CallBegan { call, instance, kind, records } => {
                let place = records.first().and_then(|called| places.get(&called.event)).copied();
                if let Some(place) = place {
                    open.insert(*call, (place, entries[place].calls.len()));
                    let (kind, begun) = (*kind, event.at);
                    entries[place].calls.push(Call { replica: instance, kind, begun, end: None });
                }
            }
            What::CallEnded { call, ends } => {
                if let Some((place, number)) = open.remove(call) {
                    entries[place].calls[number].end = ends.first().map(|end| (event.at, *end));
                }
            }
            _ => {}
        }
    }
    entries
}

impl Verdict {
    /// Adds a flight; `before` is the one before it of its aircraft.
    fn add(&mut self, entry: &Entry<'_>, before: Option<&Entry<'_>>, course: &Course) {
        match entry.calls.iter().find(|call| call.entered().is_some()).map(|call| call.kind) {
            Some(CallKind::Fallback) => self.fallback += 1,
            Some(_) => self.delivered += 1,
            None => self.lost += 1,
        }
        let failed = |call: &Call<'_>| matches!(call.end, Some((_, End::Failed)));
        self.retried += usize::from(entry.calls.iter().any(failed));
        let busy = before.and_then(|before| before.calls.iter().filter_map(Call::entered).min());
        self.waited +=
            usize::from(busy.zip(entry.committed).is_some_and(|(busy, committed)| committed < busy));
        let victim = name_of(course.victim);
        for pair in
            entry.calls.windows(2).filter(|pair| pair[0].replica == victim && pair[1].replica != victim)
        {
            self.unreported += usize::from(pair[0].entered().is_some());
            self.interrupted += usize::from(pair[0].end.is_none());
        }
    }

    /// Everything that is wrong, as sentences.
    pub(crate) fn problems(&self, course: &Course, takeover_limit: Duration) -> Vec<String> {
        let mut problems = course.troubles.clone();
        if self.unscheduled > 0 {
            problems.push(format!("{} flights were not scheduled", self.unscheduled));
        }
        problems.extend(self.violation.as_ref().map(Violation::to_string));
        match course.takeover {
            None => problems.push("the partitions of the killed replica were not taken over".to_owned()),
            // A database too slow for heartbeats is too slow for the limit as well.
            Some(took) if took > takeover_limit && !course.lapsed_in_takeover => {
                problems.push(format!("the takeover took {took:.1?}"))
            }
            Some(_) => {}
        }
        problems
    }

    /// How often an invariant of these is violated: the checker stops at the first.
    pub(crate) fn violations(&self, of: &[Invariant]) -> usize {
        usize::from(self.violation.as_ref().is_some_and(|violation| of.contains(&violation.invariant)))
    }
}

/// From the kill to the first call, by another replica, for an aircraft that was last in the hands
/// of the killed one.
fn first_after_kill(flown: &[&Entry<'_>], course: &Course) -> Option<Nanos> {
    let (killed_at, victim) = (course.killed_at?, name_of(course.victim));
    let calls = || flown.iter().flat_map(|entry| &entry.calls);
    let last = calls().filter(|call| call.begun <= killed_at).max_by_key(|call| call.begun)?;
    let next = calls().filter(|call| call.begun > killed_at).map(|call| call.begun).min()?;
    (last.replica == victim).then_some(next - killed_at)
}
