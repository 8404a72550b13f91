//! The verdict: the week on one side, the ledgers on the other. The outbox is not asked.

use std::{collections::BTreeMap, time::Duration};

use uuid::Uuid;

use crate::{
    flights::Flight,
    ledger::{Line, Micros, What},
    show::Course,
};

/// One call of the bookkeeper, from its lines.
struct Attempt {
    row: usize,
    turn: usize,
    replica: usize,
    number: u32,
    event_id: Uuid,
    begun: Micros,
    /// Not given: it never ended.
    end: Option<(Micros, What)>,
}

impl Attempt {
    fn is_final(&self) -> bool {
        self.end.is_some_and(|(_, what)| what.is_final())
    }
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
    /// Calls that began before all earlier flights of the aircraft were entered, or while another
    /// call for that aircraft was going on, in whatever process.
    pub(crate) out_of_order: usize,
    /// Scheduled while an earlier flight of the aircraft was not in the books yet.
    pub(crate) waited: usize,
    /// Handled again because the killed replica had ended them, but not told the database yet.
    pub(crate) unreported: usize,
    /// Handled again because the killed replica was in the middle of them.
    pub(crate) interrupted: usize,
    /// Handled again for no such reason.
    pub(crate) unexplained: usize,
    /// Lines that do not fit the week.
    pub(crate) strange: usize,
    pub(crate) first_after_kill: Option<Duration>,
    /// From the first call to the last entry.
    pub(crate) span: Duration,
}

/// Weighs the ledgers against the week.
pub(crate) fn weigh(flights: &[Flight], course: &Course) -> Verdict {
    let records = course.committed.iter().flatten().count();
    let mut verdict = Verdict { records, unscheduled: flights.len() - records, ..Verdict::default() };
    let mut aircraft: BTreeMap<String, Vec<Attempt>> = BTreeMap::new();
    for flight in flights {
        aircraft.entry(flight.aircraft()).or_default();
    }
    verdict.keys = aircraft.len();
    for (replica, lines) in &course.ledgers {
        let fits = |line: &Line| {
            let flight = flights.get(line.row.wrapping_sub(1));
            flight.is_some_and(|flight| flight.turn == line.turn && flight.aircraft() == line.aircraft)
        };
        for line in lines {
            let attempts = aircraft.get_mut(&line.aircraft).filter(|_| fits(line));
            let read = attempts.is_some_and(|attempts| take_in(attempts, *replica, line));
            verdict.strange += usize::from(!read);
        }
    }
    for attempts in aircraft.values_mut() {
        attempts.sort_by_key(|attempt| attempt.begun);
        verdict.add_aircraft(attempts, course);
    }
    let mut rows: Vec<Vec<&Attempt>> = flights.iter().map(|_| Vec::new()).collect();
    for attempt in aircraft.values().flatten() {
        rows[attempt.row - 1].push(attempt);
    }
    for (attempts, committed) in rows.iter().zip(&course.committed) {
        if committed.is_some() || !attempts.is_empty() {
            verdict.add_row(attempts, course);
        }
    }
    let begun = aircraft.values().flatten().map(|attempt| attempt.begun).min();
    let end = aircraft.values().flatten().filter_map(|attempt| attempt.end).map(|(at, _)| at).max();
    verdict.span = Duration::from_micros(end.zip(begun).map_or(0, |(end, begun)| end - begun));
    verdict.first_after_kill = first_after_kill(&aircraft, course);
    verdict
}

/// Adds a line to the attempts of its aircraft; lines of one replica come in their order.
fn take_in(attempts: &mut Vec<Attempt>, replica: usize, line: &Line) -> bool {
    let (row, turn, number, event_id) = (line.row, line.turn, line.attempt, line.event_id);
    if line.what == What::Begun {
        attempts.push(Attempt { row, turn, replica, number, event_id, begun: line.at, end: None });
        return true;
    }
    let before = (line.what == What::Fallback).then_some(What::Refused);
    let open = attempts.iter_mut().rev().find(|attempt| {
        (attempt.row, attempt.replica, attempt.number, attempt.event_id) == (row, replica, number, event_id)
            && attempt.end.map(|(_, what)| what) == before
    });
    open.map(|attempt| attempt.end = Some((line.at, line.what))).is_some()
}

impl Verdict {
    /// Adds what the calls for one aircraft, in the order in which they began, say of their order.
    fn add_aircraft(&mut self, attempts: &[Attempt], course: &Course) {
        // The flight whose turn it is; one that is handled again takes the row up from there.
        let mut next = 1;
        let mut reached = 0;
        let mut busy_until = 0;
        for attempt in attempts {
            self.out_of_order += usize::from(attempt.turn > next || attempt.begun < busy_until);
            let committed = course.committed.get(attempt.row - 1).copied().flatten();
            self.waited += usize::from(
                attempt.turn > reached && committed.is_some_and(|committed| committed < busy_until),
            );
            reached = reached.max(attempt.turn);
            next = attempt.turn + usize::from(attempt.is_final());
            let killed_at = course.killed_at.filter(|_| attempt.replica == course.victim);
            let end = attempt.end.map(|(at, _)| at).or(killed_at).unwrap_or(Micros::MAX);
            busy_until = busy_until.max(end);
        }
    }

    /// Adds what the attempts of one flight, in their order, say of it.
    fn add_row(&mut self, attempts: &[&Attempt], course: &Course) {
        match attempts.iter().find(|attempt| attempt.is_final()).and_then(|attempt| attempt.end) {
            Some((_, What::Fallback)) => self.fallback += 1,
            Some(_) => self.delivered += 1,
            None => self.lost += 1,
        }
        let failed = |attempt: &&Attempt| attempt.end.is_some_and(|(_, what)| what == What::Failed);
        self.retried += usize::from(attempts.iter().copied().any(|attempt| failed(&attempt)));
        for pair in attempts.windows(2) {
            let (before, again) = (pair[0], pair[1]);
            let same_event = before.event_id == again.event_id;
            let of_killed = before.replica == course.victim
                && again.replica != course.victim
                && course.killed_at.is_some_and(|killed_at| killed_at < again.begun);
            if same_event && failed(&before) && again.number == before.number + 1 {
                continue;
            }
            match same_event && of_killed {
                true if before.is_final() => self.unreported += 1,
                true => self.interrupted += 1,
                false => self.unexplained += 1,
            }
        }
    }

    /// Everything that is wrong, as sentences.
    pub(crate) fn problems(&self, course: &Course, takeover_limit: Duration) -> Vec<String> {
        let mut problems = course.troubles.clone();
        let counts = [
            (self.unscheduled, "flights were not scheduled"),
            (self.lost, "flights were scheduled, but are in no ledger"),
            (self.out_of_order, "calls were out of order"),
            (self.unexplained, "flights were handled again without a reason"),
            (self.strange, "lines of the ledgers do not fit the week"),
        ];
        problems.extend(
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
        );
        match course.takeover {
            None => problems.push("the partitions of the killed replica were not taken over".to_owned()),
            Some(took) if took > takeover_limit => problems.push(format!("the takeover took {took:.1?}")),
            Some(_) => {}
        }
        problems
    }
}

/// From the kill to the first call, by another replica, for an aircraft that was last in the hands
/// of the killed one.
fn first_after_kill(aircraft: &BTreeMap<String, Vec<Attempt>>, course: &Course) -> Option<Duration> {
    let killed_at = course.killed_at?;
    let mut calls = Vec::new();
    for attempts in aircraft.values() {
        let after = attempts.partition_point(|attempt| attempt.begun <= killed_at);
        let last_before = after.checked_sub(1).and_then(|last| attempts.get(last));
        if let (Some(before), Some(next)) = (last_before, attempts.get(after))
            && before.replica == course.victim
        {
            calls.push(next.begun);
        }
    }
    calls.into_iter().min().map(|begun| Duration::from_micros(begun - killed_at))
}
