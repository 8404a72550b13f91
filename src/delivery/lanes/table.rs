//! The table of lanes. A lane has a place by number; its name is looked up once per record.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use slab::Slab;

use super::lane::LaneState;
use crate::{delivery::work::LaneId, partition::Partition, record::Lane};

/// All lanes in memory.
#[derive(Default)]
pub(super) struct LaneTable {
    /// The lanes by place. Added by `insert`, removed by `remove_if_idle`; the station changes what a place
    /// holds.
    places: Slab<LaneState>,
    /// The places by the hash of the name. Written together with `places`.
    by_name: HashTable<u32>,
    /// A random state per table, so that keys cannot be chosen to collide. Never changes.
    hasher: foldhash::fast::RandomState,
}

/// The name of a lane, borrowed.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) partition: Partition,
    pub(super) key: &'a str,
    pub(super) handler: &'a str,
}

impl<'a> From<&'a Lane> for Name<'a> {
    fn from(lane: &'a Lane) -> Self {
        Self { partition: lane.partition, key: &lane.key, handler: &lane.handler }
    }
}

impl Name<'_> {
    fn is_of(&self, lane: &Lane) -> bool {
        lane.partition == self.partition && *lane.key == *self.key && *lane.handler == *self.handler
    }
}

impl LaneTable {
    /// The hash of a name, for [`LaneTable::insert`], and the place of its lane if it has one.
    pub(super) fn find(&self, name: Name<'_>) -> (u64, Option<LaneId>) {
        let hash = self.hasher.hash_one((name.key, name.handler));
        let is_it =
            |place: &u32| self.places.get(*place as usize).is_some_and(|state| name.is_of(&state.name));
        (hash, self.by_name.find(hash, is_it).copied().map(LaneId))
    }

    pub(super) fn of(&self, lane: &Lane) -> Option<LaneId> {
        self.find(lane.into()).1
    }

    /// Gives a place to a lane that has none; `hash` is from [`LaneTable::find`].
    pub(super) fn insert(&mut self, hash: u64, lane: Lane) -> LaneId {
        let place = self.places.insert(LaneState::new(lane, hash)) as u32;
        let Self { places, by_name, .. } = self;
        let rehash = |place: &u32| places.get(*place as usize).map_or(0, |state| state.hash);
        by_name.insert_unique(hash, place, rehash);
        LaneId(place)
    }

    /// The place of a lane. A lane without a place gets a new one.
    pub(super) fn of_or_insert(&mut self, lane: &Lane) -> LaneId {
        match self.find(lane.into()) {
            (_, Some(place)) => place,
            (hash, None) => self.insert(hash, lane.clone()),
        }
    }

    pub(super) fn get(&self, lane: LaneId) -> Option<&LaneState> {
        self.places.get(lane.0 as usize)
    }

    pub(super) fn get_mut(&mut self, lane: LaneId) -> Option<&mut LaneState> {
        self.places.get_mut(lane.0 as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LaneId, &LaneState)> {
        self.places.iter().map(|(place, state)| (LaneId(place as u32), state))
    }

    /// Frees the place of an idle lane.
    pub(super) fn remove_if_idle(&mut self, lane: LaneId) {
        let Some(state) = self.places.get(lane.0 as usize).filter(|state| state.is_idle()) else { return };
        if let Ok(found) = self.by_name.find_entry(state.hash, |place| *place == lane.0) {
            found.remove();
        }
        self.places.remove(lane.0 as usize);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(key: &str, handler: &str) -> Lane {
        Lane { partition: Partition::of(key), key: key.into(), handler: handler.into() }
    }

    #[test]
    fn a_lane_keeps_its_place_until_it_is_idle() {
        let mut table = LaneTable::default();
        let (a, b) = (table.of_or_insert(&lane("a", "h")), table.of_or_insert(&lane("a", "i")));
        assert_ne!(a, b, "each handler has a lane of its own");
        assert_eq!(table.of_or_insert(&lane("a", "h")), a);
        table.get_mut(a).unwrap().writes = 1;
        table.remove_if_idle(a);
        table.remove_if_idle(b);
        assert_eq!(table.of(&lane("a", "h")), Some(a));
        assert_eq!((table.of(&lane("a", "i")), table.len(), table.by_name.len()), (None, 1, 1));
    }
}
