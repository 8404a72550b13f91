//! Instances: joining, heartbeats, eviction, leaving.

use std::time::Duration;

use keylane::{
    admin::{Generation, InstanceId, InstanceState},
    database::ErrorClass,
    handler::Route,
    inner::{Change, FenceRow, Member, NewInstance, Pick, Resolution, SettleError},
    partition::PartitionSet,
};

use crate::{
    outbox::{Outbox, Worker},
    target::Target,
};

async fn members<T: Target>(outbox: &Outbox<T>) -> Vec<Member> {
    outbox.store.view().await.unwrap().members
}

async fn beat_of<T: Target>(outbox: &Outbox<T>, worker: &Worker) -> i64 {
    members(outbox).await.iter().find(|member| member.id == worker.id).expect("a live member").beat
}

pub(crate) async fn join_makes_an_active_member<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    assert_eq!(members(outbox).await, [Member { id: worker.id, state: InstanceState::Active, beat: 0 }]);
}

pub(crate) async fn join_under_a_known_identity_is_refused<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let again = NewInstance { id: worker.id, name: "x".to_owned(), version: "x".to_owned(), fence_rows: 1 };
    let refused = outbox.store.join(&again).await.unwrap_err();
    assert_eq!(refused.class, ErrorClass::Duplicate);
    assert_eq!(members(outbox).await.len(), 1);
    assert!(outbox.store.beat(worker.id).await.unwrap().is_some());
}

pub(crate) async fn a_dead_identity_cannot_join_again<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    assert!(outbox.store.evict(worker.id, None).await.unwrap());
    let again = NewInstance { id: worker.id, name: "x".to_owned(), version: "x".to_owned(), fence_rows: 2 };
    assert!(outbox.store.join(&again).await.is_err());
    assert_eq!(outbox.store.resolve(worker.fence()).await.unwrap(), Resolution::Closed);
}

pub(crate) async fn a_beat_moves_only_its_own_counter<T: Target>(outbox: &Outbox<T>) {
    let (one, other) = (outbox.join().await, outbox.join().await);
    for beat in 1..=3 {
        assert!(outbox.store.beat(one.id).await.unwrap().is_some());
        assert_eq!(beat_of(outbox, &one).await, beat);
    }
    assert_eq!(beat_of(outbox, &other).await, 0);
}

pub(crate) async fn a_beat_of_a_stranger_is_refused<T: Target>(outbox: &Outbox<T>) {
    assert!(outbox.store.beat(InstanceId::generate()).await.unwrap().is_none());
}

pub(crate) async fn a_draining_member_still_beats<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    outbox.store.drain(worker.id).await.unwrap();
    assert!(outbox.store.beat(worker.id).await.unwrap().is_some());
    let state = InstanceState::Draining;
    assert_eq!(members(outbox).await, [Member { id: worker.id, state, beat: 1 }]);
}

pub(crate) async fn draining_brings_nobody_back_to_life<T: Target>(outbox: &Outbox<T>) {
    let (dead, gone) = (outbox.join().await, outbox.join().await);
    outbox.store.evict(dead.id, None).await.unwrap();
    outbox.store.leave(gone.id).await.unwrap();
    for worker in [dead, gone] {
        outbox.store.drain(worker.id).await.unwrap();
        assert!(outbox.store.beat(worker.id).await.unwrap().is_none());
    }
    assert!(members(outbox).await.is_empty());
}

pub(crate) async fn evict_succeeds_with_the_beat_that_was_seen<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    outbox.store.beat(worker.id).await.unwrap();
    let seen = beat_of(outbox, &worker).await;
    assert!(outbox.store.evict(worker.id, Some(seen)).await.unwrap());
    assert!(members(outbox).await.is_empty());
}

pub(crate) async fn evict_is_refused_when_the_beat_has_moved<T: Target>(outbox: &Outbox<T>) {
    let mut worker = outbox.join().await;
    let seen = beat_of(outbox, &worker).await;
    outbox.store.beat(worker.id).await.unwrap();
    assert!(!outbox.store.evict(worker.id, Some(seen)).await.unwrap());
    assert!(outbox.store.beat(worker.id).await.unwrap().is_some());
    worker.settle([]).await;
}

pub(crate) async fn evict_without_a_beat_ends_one_that_beats<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    outbox.store.beat(worker.id).await.unwrap();
    assert!(outbox.store.evict(worker.id, None).await.unwrap());
    assert!(outbox.store.beat(worker.id).await.unwrap().is_none());
}

pub(crate) async fn evict_succeeds_once<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    let (one, other) =
        tokio::join!(outbox.store.evict(worker.id, Some(0)), outbox.store.evict(worker.id, Some(0)));
    assert!(one.unwrap() ^ other.unwrap(), "exactly one of two evictors succeeds");
    assert!(!outbox.store.evict(worker.id, Some(0)).await.unwrap());
    assert!(!outbox.store.evict(worker.id, None).await.unwrap());
}

pub(crate) async fn evict_of_a_stranger_or_of_one_that_left_is_refused<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    outbox.store.leave(worker.id).await.unwrap();
    assert!(!outbox.store.evict(worker.id, None).await.unwrap());
    assert!(!outbox.store.evict(InstanceId::generate(), None).await.unwrap());
}

pub(crate) async fn evict_closes_all_fence_rows_of_that_instance_only<T: Target>(outbox: &Outbox<T>) {
    let (evicted, mut other) = (outbox.join().await, outbox.join().await);
    outbox.store.evict(evicted.id, None).await.unwrap();
    for slot in 0..2 {
        let fence = FenceRow { slot, ..evicted.fence() };
        let refused = outbox.store.settle(fence, &[]).await;
        assert!(matches!(refused, Err(SettleError::Fenced)), "slot {slot}");
        assert_eq!(outbox.store.resolve(fence).await.unwrap(), Resolution::Closed);
        let fence = FenceRow { slot, ..other.fence() };
        assert_eq!(outbox.store.resolve(fence).await.unwrap(), Resolution::NotApplied);
    }
    other.counter = other.fence().invalidated().counter;
    other.settle([]).await;
}

pub(crate) async fn a_draining_member_can_be_evicted<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    outbox.store.drain(worker.id).await.unwrap();
    assert!(outbox.store.evict(worker.id, Some(0)).await.unwrap());
    assert!(outbox.store.beat(worker.id).await.unwrap().is_none());
}

pub(crate) async fn leave_ends_beats_and_closes_fence_rows<T: Target>(outbox: &Outbox<T>) {
    let (worker, other) = (outbox.join().await, outbox.join().await);
    outbox.store.leave(worker.id).await.unwrap();
    assert!(outbox.store.beat(worker.id).await.unwrap().is_none());
    assert_eq!(outbox.store.resolve(worker.fence()).await.unwrap(), Resolution::Closed);
    assert_eq!(outbox.store.resolve(other.fence()).await.unwrap(), Resolution::NotApplied);
    assert_eq!(members(outbox).await.len(), 1);
}

pub(crate) async fn an_evicted_instance_that_leaves_stays_fenced<T: Target>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let worker = outbox.join().await;
    outbox.store.evict(worker.id, None).await.unwrap();
    outbox.store.leave(worker.id).await.unwrap();
    let late = [crate::outbox::settlement((id, 0, Change::Complete))];
    assert!(matches!(outbox.store.settle(worker.fence(), &late).await, Err(SettleError::Fenced)));
    assert_eq!(outbox.pending().await.len(), 1);
}

pub(crate) async fn purge_takes_the_gone_and_keeps_the_living<T: Target>(outbox: &Outbox<T>) {
    let [alive, draining, dead, gone] =
        [outbox.join().await, outbox.join().await, outbox.join().await, outbox.join().await];
    outbox.store.drain(draining.id).await.unwrap();
    outbox.store.evict(dead.id, None).await.unwrap();
    outbox.store.leave(gone.id).await.unwrap();
    assert_eq!(
        outbox.store.purge_instances(Duration::from_secs(3600)).await.unwrap(),
        0,
        "not silent for an hour"
    );
    crate::outbox::a_moment().await;
    assert_eq!(outbox.store.purge_instances(Duration::from_millis(10)).await.unwrap(), 2);
    assert_eq!(outbox.store.purge_instances(Duration::from_millis(10)).await.unwrap(), 0);
    assert_eq!(members(outbox).await.len(), 2);
    for (worker, fate) in [
        (&alive, Resolution::NotApplied),
        (&draining, Resolution::NotApplied),
        (&dead, Resolution::Closed),
        (&gone, Resolution::Closed),
    ] {
        assert_eq!(outbox.store.resolve(worker.fence()).await.unwrap(), fate);
    }
}

pub(crate) async fn purge_keeps_the_dead_that_still_own_something<T: Target>(outbox: &Outbox<T>) {
    let (dead, heir) = (outbox.join().await, outbox.join().await);
    let first = crate::outbox::partition(0);
    let owned = outbox.store.claim(dead.id, &[(first, keylane::admin::Generation(0))]).await.unwrap();
    outbox.store.evict(dead.id, None).await.unwrap();
    crate::outbox::a_moment().await;
    assert_eq!(outbox.store.purge_instances(Duration::from_millis(1)).await.unwrap(), 0);
    outbox.store.claim(heir.id, &owned).await.unwrap();
    assert_eq!(outbox.store.purge_instances(Duration::from_millis(1)).await.unwrap(), 1);
}

pub(crate) async fn the_heartbeats_store_is_the_same_database<T: Target>(outbox: &Outbox<T>) {
    let worker = outbox.join().await;
    assert!(outbox.store.for_heartbeat().beat(worker.id).await.unwrap().is_some());
    assert_eq!(beat_of(outbox, &worker).await, 1);
}

pub(crate) async fn a_beat_brings_the_view<T: Target>(outbox: &Outbox<T>) {
    let (one, other) = (outbox.join().await, outbox.join().await);
    let partition = keylane::partition::Partition::of("order-1");
    let claimed = outbox.store.claim(other.id, &[(partition, Generation::default())]).await.unwrap();
    assert_eq!(claimed, [(partition, Generation(1))]);
    let brought = outbox.store.beat(one.id).await.unwrap().unwrap();
    let view = outbox.store.view().await.unwrap();
    assert_eq!(brought.claims, view.claims);
    let others =
        |members: &[Member]| members.iter().filter(|member| member.id != one.id).cloned().collect::<Vec<_>>();
    assert_eq!(others(&brought.members), others(&view.members));
    assert_eq!((brought.members.len(), view.members.len()), (2, 2));
}

/// Each change after which another instance may claim or release is counted, and polls read the count.
pub(crate) async fn changes_of_the_cluster_are_counted<T: Target>(outbox: &Outbox<T>) {
    let count = async || outbox.store.fetch_due(PartitionSet::ALL, Pick::new(&[], 1)).await.unwrap().1;
    let mut last = count().await;
    let mut has_moved = async |what: &str| {
        let now = count().await;
        assert!(now > last, "{what}: {now} after {last}");
        last = now;
    };
    let (one, other) = (outbox.join().await, outbox.join().await);
    has_moved("join").await;
    let partition = keylane::partition::Partition::of("order-1");
    let claims = outbox.store.claim(one.id, &[(partition, Generation::default())]).await.unwrap();
    outbox.store.release(one.id, &claims).await.unwrap();
    has_moved("release").await;
    outbox.store.drain(one.id).await.unwrap();
    has_moved("drain").await;
    outbox.store.leave(one.id).await.unwrap();
    has_moved("leave").await;
    outbox.store.evict(other.id, None).await.unwrap();
    has_moved("evict").await;
    let route = Route { record_type: "order.placed".to_owned(), handler: "bookkeeper".to_owned() };
    outbox.store.publish_routes(&[route]).await.unwrap();
    has_moved("publish").await;
    outbox.store.retire_handler("bookkeeper").await.unwrap();
    has_moved("retire").await;
}
