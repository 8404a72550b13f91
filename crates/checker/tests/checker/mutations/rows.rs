//! Mutations of the outcomes of records.

use keylane_checker::{CallKind, End, Event, Status, What};
use uuid::Uuid;

use super::view::{CallView, View};

const STRANGER: Uuid = Uuid::from_u128(u128::MAX);

/// The lines of a record that one call has delivered, without the line where it was stored.
fn delivery(view: &View<'_>, id: i64, call: &CallView<'_>) -> Vec<usize> {
    let record = &view.records[&id];
    let effect = |what: &What| matches!(what, What::Effect { event, handler } if *event == record.event && handler == record.lane.1);
    let mut places: Vec<usize> = view.places(effect).collect();
    places.extend([call.began]);
    places.extend(call.ended.map(|(place, _)| place));
    places.extend(&record.changes);
    places
}

pub(crate) fn no_end(view: &View<'_>) -> Vec<Vec<Event>> {
    let settling: Vec<usize> = view.places(|what| *what == What::Settling).collect();
    let all = view.last_delivered().map(|(id, call)| {
        let mut places = delivery(view, id, call);
        places.extend(&settling);
        view.without(&places)
    });
    all.collect()
}

pub(crate) fn starved(view: &View<'_>) -> Vec<Vec<Event>> {
    // A history does not tell when a delayed record is due, so it may wait until the end.
    let due = view.last_delivered().filter(|(id, _)| !view.records[id].delayed);
    due.map(|(id, call)| view.without(&delivery(view, id, call))).collect()
}

pub(crate) fn no_row(view: &View<'_>) -> Vec<Vec<Event>> {
    // The rows of a commit without a reply may be absent.
    let told = view.last_delivered().filter(|(id, _)| view.committed.contains_key(&view.records[id].tx));
    let all = told.map(|(id, call)| {
        let mut places = delivery(view, id, call);
        places.push(view.records[&id].stored);
        view.without(&places)
    });
    all.collect()
}

pub(crate) fn rolled_back(view: &View<'_>) -> Vec<Vec<Event>> {
    let seen = |tx: u64| view.records.values().any(|record| record.tx == tx);
    let places = view.places(|what| matches!(what, What::Committed { tx } if seen(*tx)));
    let change = |what: &mut What| {
        if let What::Committed { tx } = *what {
            *what = What::RolledBack { tx };
        }
    };
    places.map(|place| view.with(place, change)).collect()
}

pub(crate) fn other_event(view: &View<'_>) -> Vec<Vec<Event>> {
    let places = view.places(|what| matches!(what, What::CallBegan { .. }));
    let change = |what: &mut What| {
        if let What::CallBegan { records, .. } = what {
            records[0].event = STRANGER;
        }
    };
    places.map(|place| view.with(place, change)).collect()
}

pub(crate) fn twice_stored(view: &View<'_>) -> Vec<Vec<Event>> {
    let places = view.places(|what| matches!(what, What::Stored { .. }));
    places.map(|place| view.after(place, [view.history[place].what.clone()])).collect()
}

pub(crate) fn other_key(view: &View<'_>) -> Vec<Vec<Event>> {
    let places = view.places(|what| matches!(what, What::Stored { .. }));
    let change = |what: &mut What| {
        if let What::Stored { key, .. } = what {
            "z".clone_into(key);
        }
    };
    places.map(|place| view.with(place, change)).collect()
}

/// The places of the transactions that have rows.
fn of_seen<'a>(view: &'a View<'_>, fits: fn(&What) -> Option<u64>) -> impl Iterator<Item = usize> + 'a {
    let seen = |tx: u64| view.records.values().any(|record| record.tx == tx);
    view.places(move |what| fits(what).is_some_and(seen))
}

pub(crate) fn early_row(view: &View<'_>) -> Vec<Vec<Event>> {
    let committing = |what: &What| if let What::Committing { tx } = what { Some(*tx) } else { None };
    of_seen(view, committing).map(|place| view.without(&[place])).collect()
}

pub(crate) fn not_scheduled(view: &View<'_>) -> Vec<Vec<Event>> {
    let stored = |id: &Uuid| view.records.values().any(|record| record.event == *id);
    let places = view.places(|what| matches!(what, What::Scheduling { event, .. } if stored(event)));
    places.map(|place| view.without(&[place])).collect()
}

pub(crate) fn refused(view: &View<'_>) -> Vec<Vec<Event>> {
    let stored = |id: &Uuid| view.records.values().any(|record| record.event == *id);
    let calls = view.places(|what| matches!(what, What::Scheduling { event, .. } if stored(event)));
    // The next line tells the outcome.
    let change = |what: &mut What| {
        if let What::Scheduled { call } = *what {
            *what = What::ScheduleFailed { call };
        }
    };
    calls.map(|place| view.with(place + 1, change)).collect()
}

pub(crate) fn no_begin(view: &View<'_>) -> Vec<Vec<Event>> {
    let calls = view.calls.iter().filter(|call| call.ended.is_some());
    calls.map(|call| view.without(&[call.began])).collect()
}

pub(crate) fn no_success(view: &View<'_>) -> Vec<Vec<Event>> {
    let delivered =
        view.records.iter().filter_map(|(id, record)| Some((record, record.gone?, view.only_call(*id)?)));
    // No other call of the lane is in between.
    let settled = delivered.filter(|(record, gone, call)| {
        !view.calls.iter().any(|other| {
            (call.began + 1..*gone).contains(&other.began)
                && other
                    .records
                    .iter()
                    .any(|called| (called.key.as_str(), called.handler.as_str()) == record.lane)
        })
    });
    let change = |what: &mut What| {
        if let What::CallEnded { ends, .. } = what {
            ends[0] = End::Dropped;
        }
    };
    settled.filter_map(|(_, _, call)| call.ended.map(|(place, _)| view.with(place, change))).collect()
}

pub(crate) fn two_ends(view: &View<'_>) -> Vec<Vec<Event>> {
    let gone = view.records.values().filter_map(|record| record.gone);
    gone.map(|place| view.after(place, [view.history[place].what.clone()])).collect()
}

pub(crate) fn no_person(view: &View<'_>) -> Vec<Vec<Event>> {
    let done =
        |what: &What| matches!(what, What::Retried { .. } | What::Replaced { .. } | What::Discarded { .. });
    view.places(done).map(|place| view.without(&[place])).collect()
}

/// Pairs of records that one call each has delivered, both stored before the first call.
fn plain_pairs<'a, 'b>(view: &'b View<'a>) -> impl Iterator<Item = (&'b CallView<'a>, &'b CallView<'a>)> {
    view.pairs().filter_map(|(first, second)| {
        let call = view.only_call(first).filter(|call| view.records[&second].stored < call.began)?;
        Some((call, view.only_call(second)?))
    })
}

pub(crate) fn swapped_calls(view: &View<'_>) -> Vec<Vec<Event>> {
    let pairs = plain_pairs(view);
    let swapped =
        pairs.filter(|(first, second)| first.kind != CallKind::Batch && first.instance == second.instance);
    let swapped =
        swapped.filter(|(first, second)| first.records[0].generation == second.records[0].generation);
    let all = swapped.map(|(first, second)| {
        let mut history = view.history.to_vec();
        for (place, by) in [(first.began, second), (second.began, first)] {
            if let What::CallBegan { records, .. } = &mut history[place].what {
                *records = by.records.to_vec();
            }
        }
        history
    });
    all.collect()
}

pub(crate) fn swapped_batch(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for (first, second) in view.pairs() {
        let (one, other) = (&view.records[&first].calls, &view.records[&second].calls);
        let Some(call) = one.first().filter(|call| other.first() == Some(call)) else { continue };
        let call = &view.calls[*call];
        let place = |id: i64| call.records.iter().position(|called| called.id == id);
        if let (Some(first), Some(second)) = (place(first), place(second)) {
            all.push(view.with(call.began, |what| {
                if let What::CallBegan { records, .. } = what {
                    records.swap(first, second);
                }
            }));
        }
    }
    all
}

pub(crate) fn nested_call(view: &View<'_>) -> Vec<Vec<Event>> {
    let pairs = plain_pairs(view);
    let fits =
        pairs.filter(|(first, second)| first.instance == second.instance && second.kind != CallKind::Batch);
    let fits = fits.filter(|(first, second)| first.records[0].generation == second.records[0].generation);
    fits.filter_map(|(first, second)| first.ended.map(|(place, _)| view.moved(second.began, place))).collect()
}

pub(crate) fn passed_failure(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for (first, second) in view.pairs() {
        let (Some(call), Some(gone)) = (view.only_call(first), view.records[&first].gone) else { continue };
        // The second is called before the end of the first is durable.
        let next = view.records[&second].calls.first().map(|call| view.calls[*call].began);
        if let (Some((place, _)), Some(_)) = (call.ended, next.filter(|next| *next < gone)) {
            all.push(view.with(place, |what| {
                if let What::CallEnded { ends, .. } = what {
                    ends[0] = End::Failed;
                }
            }));
        }
    }
    all
}

pub(crate) fn swapped_ends(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for (first, second) in view.pairs() {
        let (Some(one), Some(other)) = (view.records[&first].gone, view.records[&second].gone) else {
            continue;
        };
        let done = view.only_call(second).and_then(|call| call.ended);
        if done.is_some_and(|(place, _)| place < one) {
            let mut history = view.history.to_vec();
            let what = history[one].what.clone();
            history[one].what = std::mem::replace(&mut history[other].what, what);
            all.push(history);
        }
    }
    all
}

pub(crate) fn no_replay(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for (first, second) in view.pairs() {
        let calls: Vec<&CallView<'_>> =
            view.records[&first].calls.iter().map(|call| &view.calls[*call]).collect();
        let Some((again, before)) = calls.split_last().filter(|(again, _)| again.is_plain_success()) else {
            continue;
        };
        let succeeded = before.iter().any(|call| {
            let place = call.records.iter().position(|called| called.id == first);
            call.ended.zip(place).is_some_and(|((_, ends), place)| ends[place] == End::Ok)
        });
        let only = before.iter().all(|call| call.instance != again.instance);
        let next = view.records[&second].calls.iter().map(|call| view.calls[*call].began);
        let next = next.filter(|began| *began > again.began).min();
        // If the end of the first record came before, the mutation would be caught as an end without a success.
        let gone = view.records[&first].gone;
        let in_time = next.zip(gone).is_some_and(|(next, gone)| next < gone);
        if let (true, Some((ended, _))) = (succeeded && only && in_time, again.ended) {
            all.push(view.without(&[again.began, ended]));
        }
    }
    all
}

pub(crate) fn call_after_end(view: &View<'_>) -> Vec<Vec<Event>> {
    let delivered = view.records.iter().filter_map(|(id, record)| Some((record.gone?, view.only_call(*id)?)));
    let all = delivered.map(|(gone, call)| {
        let mut what = view.history[call.began].what.clone();
        if let What::CallBegan { call, .. } = &mut what {
            *call = u64::MAX;
        }
        view.after(gone, [what])
    });
    // No other call of the lane is open then, or two calls of a lane would overlap.
    let alone = all.filter(|history| {
        let place =
            history.iter().position(|event| matches!(event.what, What::CallBegan { call: u64::MAX, .. }));
        place.is_some_and(|place| !is_busy(history, place))
    });
    alone.collect()
}

/// Whether another call of the same lane is open at the place of a call.
fn is_busy(history: &[Event], place: usize) -> bool {
    let What::CallBegan { records, .. } = &history[place].what else { return false };
    let lane = (&records[0].key, &records[0].handler);
    let before = history[..place].iter();
    let open = before.filter_map(|event| match &event.what {
        What::CallBegan { call, records, .. } if records.iter().any(|of| (&of.key, &of.handler) == lane) => {
            Some(*call)
        }
        _ => None,
    });
    let ended = |of: u64| {
        history[..place].iter().any(|event| matches!(event.what, What::CallEnded { call, .. } if call == of))
    };
    open.into_iter().any(|call| !ended(call))
}

/// The rows without an end at a place, with their status and attempts at that place.
pub(crate) fn open_rows(history: &[Event], place: usize) -> Vec<(i64, Status, u32, u16)> {
    let mut rows = std::collections::BTreeMap::new();
    for event in &history[..=place] {
        match &event.what {
            What::Stored { id, status, partition, .. } => drop(rows.insert(*id, (*status, 0, *partition))),
            What::Changed { id, status: Status::Gone, .. } => drop(rows.remove(id)),
            What::Changed { id, status, attempts, .. } => {
                if let Some(row) = rows.get_mut(id) {
                    (row.0, row.1) = (*status, *attempts);
                }
            }
            _ => {}
        }
    }
    rows.into_iter().map(|(id, (status, attempts, partition))| (id, status, attempts, partition)).collect()
}
