//! The assignment of partitions is total, balanced, minimal, idempotent, and the same for every observer.

use std::collections::{BTreeMap, BTreeSet};

use keylane::{
    admin::{Generation, InstanceId},
    inner::Claim,
    partition::{PARTITION_COUNT, Partition, PartitionSet},
    rules::assignment::{Assignment, Moves, assign, moves},
};
use proptest::{collection::vec, prelude::*};
use uuid::Uuid;

type Claims = [Claim; PARTITION_COUNT];

/// A cluster at any moment: living and draining instances, and claims of these and of dead ones.
#[derive(Clone, Debug)]
struct Cluster {
    active: BTreeSet<InstanceId>,
    draining: BTreeSet<InstanceId>,
    claims: Claims,
}

impl Cluster {
    fn may_own(&self) -> BTreeSet<InstanceId> {
        self.active.union(&self.draining).copied().collect()
    }

    fn assignment(&self) -> Assignment {
        assign(&self.active, &self.claims)
    }

    fn owner(&self, partition: Partition) -> Option<InstanceId> {
        self.claims[partition.index()].owner
    }
}

pub(crate) fn id(number: usize) -> InstanceId {
    InstanceId::from(Uuid::from_u128(number as u128 + 1))
}

/// Up to 20 instances, seldom more than there are partitions. At least `least` of them are active.
fn cluster(least: usize) -> impl Strategy<Value = Cluster> {
    let size = prop_oneof![9 => least..=20, 1 => 250..=300_usize];
    size.prop_flat_map(|active| (Just(active), 0..4_usize, 0..4_usize)).prop_flat_map(
        |(active, draining, dead)| {
            // Some instances, living or dead, have claimed far more than others.
            let weights = vec(0..100_u32, active + draining + dead + 1);
            let owners = vec(any::<u32>(), PARTITION_COUNT);
            (weights, owners, vec(0..9_i64, PARTITION_COUNT)).prop_map(
                move |(weights, owners, generations)| {
                    let mut claims = [Claim::default(); PARTITION_COUNT];
                    for (claim, (owner, generation)) in claims.iter_mut().zip(owners.iter().zip(generations))
                    {
                        let owner = pick(&weights, *owner);
                        claim.owner = (owner < active + draining + dead).then(|| id(owner));
                        claim.generation = Generation(generation);
                    }
                    let draining = (active..active + draining).map(id).collect();
                    Cluster { active: (0..active).map(id).collect(), draining, claims }
                },
            )
        },
    )
}

fn pick(weights: &[u32], at: u32) -> usize {
    let total: u32 = weights.iter().sum::<u32>().max(1);
    let mut rest = at % total;
    weights.iter().position(|weight| rest.checked_sub(*weight).map(|less| rest = less).is_none()).unwrap_or(0)
}

fn held(
    owners: impl Iterator<Item = Option<InstanceId>>,
    by: &BTreeSet<InstanceId>,
) -> BTreeMap<InstanceId, usize> {
    let mut held: BTreeMap<InstanceId, usize> = by.iter().map(|id| (*id, 0)).collect();
    owners.flatten().for_each(|owner| {
        held.entry(owner).and_modify(|count| *count += 1);
    });
    held
}

fn union(sets: impl Iterator<Item = PartitionSet>) -> PartitionSet {
    sets.flat_map(|set| set.iter().collect::<Vec<_>>()).collect()
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn every_partition_has_a_living_owner(cluster in cluster(1)) {
        for owner in cluster.assignment() {
            prop_assert!(owner.is_some_and(|owner| cluster.active.contains(&owner)), "{owner:?}");
        }
    }

    #[test]
    fn nobody_owns_when_nobody_lives(cluster in cluster(0)) {
        let owners = assign(&BTreeSet::new(), &cluster.claims);
        prop_assert!(owners.iter().all(Option::is_none));
    }

    #[test]
    fn shares_differ_by_at_most_one(cluster in cluster(1)) {
        let shares = held(cluster.assignment().into_iter(), &cluster.active);
        let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
        prop_assert!(most - least <= 1, "shares from {least} to {most}");
    }

    /// Members release and claim one partition after the other, and read the claims in between.
    #[test]
    fn an_assignment_that_is_carried_out_in_part_does_not_change(
        (cluster, steps) in (cluster(1), vec(0..3_u8, PARTITION_COUNT)),
    ) {
        let assignment = cluster.assignment();
        let mut claims = cluster.claims;
        for ((claim, wanted), steps) in claims.iter_mut().zip(assignment).zip(steps) {
            if claim.owner != wanted && steps > 0 {
                claim.owner = wanted.filter(|_| steps > 1);
            }
        }
        prop_assert_eq!(assign(&cluster.active, &claims), assignment);
    }

    /// No partition moves without need: each instance keeps its partitions up to its share, and the larger
    /// shares go to instances that have as many, as far as there are such.
    #[test]
    fn no_partition_moves_without_need(cluster in cluster(1)) {
        let holdings = held(cluster.claims.iter().map(|claim| claim.owner), &cluster.active);
        let (base, larger) = (PARTITION_COUNT / holdings.len(), PARTITION_COUNT % holdings.len());
        let within: usize = holdings.values().map(|held| *held.min(&base)).sum();
        let above = holdings.values().filter(|held| **held > base).count();
        let can_stay = within + above.min(larger);

        let assignment = cluster.assignment();
        let stays = Partition::all().filter(|p| cluster.owner(*p) == assignment[p.index()]).count();
        prop_assert_eq!(stays, can_stay);
    }

    #[test]
    fn an_assignment_assigned_again_is_the_same(cluster in cluster(0)) {
        let assignment = cluster.assignment();
        let claims = assignment.map(|owner| Claim { owner, ..Claim::default() });
        prop_assert_eq!(assign(&cluster.active, &claims), assignment);
    }

    /// Observers may have read different generations, and may know different dead instances.
    #[test]
    fn every_observer_comes_to_the_same(cluster in cluster(1), shift in 1..9_i64, stranger in 1000..2000_usize) {
        let may_own = cluster.may_own();
        let seen = cluster.claims.map(|claim| Claim {
            generation: Generation(claim.generation.0 + shift),
            owner: claim.owner.map(|owner| if may_own.contains(&owner) { owner } else { id(stranger) }),
        });
        prop_assert_eq!(assign(&cluster.active, &seen), cluster.assignment());
    }

    /// Each partition is where it should be, or exactly one instance claims it, or exactly one instance
    /// waits for it while exactly one releases it.
    #[test]
    fn the_moves_of_all_fit_together(cluster in cluster(1)) {
        let (assignment, may_own) = (cluster.assignment(), cluster.may_own());
        let all: Vec<(InstanceId, Moves)> =
            may_own.iter().map(|me| (*me, moves(*me, &assignment, &may_own, &cluster.claims))).collect();
        for p in Partition::all() {
            let who = |set: fn(&Moves) -> &PartitionSet| -> Vec<InstanceId> {
                all.iter().filter(|(_, moves)| set(moves).contains(p)).map(|(id, _)| *id).collect()
            };
            let (claim, release, awaited) = (who(|m| &m.claim), who(|m| &m.release), who(|m| &m.awaited));
            let wanted: Vec<InstanceId> = assignment[p.index()].into_iter().collect();
            let owner: Vec<InstanceId> = cluster.owner(p).filter(|owner| may_own.contains(owner)).into_iter().collect();
            let expected = match (owner.as_slice(), owner == wanted) {
                (_, true) => (vec![], vec![], vec![]),
                ([], false) => (wanted, vec![], vec![]),
                (_, false) => (vec![], owner, wanted),
            };
            prop_assert_eq!((claim, release, awaited), expected, "partition {}", p);
        }
        let released = union(all.iter().map(|(_, moves)| moves.release));
        prop_assert_eq!(released, union(all.iter().map(|(_, moves)| moves.awaited)));
    }
}
