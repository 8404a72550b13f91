//! Claims: the owners of partitions, by compare-and-set on generations.

use std::collections::BTreeSet;

use keylane::{
    admin::{Generation, InstanceId},
    inner::Claim,
    partition::Partition,
};

use crate::{
    outbox::{Outbox, Worker, partition},
    target::Target,
};

async fn claim_of<T: Target>(outbox: &Outbox<T>, of: Partition) -> Claim {
    outbox.store.view().await.unwrap().claims[of.index()]
}

fn first_generation(numbers: impl IntoIterator<Item = i64>) -> Vec<(Partition, Generation)> {
    numbers.into_iter().map(|number| (partition(number), Generation(0))).collect()
}

async fn claim<T: Target>(
    outbox: &Outbox<T>,
    worker: &Worker,
    wanted: &[(Partition, Generation)],
) -> Vec<(Partition, Generation)> {
    let mut owned = outbox.store.claim(worker.id, wanted).await.unwrap();
    owned.sort_unstable();
    owned
}

pub(crate) async fn all_256_partitions_are_free_at_first<T: Target>(outbox: &Outbox<T>) {
    let claims = outbox.store.view().await.unwrap().claims;
    assert!(claims.iter().all(|claim| *claim == Claim::default()));
}

pub(crate) async fn a_claim_takes_free_partitions_and_counts_a_generation<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let owned = claim(outbox, &worker, &first_generation([0, 7, 255])).await;
    assert_eq!(owned, [0, 7, 255].map(|number| (partition(number), Generation(1))));
    assert_eq!(
        claim_of(outbox, partition(7)).await,
        Claim { owner: Some(worker.id), generation: Generation(1) }
    );
    assert_eq!(claim_of(outbox, partition(8)).await, Claim::default());
}

pub(crate) async fn a_claim_returns_all_that_is_owned<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    claim(outbox, &worker, &first_generation([3])).await;
    assert_eq!(claim(outbox, &worker, &first_generation([4])).await.len(), 2);
    assert_eq!(claim(outbox, &worker, &[]).await.len(), 2);
}

pub(crate) async fn two_that_race_for_all_get_disjoint_partitions<T: Target>(outbox: &Outbox<T>) {
    let (one, other) = (outbox.join().await, outbox.join().await);
    let second_store = outbox.store_that(keylane::Completed::Delete);
    let all = first_generation(0..256);
    let backwards: Vec<_> = all.iter().rev().copied().collect();
    let of_both = async {
        // The claims are made in parts, so that both instances get some.
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (forth, back) in all.chunks(32).zip(backwards.chunks(32)) {
            let claims = tokio::join!(claim(outbox, &one, forth), second_store.claim(other.id, back));
            (first, second) = (claims.0, claims.1.unwrap());
        }
        (first, second)
    };
    let (first, second) = of_both.await;
    let mut partitions: BTreeSet<Partition> = first.iter().map(|(partition, _)| *partition).collect();
    partitions.extend(second.iter().map(|(partition, _)| *partition));
    assert_eq!(first.len() + second.len(), 256, "a partition has two owners or none");
    assert_eq!(partitions.len(), 256);
    assert!(first.iter().chain(&second).all(|(_, generation)| *generation == Generation(1)));
    assert!(!first.is_empty() && !second.is_empty());
}

pub(crate) async fn two_that_race_for_the_same_part_of_a_dead_owner_do_not_share<T: Target>(
    outbox: &Outbox<T>,
) {
    let dead = outbox.join().await;
    let left = claim(outbox, &dead, &first_generation(0..256)).await;
    outbox.store.evict(dead.id, None).await.unwrap();
    let (one, other) = (outbox.join().await, outbox.join().await);
    let second_store = outbox.store_that(keylane::Completed::Delete);
    let (first, second) = tokio::join!(claim(outbox, &one, &left), second_store.claim(other.id, &left));
    let second = second.unwrap();
    assert_eq!(first.len() + second.len(), 256);
    assert!(first.iter().chain(&second).all(|(_, generation)| *generation == Generation(2)));
}

pub(crate) async fn a_claim_with_a_stale_generation_is_refused<T: Target>(outbox: &Outbox<T>) {
    let (one, other) = (outbox.join().await, outbox.join().await);
    claim(outbox, &one, &first_generation([5])).await;
    outbox.store.release(one.id, &[(partition(5), Generation(1))]).await.unwrap();
    assert!(claim(outbox, &other, &first_generation([5])).await.is_empty());
    assert!(claim(outbox, &other, &[(partition(5), Generation(2))]).await.is_empty());
    assert_eq!(
        claim(outbox, &other, &[(partition(5), Generation(1))]).await,
        [(partition(5), Generation(2))]
    );
}

pub(crate) async fn a_claim_of_a_live_owners_partition_is_refused<T: Target>(outbox: &Outbox<T>) {
    let (one, other) = (outbox.join().await, outbox.join().await);
    claim(outbox, &one, &first_generation([5])).await;
    assert!(claim(outbox, &other, &[(partition(5), Generation(1))]).await.is_empty());
    outbox.store.drain(one.id).await.unwrap();
    assert!(claim(outbox, &other, &[(partition(5), Generation(1))]).await.is_empty(), "draining is alive");
    assert_eq!(claim_of(outbox, partition(5)).await.owner, Some(one.id));
}

pub(crate) async fn a_claim_of_what_one_owns_already_counts_no_generation<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let owned = claim(outbox, &worker, &first_generation([5])).await;
    assert_eq!(claim(outbox, &worker, &owned).await, owned);
}

pub(crate) async fn a_claim_from_a_dead_owner_counts_a_generation<T: Target>(outbox: &Outbox<T>) {
    let (dead, heir) = (outbox.join().await, outbox.join().await);
    let left = claim(outbox, &dead, &first_generation([5, 6])).await;
    outbox.store.evict(dead.id, Some(0)).await.unwrap();
    assert_eq!(
        claim_of(outbox, partition(5)).await.owner,
        Some(dead.id),
        "the row stays until it is claimed"
    );
    let owned = claim(outbox, &heir, &left).await;
    assert_eq!(owned, [5, 6].map(|number| (partition(number), Generation(2))));
}

pub(crate) async fn a_claim_after_an_owner_left_counts_a_generation<T: Target>(outbox: &Outbox<T>) {
    let (gone, heir) = (outbox.join().await, outbox.join().await);
    claim(outbox, &gone, &first_generation([5])).await;
    outbox.store.leave(gone.id).await.unwrap();
    assert_eq!(claim_of(outbox, partition(5)).await, Claim { owner: None, generation: Generation(1) });
    assert_eq!(claim(outbox, &heir, &[(partition(5), Generation(1))]).await, [(partition(5), Generation(2))]);
}

pub(crate) async fn only_active_members_may_claim<T: Target>(outbox: &Outbox<T>) {
    let [draining, dead, gone] = [outbox.join().await, outbox.join().await, outbox.join().await];
    outbox.store.drain(draining.id).await.unwrap();
    outbox.store.evict(dead.id, None).await.unwrap();
    outbox.store.leave(gone.id).await.unwrap();
    let wanted = first_generation(0..256);
    for worker in [draining.id, dead.id, gone.id, InstanceId::generate()] {
        assert!(outbox.store.claim(worker, &wanted).await.unwrap().is_empty());
    }
    assert_eq!(claim_of(outbox, partition(0)).await, Claim::default());
}

pub(crate) async fn a_draining_member_keeps_what_it_owns<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let owned = claim(outbox, &worker, &first_generation([1, 2])).await;
    outbox.store.drain(worker.id).await.unwrap();
    assert_eq!(claim(outbox, &worker, &[]).await, owned);
}

pub(crate) async fn a_release_frees_only_what_is_named<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let owned = claim(outbox, &worker, &first_generation([1, 2, 3])).await;
    let named = [owned[0], owned[2], (partition(9), Generation(1))];
    assert_eq!(outbox.store.release(worker.id, &named).await.unwrap(), 2);
    assert_eq!(claim(outbox, &worker, &[]).await, [(partition(2), Generation(1))]);
    assert_eq!(claim_of(outbox, partition(1)).await, Claim { owner: None, generation: Generation(1) });
}

pub(crate) async fn a_release_by_another_frees_nothing<T: Target>(outbox: &Outbox<T>) {
    let (owner, other) = (outbox.join().await, outbox.join().await);
    let owned = claim(outbox, &owner, &first_generation([1])).await;
    assert_eq!(outbox.store.release(other.id, &owned).await.unwrap(), 0);
    assert_eq!(claim_of(outbox, partition(1)).await.owner, Some(owner.id));
}

pub(crate) async fn a_late_release_does_not_free_the_next_owners_partition<T: Target>(outbox: &Outbox<T>) {
    let (dead, heir) = (outbox.join().await, outbox.join().await);
    let left = claim(outbox, &dead, &first_generation([1])).await;
    outbox.store.evict(dead.id, None).await.unwrap();
    claim(outbox, &heir, &left).await;
    assert_eq!(outbox.store.release(dead.id, &left).await.unwrap(), 0);
    outbox.store.leave(dead.id).await.unwrap();
    assert_eq!(claim_of(outbox, partition(1)).await.owner, Some(heir.id));
}

pub(crate) async fn a_late_release_does_not_free_what_was_claimed_again<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let first = claim(outbox, &worker, &first_generation([1])).await;
    assert_eq!(outbox.store.release(worker.id, &first).await.unwrap(), 1);
    let second = claim(outbox, &worker, &first).await;
    assert_eq!(second, [(partition(1), Generation(2))]);
    assert_eq!(outbox.store.release(worker.id, &first).await.unwrap(), 0);
    assert_eq!(claim(outbox, &worker, &[]).await, second);
}

pub(crate) async fn leaving_frees_everything<T: Target>(outbox: &Outbox<T>) {
    let (worker, other) = (outbox.join().await, outbox.join().await);
    claim(outbox, &worker, &first_generation(0..200)).await;
    claim(outbox, &other, &first_generation(200..256)).await;
    outbox.store.leave(worker.id).await.unwrap();
    let claims = outbox.store.view().await.unwrap().claims;
    assert_eq!(claims.iter().filter(|claim| claim.owner.is_none()).count(), 200);
    assert_eq!(claims.iter().filter(|claim| claim.owner == Some(other.id)).count(), 56);
}
