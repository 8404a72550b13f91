//! A history with an index of the places for mutations.

use std::collections::BTreeMap;

use keylane_checker::{CallKind, Called, End, Event, Status, What};
use uuid::Uuid;

/// A call, with the places of its lines.
pub(crate) struct CallView<'a> {
    pub(crate) began: usize,
    pub(crate) ended: Option<(usize, &'a [End])>,
    pub(crate) instance: &'a str,
    pub(crate) kind: CallKind,
    pub(crate) records: &'a [Called],
}

impl CallView<'_> {
    /// Whether it was a call of one record that succeeded, and no fallback.
    pub(crate) fn is_plain_success(&self) -> bool {
        self.records.len() == 1
            && self.kind != CallKind::Fallback
            && matches!(self.ended, Some((_, ends)) if ends == [End::Ok])
    }
}

/// A record, with the places of its lines.
pub(crate) struct RecordView<'a> {
    pub(crate) stored: usize,
    pub(crate) event: Uuid,
    pub(crate) tx: u64,
    scheduled: usize,
    pub(crate) delayed: bool,
    pub(crate) lane: (&'a str, &'a str),
    pub(crate) calls: Vec<usize>,
    pub(crate) changes: Vec<usize>,
    /// The place where an instance has written its end.
    pub(crate) gone: Option<usize>,
}

pub(crate) struct View<'a> {
    pub(crate) history: &'a [Event],
    pub(crate) calls: Vec<CallView<'a>>,
    pub(crate) records: BTreeMap<i64, RecordView<'a>>,
    /// The places where the commits of transactions have returned.
    pub(crate) committed: BTreeMap<u64, usize>,
}

impl<'a> View<'a> {
    pub(crate) fn new(history: &'a [Event]) -> Self {
        let mut view =
            Self { history, calls: Vec::new(), records: BTreeMap::new(), committed: BTreeMap::new() };
        let (mut scheduled, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        for (place, event) in history.iter().enumerate() {
            match &event.what {
                What::Scheduling { event, tx, delayed, .. } => {
                    scheduled.insert(*event, (*tx, *delayed, place));
                }
                What::Stored { id, event, key, handler, .. } => {
                    let (tx, delayed, scheduled) = scheduled[event];
                    let (calls, changes) = (Vec::new(), Vec::new());
                    let lane = (key.as_str(), handler.as_str());
                    let event = *event;
                    let record = RecordView {
                        stored: place,
                        event,
                        tx,
                        scheduled,
                        delayed,
                        lane,
                        calls,
                        changes,
                        gone: None,
                    };
                    view.records.insert(*id, record);
                }
                What::Changed { id, status, by, .. } => {
                    let record = view.records.get_mut(id).expect("a record");
                    record.changes.push(place);
                    if *status == Status::Gone && by.is_some() {
                        record.gone = Some(place);
                    }
                }
                What::CallBegan { call, instance, kind, records } => {
                    numbers.insert(*call, view.calls.len());
                    for called in records {
                        let record = view.records.get_mut(&called.id).expect("a record");
                        record.calls.push(view.calls.len());
                    }
                    view.calls.push(CallView { began: place, ended: None, instance, kind: *kind, records });
                }
                What::Committed { tx } => drop(view.committed.insert(*tx, place)),
                What::CallEnded { call, ends } => view.calls[numbers[call]].ended = Some((place, ends)),
                _ => {}
            }
        }
        view
    }

    /// The places of these events.
    pub(crate) fn places(&self, fits: impl Fn(&What) -> bool) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.history.len()).filter(move |place| fits(&self.history[*place].what))
    }

    /// The history without these places.
    pub(crate) fn without(&self, places: &[usize]) -> Vec<Event> {
        let left = self.history.iter().enumerate().filter(|(place, _)| !places.contains(place));
        left.map(|(_, event)| event.clone()).collect()
    }

    /// The history with another event at a place.
    pub(crate) fn with(&self, place: usize, change: impl FnOnce(&mut What)) -> Vec<Event> {
        let mut history = self.history.to_vec();
        change(&mut history[place].what);
        history
    }

    /// The history with more events after a place, at its time.
    pub(crate) fn after(&self, place: usize, more: impl IntoIterator<Item = What>) -> Vec<Event> {
        let mut history = self.history.to_vec();
        let at = history[place].at;
        for (number, what) in more.into_iter().enumerate() {
            history.insert(place + 1 + number, Event { at, process: "mutation".to_owned(), what });
        }
        history
    }

    /// The history with the event of one place before that of another.
    pub(crate) fn moved(&self, from: usize, before: usize) -> Vec<Event> {
        let mut history = self.history.to_vec();
        let mut event = history.remove(from);
        let before = if from < before { before - 1 } else { before };
        event.at = history[before].at;
        history.insert(before, event);
        history
    }

    /// Neighbouring records of one lane whose order follows from more than their ids. None of them is delayed.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (i64, i64)> {
        self.records.iter().flat_map(move |(first, one)| {
            let later = self.records.range(first + 1..).find(|(_, other)| other.lane == one.lane);
            let committed = self.committed.get(&one.tx).copied();
            let ordered = later.filter(|(_, other)| {
                other.tx == one.tx || committed.is_some_and(|committed| committed < other.scheduled)
            });
            let fits = ordered.filter(|(_, other)| !one.delayed && !other.delayed);
            fits.map(|(second, _)| (*first, *second))
        })
    }

    /// The only call of a record, if it succeeded at once.
    pub(crate) fn only_call(&self, id: i64) -> Option<&CallView<'a>> {
        let [call] = self.records[&id].calls[..] else { return None };
        Some(&self.calls[call]).filter(|call| call.is_plain_success())
    }

    /// Records at the end of their lanes that one plain call has delivered.
    pub(crate) fn last_delivered(&self) -> impl Iterator<Item = (i64, &CallView<'a>)> {
        let last = self.records.iter().filter(|(id, record)| {
            !self.records.range(*id + 1..).any(|(_, other)| other.lane == record.lane)
        });
        let delivered = last.filter(|(_, record)| record.gone.is_some() && record.changes.len() == 1);
        delivered.filter_map(|(id, _)| self.only_call(*id).map(|call| (*id, call)))
    }

    /// Whether no key is in this partition.
    pub(crate) fn is_idle(partition: u16) -> bool {
        !partition.is_multiple_of(60)
    }
}
