//! The assignment of partitions is total, balanced, minimal, idempotent, and the same for every observer.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Result, Unstructured};
use keylane::{
    admin::{Generation, InstanceId},
    inner::Claim,
    partition::{PARTITION_COUNT, Partition},
    rules::assignment::{Assignment, assign, moves},
};
use uuid::Uuid;

type Claims = [Claim; PARTITION_COUNT];

pub(crate) fn run(data: &[u8]) {
    // An input that is too short is no case.
    let _ = check(&mut Unstructured::new(data));
}

fn check(input: &mut Unstructured<'_>) -> Result<()> {
    // There are seldom more instances than partitions.
    let most = if input.ratio(1, 8)? { 300 } else { 12 };
    let (active, others) = (input.int_in_range(0..=most)?, input.int_in_range(0..=6)?);
    let live: BTreeSet<InstanceId> = (0..active).map(id).collect();
    let may_own: BTreeSet<InstanceId> = (0..active + others / 2).map(id).collect();
    let mut claims = [Claim::default(); PARTITION_COUNT];
    let mut owner = None;
    for claim in &mut claims {
        // Each owner has a run of partitions, as in a cluster, or each partition has an owner of its own. Missing bytes
        // at the end count as 0.
        if !input.ratio(3, 4)? {
            let number = input.arbitrary::<u16>()? as usize % (active + others + 1);
            owner = (number < active + others).then(|| id(number));
        }
        (claim.owner, claim.generation) = (owner, Generation(input.arbitrary::<u8>()?.into()));
    }
    let assignment = assign(&live, &claims);
    is_fair(&live, &claims, &assignment);
    is_settled(&live, &may_own, &claims, &assignment);
    // Only some instances: all follow the same rule, and the tests of the rules check the moves of all together.
    for me in may_own.iter().step_by(may_own.len() / 4 + 1) {
        is_mine(*me, &may_own, &claims, &assignment);
    }
    Ok(())
}

fn id(number: usize) -> InstanceId {
    InstanceId::from(Uuid::from_u128(number as u128 + 1))
}

/// The assignment is total and balanced, and no partition moves that could stay.
fn is_fair(live: &BTreeSet<InstanceId>, claims: &Claims, assignment: &Assignment) {
    if live.is_empty() {
        assert!(assignment.iter().all(Option::is_none));
        return;
    }
    let mut shares: BTreeMap<InstanceId, usize> = live.iter().map(|id| (*id, 0)).collect();
    let mut held = shares.clone();
    for owner in assignment {
        let owner = owner.expect("every partition has an owner");
        *shares.get_mut(&owner).expect("who lives") += 1;
    }
    let (least, most) = (PARTITION_COUNT / live.len(), PARTITION_COUNT.div_ceil(live.len()));
    assert!(shares.values().all(|share| (least..=most).contains(share)), "{shares:?}");

    claims.iter().filter_map(|claim| claim.owner).for_each(|owner| {
        held.entry(owner).and_modify(|count| *count += 1);
    });
    let larger = PARTITION_COUNT % live.len();
    let within: usize = held.values().map(|count| *count.min(&least)).sum();
    let above = held.values().filter(|count| **count > least).count();
    let stays = claims.iter().zip(assignment).filter(|(claim, wanted)| claim.owner == **wanted).count();
    assert_eq!(stays, within + above.min(larger), "{held:?}");
}

/// A second assignment changes nothing. An observer with other dead instances and other generations finds the same.
fn is_settled(
    live: &BTreeSet<InstanceId>,
    may_own: &BTreeSet<InstanceId>,
    claims: &Claims,
    assignment: &Assignment,
) {
    assert_eq!(&assign(live, &assignment.map(|owner| Claim { owner, ..Claim::default() })), assignment);
    let seen = claims.map(|claim| Claim {
        owner: claim.owner.filter(|owner| may_own.contains(owner)),
        ..Claim::default()
    });
    assert_eq!(&assign(live, &seen), assignment);
}

/// Of the partitions that are assigned to it, an instance claims the free ones and waits for the others. It releases
/// the partitions that are assigned to other instances.
fn is_mine(me: InstanceId, may_own: &BTreeSet<InstanceId>, claims: &Claims, assignment: &Assignment) {
    let moves = moves(me, assignment, may_own, claims);
    for partition in Partition::all() {
        let owner = claims[partition.index()].owner.filter(|owner| may_own.contains(owner));
        let wanted = assignment[partition.index()] == Some(me);
        let expected = (
            wanted && owner.is_none(),
            !wanted && owner == Some(me),
            wanted && owner.is_some_and(|owner| owner != me),
        );
        let found = (
            moves.claim.contains(partition),
            moves.release.contains(partition),
            moves.awaited.contains(partition),
        );
        assert_eq!(found, expected, "{partition}");
    }
}
