//! Mutations of numbers, and of the events at the end.

use keylane_checker::{CallKind, End, Event, Status, What};
use uuid::Uuid;

use super::view::View;
use crate::model::BACKOFF;

fn effects(what: &What) -> bool {
    matches!(what, What::Effect { .. })
}

pub(crate) fn twice_effect(view: &View<'_>) -> Vec<Vec<Event>> {
    view.places(effects).map(|place| view.after(place, [view.history[place].what.clone()])).collect()
}

pub(crate) fn no_effect(view: &View<'_>) -> Vec<Vec<Event>> {
    view.places(effects).map(|place| view.without(&[place])).collect()
}

pub(crate) fn ghost_effect(view: &View<'_>) -> Vec<Vec<Event>> {
    let ghost = What::Effect { event: Uuid::from_u128(u128::MAX), handler: "bill".to_owned() };
    vec![view.after(view.history.len() - 1, [ghost])]
}

pub(crate) fn more_attempts_called(view: &View<'_>) -> Vec<Vec<Event>> {
    let change = |what: &mut What| {
        if let What::CallBegan { records, .. } = what {
            records[0].attempt += 1;
        }
    };
    // A fallback is called after a failure that is counted already.
    let calls = view.calls.iter().rev().filter(|call| call.kind != CallKind::Fallback);
    let first = calls
        .filter(|call| call.records[0].attempt == 1 && view.records[&call.records[0].id].calls.len() == 1);
    first.map(|call| view.with(call.began, change)).collect()
}

pub(crate) fn more_attempts_written(view: &View<'_>) -> Vec<Vec<Event>> {
    let places = view.places(|what| {
        matches!(what, What::Changed { status: Status::Delayed | Status::Held, id, attempts, .. }
            // A failure whose outcome was lost may be counted later. Then one more is allowed.
            if failures(view, *id) == *attempts)
    });
    let change = |what: &mut What| {
        if let What::Changed { attempts, .. } = what {
            *attempts += 1;
        }
    };
    places.map(|place| view.with(place, change)).collect()
}

/// The number of failures of a record in the whole history.
fn failures(view: &View<'_>, id: i64) -> u32 {
    let calls = view.records[&id].calls.iter().map(|call| &view.calls[*call]);
    let ends = calls.filter(|call| call.kind != CallKind::Fallback).filter_map(|call| {
        let place = call.records.iter().position(|called| called.id == id)?;
        call.ended.and_then(|(_, ends)| ends.get(place))
    });
    let failed = ends.filter(|end| !matches!(end, End::Ok | End::Unavailable | End::Dropped));
    failed.count() as u32
}

pub(crate) fn early_retry(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for record in view.records.values() {
        for pair in record.calls.windows(2) {
            let (failed, again) = (&view.calls[pair[0]], &view.calls[pair[1]]);
            let one = failed.records.len() == 1 && again.records.len() == 1;
            let retried =
                again.records[0].attempt == failed.records[0].attempt + 1 && again.kind != CallKind::Fallback;
            let Some((ended, [End::Failed | End::Panicked | End::TimedOut])) = failed.ended else { continue };
            if one && retried {
                let mut history = view.history.to_vec();
                history[again.began].at = history[ended].at + BACKOFF / 2;
                all.push(history);
            }
        }
    }
    all
}

pub(crate) fn over_bound(view: &View<'_>) -> Vec<Vec<Event>> {
    let places = view.places(|what| matches!(what, What::Sampled { .. }));
    let change = |what: &mut What| {
        if let What::Sampled { value, .. } = what {
            *value += 1;
        }
    };
    places.map(|place| view.with(place, change)).collect()
}

pub(crate) fn canary(view: &View<'_>) -> Vec<Vec<Event>> {
    let places = view.places(|what| matches!(what, What::Logged { .. }));
    let change = |what: &mut What| {
        if let What::Logged { text } = what {
            text.push_str(": canary");
        }
    };
    places.map(|place| view.with(place, change)).collect()
}

pub(crate) fn stays(view: &View<'_>) -> Vec<Vec<Event>> {
    view.places(|what| matches!(what, What::Left { .. }))
        .last()
        .map(|place| view.without(&[place]))
        .into_iter()
        .collect()
}

pub(crate) fn remains(view: &View<'_>) -> Vec<Vec<Event>> {
    let change = |what: &mut What| {
        if let What::Remains { value, .. } = what {
            *value = 1;
        }
    };
    view.places(|what| matches!(what, What::Remains { .. })).map(|place| view.with(place, change)).collect()
}

pub(crate) fn never(view: &View<'_>) -> Vec<Vec<Event>> {
    view.places(|what| matches!(what, What::Saw { .. })).map(|place| view.without(&[place])).collect()
}
