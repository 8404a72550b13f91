//! Mutations of ownership, and of the right to call and to write.

use std::collections::BTreeMap;

use keylane_checker::{CallKind, Called, Event, Status, What};

use super::{rows::open_rows, view::View};

/// The instances that are up at a place: they have joined, have not left, and are not dead.
fn up(view: &View<'_>, place: usize) -> Vec<String> {
    let mut up = Vec::new();
    for event in &view.history[..place] {
        match &event.what {
            What::Joined { instance } => up.push(instance.clone()),
            What::Draining { instance } | What::Left { instance } | What::Evicted { instance } => {
                up.retain(|other| other != instance);
            }
            What::FaultBegan { instance: Some(instance), .. } => up.retain(|other| other != instance),
            _ => {}
        }
    }
    up
}

fn claims(view: &View<'_>) -> Vec<(usize, u16, String, i64)> {
    let claims = view.history.iter().enumerate().filter_map(|(place, event)| match &event.what {
        What::Claimed { partition, instance, generation } => {
            Some((place, *partition, instance.clone(), *generation))
        }
        _ => None,
    });
    claims.collect()
}

pub(crate) fn skipped_generation(view: &View<'_>) -> Vec<Vec<Event>> {
    let change = |what: &mut What| {
        if let What::Claimed { generation, .. } = what {
            *generation += 1;
        }
    };
    claims(view).into_iter().rev().map(|(place, ..)| view.with(place, change)).take(2).collect()
}

pub(crate) fn twice_claimed(view: &View<'_>) -> Vec<Vec<Event>> {
    let all = claims(view).into_iter().rev();
    all.map(|(place, ..)| view.after(place, [view.history[place].what.clone()])).take(2).collect()
}

pub(crate) fn no_claim(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for (place, partition, instance, generation) in claims(view) {
        let called = view.calls.iter().find(|call| {
            call.began > place
                && call.instance == instance
                && (call.records[0].partition, call.records[0].generation) == (partition, generation)
        });
        let soon =
            called.is_some_and(|call| view.history[call.began].at < view.history[place].at + 5_000_000);
        if soon {
            all.push(view.without(&[place]));
        }
    }
    all
}

pub(crate) fn no_release(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for place in view.places(|what| matches!(what, What::Unclaimed { .. })) {
        let What::Unclaimed { partition, .. } = view.history[place].what else { continue };
        let next = claims(view).into_iter().find(|(at, of, ..)| *at > place && *of == partition);
        let Some((next, ..)) = next else { continue };
        let between = &view.history[place..next];
        if !between.iter().any(|event| matches!(event.what, What::Left { .. } | What::Evicted { .. })) {
            all.push(view.without(&[place]));
        }
        if all.len() > 2 {
            break;
        }
    }
    all
}

pub(crate) fn wrong_generation(view: &View<'_>) -> Vec<Vec<Event>> {
    let change = |what: &mut What| {
        if let What::CallBegan { records, .. } = what {
            records[0].generation += 1;
        }
    };
    view.calls.iter().rev().map(|call| view.with(call.began, change)).take(3).collect()
}

pub(crate) fn wrong_caller(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for call in view.calls.iter().filter(|call| call.kind != CallKind::Fallback) {
        let other = up(view, call.began).into_iter().find(|other| other != call.instance);
        all.extend(other.map(|other| {
            view.with(call.began, |what| {
                if let What::CallBegan { instance, .. } = what {
                    *instance = other;
                }
            })
        }));
    }
    all
}

pub(crate) fn short_lease(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for call in view.calls.iter().rev() {
        let of_caller =
            |what: &What| matches!(what, What::LeaseUntil { instance, .. } if instance == call.instance);
        let lease = view.places(of_caller).rev().find(|place| *place < call.began);
        all.extend(lease.map(|lease| {
            let at = view.history[call.began].at;
            view.with(lease, |what| {
                if let What::LeaseUntil { until, .. } = what {
                    *until = at;
                }
            })
        }));
    }
    all
}

pub(crate) fn no_fault(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    let pause = |what: &What| matches!(what, What::FaultBegan { fault, .. } if fault == "pause");
    for began in view.places(pause) {
        let What::FaultBegan { instance: Some(paused), .. } = &view.history[began].what else { continue };
        let end = |what: &What| matches!(what, What::FaultEnded { instance: Some(instance), .. } if instance == paused);
        let Some(ended) = view.places(end).find(|place| *place > began) else { continue };
        let frozen = view.calls.iter().filter(|call| {
            call.instance == paused
                && call.began < began
                && call.ended.is_some_and(|(place, _)| place > ended)
        });
        let lanes: Vec<_> =
            frozen.flat_map(|call| call.records).map(|called| (&called.key, &called.handler)).collect();
        let overlaps = view.calls.iter().filter(|call| (began..ended).contains(&call.began));
        let overlaps = overlaps
            .flat_map(|call| call.records)
            .any(|called| lanes.contains(&(&called.key, &called.handler)));
        if overlaps {
            all.push(view.without(&[began, ended]));
        }
    }
    all
}

pub(crate) fn former_owner(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for place in view.places(|what| matches!(what, What::Unclaimed { .. })) {
        let What::Unclaimed { partition, generation } = view.history[place].what else { continue };
        let owner =
            claims(view).into_iter().find(|(_, of, _, number)| (*of, *number) == (partition, generation));
        let rows = open_rows(view.history, place);
        let row = rows.into_iter().find(|(_, status, _, of)| *of == partition && *status == Status::Pending);
        let (Some((_, _, instance, _)), Some((id, _, attempts, _))) = (owner, row) else { continue };
        let record = &view.records[&id];
        let called = Called {
            id,
            event: record.event,
            handler: record.lane.1.to_owned(),
            key: record.lane.0.to_owned(),
            partition,
            generation,
            attempt: attempts + 1,
        };
        let records = vec![called];
        all.push(
            view.after(
                place,
                [What::CallBegan { call: u64::MAX, instance, kind: CallKind::Single, records }],
            ),
        );
    }
    all
}

pub(crate) fn dead_writer(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for place in view.places(|what| matches!(what, What::Evicted { .. })) {
        let What::Evicted { instance } = &view.history[place].what else { continue };
        let row = open_rows(view.history, place).into_iter().next();
        all.extend(row.map(|(id, _, attempts, _)| {
            let by = Some(instance.clone());
            view.after(place, [What::Changed { id, status: Status::Delayed, attempts, by }])
        }));
    }
    all
}

pub(crate) fn wrong_writer(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for place in view.places(|what| matches!(what, What::Changed { by: Some(_), .. })) {
        let What::Changed { by: Some(by), .. } = &view.history[place].what else { continue };
        let other = up(view, place).into_iter().find(|other| other != by);
        all.extend(other.map(|other| {
            view.with(place, |what| {
                if let What::Changed { by, .. } = what {
                    *by = Some(other);
                }
            })
        }));
    }
    all
}

/// The last claim of each idle partition before the end begins.
fn settled(view: &View<'_>) -> (usize, BTreeMap<u16, (usize, String)>) {
    let settling = view.places(|what| *what == What::Settling).next().unwrap_or_default();
    let idle = claims(view).into_iter().filter(|(place, of, ..)| *place < settling && View::is_idle(*of));
    (settling, idle.map(|(place, of, instance, _)| (of, (place, instance))).collect())
}

pub(crate) fn no_takeover(view: &View<'_>) -> Vec<Vec<Event>> {
    let evicted = view.places(|what| matches!(what, What::Evicted { .. })).last();
    let (_, last) = settled(view);
    let taken = last.iter().filter(|(_, (place, _))| evicted.is_some_and(|evicted| *place > evicted));
    let all = taken.map(|(partition, (place, _))| {
        let of = |what: &What| match what {
            What::Claimed { partition: of, .. } | What::Unclaimed { partition: of, .. } => of == partition,
            _ => false,
        };
        let places: Vec<usize> = view.places(of).filter(|other| other >= place).collect();
        view.without(&places)
    });
    all.take(2).collect()
}

pub(crate) fn unequal(view: &View<'_>) -> Vec<Vec<Event>> {
    let (settling, last) = settled(view);
    let up = up(view, settling);
    let Some(first) = up.first() else { return Vec::new() };
    let mut of_first = last.values().filter(|(_, instance)| instance == first);
    let (Some((one, _)), Some((two, _))) = (of_first.next(), of_first.next()) else { return Vec::new() };
    let Some(other) = up.iter().find(|other| *other != first) else { return Vec::new() };
    let joined = view.places(|what| matches!(what, What::Joined { instance } if instance == other)).next();
    if joined.is_none_or(|joined| joined > *one.min(two)) {
        return Vec::new();
    }
    let mut history = view.history.to_vec();
    for place in [*one, *two] {
        if let What::Claimed { instance, .. } = &mut history[place].what {
            other.clone_into(instance);
        }
    }
    vec![history]
}

/// The release of a partition, and its next claim by the same instance.
fn there_and_back(partition: u16, instance: String, generation: i64) -> [What; 2] {
    let again = What::Claimed { partition, instance, generation: generation + 1 };
    [What::Unclaimed { partition, generation }, again]
}

pub(crate) fn twice_moved(view: &View<'_>) -> Vec<Vec<Event>> {
    let (settling, _) = settled(view);
    let claims = claims(view).into_iter().filter(|(place, ..)| *place > settling);
    claims
        .map(|(place, of, instance, number)| view.after(place, there_and_back(of, instance, number)))
        .take(2)
        .collect()
}

pub(crate) fn moved_for_nothing(view: &View<'_>) -> Vec<Vec<Event>> {
    let (settling, last) = settled(view);
    let draining = view.places(|what| matches!(what, What::Draining { .. })).find(|place| *place > settling);
    let (Some(draining), Some((partition, (place, instance)))) = (draining, last.first_key_value()) else {
        return Vec::new();
    };
    let What::Claimed { generation, .. } = view.history[*place].what else { return Vec::new() };
    vec![view.after(draining - 1, there_and_back(*partition, instance.clone(), generation))]
}

pub(crate) fn ends_after_crash(view: &View<'_>) -> Vec<Vec<Event>> {
    let mut all = Vec::new();
    for place in view.places(|what| matches!(what, What::FaultBegan { fault, .. } if fault == "crash")) {
        let What::FaultBegan { instance: Some(crashed), .. } = &view.history[place].what else { continue };
        let mut ended =
            view.calls.iter().filter(|call| call.instance == crashed).filter_map(|call| call.ended);
        all.extend(ended.next_back().map(|(ended, _)| view.moved(place, ended)));
    }
    all
}
