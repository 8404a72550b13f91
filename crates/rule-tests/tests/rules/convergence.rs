//! Instances read old views, win only some of their claims, join, leave and crash. Once these events end, the
//! assignment settles within a few rounds.

use std::collections::{BTreeMap, BTreeSet};

use keylane::{
    admin::{Generation, InstanceId},
    inner::Claim,
    partition::{PARTITION_COUNT, Partition},
    rules::assignment::{Moves, assign, moves},
};
use proptest::{collection::vec, prelude::*};

use super::assignment::id;

/// An event before a round.
#[derive(Clone, Copy, Debug)]
enum Event {
    Join,
    /// Starts to drain.
    Leave(usize),
    /// Acts no more, and counts as alive until it is evicted.
    Crash(usize),
    /// The crashed count as dead from now on.
    Evict,
    Nothing,
}

/// The cluster as one statement reads it.
#[derive(Clone)]
struct View {
    active: BTreeSet<InstanceId>,
    draining: BTreeSet<InstanceId>,
    claims: [Claim; PARTITION_COUNT],
}

struct World {
    view: View,
    crashed: BTreeSet<InstanceId>,
    started: usize,
    /// Earlier views, the newest last.
    past: Vec<View>,
}

impl World {
    fn new() -> Self {
        let claims = [Claim::default(); PARTITION_COUNT];
        let view = View { active: BTreeSet::new(), draining: BTreeSet::new(), claims };
        Self { view, crashed: BTreeSet::new(), started: 0, past: Vec::new() }
    }

    fn happen(&mut self, event: Event) {
        let nth = |set: &BTreeSet<InstanceId>, n: usize| set.iter().copied().cycle().nth(n);
        match event {
            Event::Join => {
                self.view.active.insert(id(self.started));
                self.started += 1;
            }
            Event::Leave(n) => {
                if let Some(leaver) = nth(&self.view.active, n) {
                    self.view.active.remove(&leaver);
                    self.view.draining.insert(leaver);
                }
            }
            Event::Crash(n) => self.crashed.extend(nth(&self.view.active, n)),
            Event::Evict => {
                self.view.active.retain(|id| !self.crashed.contains(id));
                self.view.draining.retain(|id| !self.crashed.contains(id));
            }
            Event::Nothing => {}
        }
    }

    /// Every instance acts once, on a view of the age that `ages` says. `luck` decides which of its claims
    /// succeed. Returns whether no instance had anything to do.
    fn round(&mut self, ages: &[usize], luck: impl Fn(Partition) -> bool) -> bool {
        self.past.push(self.view.clone());
        let newest = self.past.len() - 1;
        let mut acting: Vec<InstanceId> = self.view.active.union(&self.view.draining).copied().collect();
        acting.retain(|id| !self.crashed.contains(id));
        let mut settled = true;
        for (me, age) in acting.into_iter().zip(ages.iter().cycle()) {
            let view = self.past[newest.saturating_sub(*age)].clone();
            let mine = part(&view, me);
            settled &= mine == Moves::default();
            for partition in mine.release.iter() {
                self.swap(&view, partition, None);
            }
            for partition in mine.claim.iter().filter(|partition| luck(*partition)) {
                self.swap(&view, partition, Some(me));
            }
        }
        let owns = |id: &InstanceId| self.view.claims.iter().any(|claim| claim.owner == Some(*id));
        self.view.draining.retain(owns);
        settled
    }

    /// Compare and set: only if the claim has not changed since the view.
    fn swap(&mut self, seen: &View, partition: Partition, owner: Option<InstanceId>) {
        let claim = &mut self.view.claims[partition.index()];
        if *claim == seen.claims[partition.index()] {
            let generation = claim.generation.0 + i64::from(owner.is_some());
            *claim = Claim { owner, generation: Generation(generation) };
        }
    }
}

fn part(view: &View, me: InstanceId) -> Moves {
    let may_own = view.active.union(&view.draining).copied().collect();
    moves(me, &assign(&view.active, &view.claims), &may_own, &view.claims)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Join),
        1 => any::<u8>().prop_map(|n| Event::Leave(n.into())),
        1 => any::<u8>().prop_map(|n| Event::Crash(n.into())),
        1 => Just(Event::Evict),
        2 => Just(Event::Nothing),
    ]
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn the_cluster_settles_soon_after_the_last_event(
        rounds in vec((event(), vec(0..3_usize, 1..4), any::<[u64; 4]>()), 1..20),
    ) {
        let mut world = World::new();
        world.happen(Event::Join);
        for (event, ages, lucky) in rounds {
            world.happen(event);
            world.round(&ages, |partition| lucky[partition.index() / 64] >> (partition.index() % 64) & 1 == 1);
        }
        // One instance must be left, and the crashed ones must count as dead.
        world.happen(Event::Join);
        world.happen(Event::Evict);

        // One round to release and to claim what is free, one to claim what was released, and one without
        // any change.
        let mut rounds = 1;
        while !world.round(&[0], |_| true) {
            rounds += 1;
            prop_assert!(rounds <= 3, "not settled after {} rounds", rounds);
        }
        let mut shares: BTreeMap<InstanceId, usize> = world.view.active.iter().map(|id| (*id, 0)).collect();
        for claim in world.view.claims {
            let share = claim.owner.and_then(|owner| shares.get_mut(&owner));
            *share.ok_or_else(|| TestCaseError::fail(format!("{claim:?} is not of a living instance")))? += 1;
        }
        let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
        prop_assert!(most - least <= 1);
    }
}
