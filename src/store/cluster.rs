//! The calls of the cluster wing: members and claims.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::{
    instance::{ClusterView, Generation, InstanceId},
    partition::Partition,
    rules::horizon::Server,
};

/// The calls of the cluster wing. Each call after which others may claim or release a partition (all but
/// beats, views and claims) moves the count of the cluster's changes on.
#[async_trait]
#[doc(hidden)]
pub trait ClusterStore: Send + Sync + 'static {
    /// The server that answers.
    async fn server(&self) -> Result<Server, StoreError>;
    /// Writes the instance row and its fence rows (counters at 0).
    async fn join(&self, instance: &NewInstance) -> Result<(), StoreError>;
    /// Moves the beat counter on and returns the view, which may show the beat before this one. `None` if
    /// this instance has been evicted.
    async fn beat(&self, me: InstanceId) -> Result<Option<ClusterView>, StoreError>;
    /// All live members and all claims.
    async fn view(&self) -> Result<ClusterView, StoreError>;
    /// Declares a live instance dead and closes its fence rows, in one transaction. If `beat` is given, the
    /// instance is evicted only if its beat counter still has this value, and the eviction counts as a crash.
    /// Returns whether the instance was evicted.
    async fn evict(&self, id: InstanceId, beat: Option<i64>) -> Result<bool, StoreError>;
    /// Claims partitions by compare-and-set on their generation: only free partitions and those of dead or
    /// stopped owners. Returns all partitions that `me` owns afterwards.
    async fn claim(
        &self,
        me: InstanceId,
        wanted: &[(Partition, Generation)],
    ) -> Result<Vec<(Partition, Generation)>, StoreError>;
    /// Releases partitions, each only in the generation of its claim: a late release must not free a
    /// partition that was claimed again meanwhile. Returns the number of freed partitions.
    async fn release(&self, me: InstanceId, claims: &[(Partition, Generation)]) -> Result<usize, StoreError>;
    /// Turns an active instance into a draining one. Returns whether the instance was active.
    async fn drain(&self, id: InstanceId) -> Result<bool, StoreError>;
    /// Leaves the cluster: closes the fence rows, frees the partitions still owned, and sets the state to
    /// STOPPED.
    async fn leave(&self, me: InstanceId) -> Result<(), StoreError>;
    /// Deletes rows of stopped and dead instances that own nothing and have been silent for `silent_for`, at
    /// most some thousands. Returns the number of deleted instances.
    async fn purge_instances(&self, silent_for: Duration) -> Result<usize, StoreError>;
}

/// A process that joins.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct NewInstance {
    /// A new id per start.
    pub id: InstanceId,
    /// A name for people, such as `service-7f`.
    pub name: String,
    /// The version of the library.
    pub version: String,
    /// The number of fence rows that the instance needs.
    pub fence_rows: u32,
}
