//! The instances of the model: they join, leave, crash and freeze, and the database fails over.

use std::collections::BTreeMap;

use keylane_checker::What;

use crate::{
    handlers::{Open, Outcome},
    model::{LEASE, Model},
};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum State {
    Up,
    Gone,
}

pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) state: State,
    lease: u64,
    pub(crate) calls: Vec<Open>,
    /// Outcomes that the instance knows and that are not durable yet.
    pub(crate) outcomes: BTreeMap<i64, Outcome>,
}

impl Model {
    pub(crate) fn live(&self) -> impl Iterator<Item = usize> {
        let all = self.instances.iter().enumerate();
        all.filter(|(_, instance)| instance.state == State::Up).map(|(place, _)| place)
    }

    /// Every instance that is up has a good lease.
    pub(crate) fn renew(&mut self) {
        for place in self.live().collect::<Vec<_>>() {
            if self.instances[place].lease < self.now + LEASE / 2 {
                let (instance, until) = (self.instances[place].name.clone(), self.now + LEASE);
                self.instances[place].lease = until;
                self.tell(&instance.clone(), What::LeaseUntil { instance, until });
            }
        }
    }

    pub(crate) fn join(&mut self) {
        let name = format!("instance-{}", self.instances.len());
        self.tell("database", What::Joined { instance: name.clone() });
        let (calls, outcomes) = (Vec::new(), BTreeMap::new());
        self.instances.push(Instance { name, state: State::Up, lease: 0, calls, outcomes });
        self.database.members += 1;
        self.renew();
        self.share();
    }

    pub(crate) fn join_one(&mut self) {
        if self.live().count() < 4 {
            self.stand_still();
            self.join();
        }
    }

    pub(crate) fn leave_one(&mut self) {
        if self.live().count() > 1 {
            self.leave_first();
        }
    }

    pub(crate) fn leave_first(&mut self) {
        self.stand_still();
        let place = self.live().next().expect("an instance");
        let instance = self.instances[place].name.clone();
        self.tell("database", What::Draining { instance: instance.clone() });
        for partition in 0..256 {
            if self.database.owners[partition].0 == Some(place) {
                self.unclaim(partition);
            }
        }
        self.tell("database", What::Left { instance });
        self.instances[place].state = State::Gone;
        self.database.members += 1;
        self.share();
    }

    /// Ends all calls, and makes all known outcomes durable.
    fn stand_still(&mut self) {
        let benign = std::mem::replace(&mut self.benign, true);
        self.end_calls();
        self.settle_all();
        self.benign = benign;
    }

    pub(crate) fn crash(&mut self) {
        if self.live().count() < 2 {
            return;
        }
        let place = self.live().next().expect("an instance");
        let name = self.instances[place].name.clone();
        self.tell("test", What::FaultBegan { fault: "crash".to_owned(), instance: Some(name) });
        self.instances[place].calls.clear();
        self.evict(place);
    }

    /// An instance freezes for longer than its lease, and ends its calls after that.
    pub(crate) fn pause(&mut self) {
        if self.live().count() < 2 {
            return;
        }
        let place = self.live().next().expect("an instance");
        let name = self.instances[place].name.clone();
        let fault = || ("pause".to_owned(), Some(name.clone()));
        let (pause, instance) = fault();
        self.tell("test", What::FaultBegan { fault: pause, instance });
        let calls = std::mem::take(&mut self.instances[place].calls);
        self.evict(place);
        for _ in 0..6 {
            self.renew();
            self.begin_calls();
            self.end_calls();
        }
        self.settle_all();
        let (pause, instance) = fault();
        self.tell("test", What::FaultEnded { fault: pause, instance });
        for open in calls {
            let ends = open.ids.iter().map(|_| keylane_checker::End::Ok).collect();
            self.tell(&name, What::CallEnded { call: open.call, ends });
        }
    }

    /// An instance loses what it knew, and others get its partitions.
    fn evict(&mut self, place: usize) {
        self.now += 3 * LEASE / 2;
        self.instances[place].outcomes.clear();
        self.instances[place].state = State::Gone;
        self.tell("database", What::Evicted { instance: self.instances[place].name.clone() });
        self.database.members += 1;
        for owner in self.database.owners.iter_mut().filter(|(owner, _)| *owner == Some(place)) {
            owner.0 = None;
        }
        self.renew();
        // The other instances release nothing, so they may go on with their calls meanwhile.
        self.share();
    }

    /// Shares become equal, with as few moves as possible.
    fn share(&mut self) {
        let mut held: Vec<(usize, usize)> = (self.live())
            .map(|place| {
                (self.database.owners.iter().filter(|(owner, _)| *owner == Some(place)).count(), place)
            })
            .collect();
        if held.is_empty() {
            return;
        }
        held.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
        let (base, larger) = (256 / held.len(), 256 % held.len());
        let quota = |rank: usize| base + usize::from(rank < larger);
        for (rank, (count, place)) in held.iter().enumerate() {
            let mut over = count.saturating_sub(quota(rank));
            for partition in 0..256 {
                if over > 0 && self.database.owners[partition].0 == Some(*place) {
                    self.unclaim(partition);
                    over -= 1;
                }
            }
        }
        let takers = held.iter().enumerate().flat_map(|(rank, (count, place))| {
            std::iter::repeat_n(*place, quota(rank).saturating_sub(*count))
        });
        let mut takers = takers.collect::<Vec<_>>().into_iter();
        for partition in 0..256 {
            if self.database.owners[partition].0.is_none() {
                let taker = takers.next().expect("quotas add up");
                let generation = self.database.owners[partition].1 + 1;
                self.database.owners[partition] = (Some(taker), generation);
                let instance = self.instances[taker].name.clone();
                self.tell("database", What::Claimed { partition: partition as u16, instance, generation });
            }
        }
    }

    fn unclaim(&mut self, partition: usize) {
        let generation = self.database.owners[partition].1;
        self.database.owners[partition].0 = None;
        self.tell("database", What::Unclaimed { partition: partition as u16, generation });
    }

    /// Another server takes over. It lacks the last commits, except those of members: without them it would be another
    /// cluster. Instances that joined on the earlier server drop what they know and join again.
    pub(crate) fn fail_over(&mut self) {
        let Some((back_to, database)) = self.snapshot.take() else { return };
        if database.members != self.database.members {
            return;
        }
        self.tell("test", What::FailedOver { back_to });
        self.database = database;
        self.roll_back_all();
        let strangers: Vec<usize> = self.live().collect();
        for place in &strangers {
            let name = self.instances[*place].name.clone();
            for open in std::mem::take(&mut self.instances[*place].calls) {
                let ends = open.ids.iter().map(|_| keylane_checker::End::Dropped).collect();
                self.tell(&name, What::CallEnded { call: open.call, ends });
            }
            self.instances[*place].outcomes.clear();
            self.instances[*place].state = State::Gone;
            self.tell("database", What::Left { instance: name });
        }
        self.database.owners.iter_mut().for_each(|owner| owner.0 = None);
        strangers.iter().for_each(|_| self.join());
    }
}
