//! The assignment of partitions to instances.
//!
//! Properties, all tested: *total* (if any instance lives, every partition has an owner), *balanced* (shares
//! differ by at most one), *minimal* (a partition moves only for balance or after a death), *idempotent* (an
//! assignment assigned again does not change, nor does one that is carried out in part), and *the same for
//! every observer* of the same view, so that no leader is needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    instance::{Claim, InstanceId},
    partition::{PARTITION_COUNT, Partition, PartitionSet},
};

/// The wanted owner of each partition, by its number.
pub type Assignment = [Option<InstanceId>; PARTITION_COUNT];

/// The moves of one instance from the present claims to an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moves {
    /// Partitions to claim now: assigned to this instance, and free or owned by a dead instance.
    pub claim: PartitionSet,
    /// Partitions to drain and then release: owned by this instance and assigned to another.
    pub release: PartitionSet,
    /// Partitions to wait for: assigned to this instance, but held by a live instance.
    pub awaited: PartitionSet,
}

/// Assigns all partitions to the live instances, starting from the present claims.
///
/// Each instance keeps its partitions up to its share, the lowest numbers first. The other partitions go to
/// the instances below their share, in the order of their ids. If the shares cannot be equal, the larger
/// shares go first to the instances with more partitions than the smaller share, which makes the moves
/// minimal, and then to the others, both in the order of their ids. Further differences between the holdings
/// do not count: they change while the moves are carried out, and the assignment must not.
pub fn assign(live: &BTreeSet<InstanceId>, claims: &[Claim; PARTITION_COUNT]) -> Assignment {
    let mut assignment = [None; PARTITION_COUNT];
    if live.is_empty() {
        return assignment;
    }
    let mut capacity = shares(live, claims);
    for partition in Partition::all() {
        let owner = claims[partition.index()].owner;
        if let Some((owner, left)) = owner.and_then(|owner| Some((owner, capacity.get_mut(&owner)?)))
            && *left > 0
        {
            *left -= 1;
            assignment[partition.index()] = Some(owner);
        }
    }
    let mut takers = capacity.into_iter().flat_map(|(id, left)| std::iter::repeat_n(id, left));
    for slot in assignment.iter_mut().filter(|slot| slot.is_none()) {
        *slot = takers.next();
    }
    assignment
}

/// The number of partitions for each live instance. The sum is 256.
fn shares(live: &BTreeSet<InstanceId>, claims: &[Claim; PARTITION_COUNT]) -> BTreeMap<InstanceId, usize> {
    let mut held: BTreeMap<InstanceId, usize> = live.iter().map(|id| (*id, 0)).collect();
    for owner in claims.iter().filter_map(|claim| claim.owner) {
        if let Some(count) = held.get_mut(&owner) {
            *count += 1;
        }
    }
    let (base, larger) = (PARTITION_COUNT / live.len(), PARTITION_COUNT % live.len());
    let mut ranked: Vec<(InstanceId, usize)> = held.into_iter().collect();
    ranked.sort_by_key(|(id, count)| (*count <= base, *id));
    let shares = ranked.into_iter().enumerate();
    shares.map(|(rank, (id, _))| (id, base + usize::from(rank < larger))).collect()
}

/// The part of an assignment that `me` carries out.
///
/// `may_own` has the instances whose claims count: active and draining ones. A partition that any other
/// instance has claimed is free.
pub fn moves(
    me: InstanceId,
    assignment: &Assignment,
    may_own: &BTreeSet<InstanceId>,
    claims: &[Claim; PARTITION_COUNT],
) -> Moves {
    let mut moves = Moves::default();
    for partition in Partition::all() {
        let wanted = assignment[partition.index()] == Some(me);
        match claims[partition.index()].owner.filter(|owner| may_own.contains(owner)) {
            Some(owner) if owner == me && !wanted => moves.release.insert(partition),
            Some(owner) if owner != me && wanted => moves.awaited.insert(partition),
            None if wanted => moves.claim.insert(partition),
            _ => {}
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> InstanceId {
        InstanceId::from(Uuid::from_u128(number))
    }

    fn live(count: u128) -> BTreeSet<InstanceId> {
        (1..=count).map(id).collect()
    }

    fn claims(assignment: &Assignment) -> [Claim; PARTITION_COUNT] {
        assignment.map(|owner| Claim { owner, ..Claim::default() })
    }

    fn settled(count: u128) -> [Claim; PARTITION_COUNT] {
        claims(&assign(&live(count), &[Claim::default(); PARTITION_COUNT]))
    }

    fn moved(from: &[Claim; PARTITION_COUNT], to: &Assignment) -> usize {
        from.iter().zip(to).filter(|(claim, owner)| claim.owner != **owner).count()
    }

    #[test]
    fn a_fourth_instance_takes_exactly_sixty_four() {
        let three = settled(3);
        let four = assign(&live(4), &three);
        assert_eq!(moved(&three, &four), 64);
        assert_eq!(four.iter().filter(|owner| **owner == Some(id(4))).count(), 64);
    }

    #[test]
    fn a_death_moves_only_what_the_dead_held() {
        let four = settled(4);
        let three = assign(&[id(1), id(2), id(4)].into(), &four);
        assert_eq!(moved(&four, &three), 64);
    }

    #[test]
    fn with_nobody_alive_nobody_owns() {
        assert!(assign(&BTreeSet::new(), &settled(3)).iter().all(Option::is_none));
    }

    #[test]
    fn more_instances_than_partitions_leave_some_idle() {
        let crowd = settled(300);
        assert!(crowd.iter().all(|claim| claim.owner.is_some()));
    }

    #[test]
    fn moves_are_my_part_only() {
        let one = settled(1);
        let two = assign(&live(2), &one);
        let mine = moves(id(1), &two, &live(2), &one);
        let theirs = moves(id(2), &two, &live(2), &one);
        assert_eq!((mine.release.len(), mine.claim.len(), mine.awaited.len()), (128, 0, 0));
        assert_eq!((theirs.release.len(), theirs.claim.len(), theirs.awaited.len()), (0, 0, 128));
    }

    #[test]
    fn a_larger_share_stays_where_it_is() {
        // Of 256 partitions among three instances, one has 86. That instance need not be the first.
        let larger = |number: u128| {
            let mut claims = settled(3);
            let moved = claims.iter_mut().find(|claim| claim.owner == Some(id(1))).unwrap();
            moved.owner = Some(id(number));
            claims
        };
        for number in 1..=3 {
            assert_eq!(moved(&larger(number), &assign(&live(3), &larger(number))), 0, "of {number}");
        }
    }

    #[test]
    fn each_claims_and_releases_what_the_assignment_says() {
        let mut claims = settled(3);
        for claim in claims.iter_mut().filter(|claim| claim.owner == Some(id(3))) {
            claim.owner = None;
        }
        let (living, of) = (live(2), assign(&live(2), &claims));
        let moves_of = |me| moves(id(me), &of, &living, &claims);
        for me in [1, 2] {
            let wanted = |partition: &Partition| of[partition.index()] == Some(id(me));
            assert!(moves_of(me).claim.iter().all(|partition| wanted(&partition)), "of {me}");
            assert!(moves_of(me).release.is_empty() && moves_of(me).awaited.is_empty());
        }
        assert_eq!(moves_of(1).claim.len() + moves_of(2).claim.len(), 85);
        let (one, two) = (settled(1), assign(&live(2), &settled(1)));
        let released = moves(id(1), &two, &live(2), &one).release;
        assert!(released.iter().all(|partition| two[partition.index()] == Some(id(2))));
    }

    #[test]
    fn the_partitions_of_the_dead_are_free_to_claim() {
        let two = settled(2);
        let alone = assign(&live(1), &two);
        assert_eq!(moves(id(1), &alone, &live(1), &two).claim.len(), 128);
    }
}
