//! What the cluster wing may do: members and claims.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::{
    instance::{ClusterView, Generation, InstanceId},
    partition::Partition,
    rules::watermark::Server,
};

/// What the cluster wing may do. Whatever lets others claim or release something (all but beats, views
/// and claims) moves the count of the cluster's changes on.
#[async_trait]
#[doc(hidden)]
pub trait ClusterStore: Send + Sync + 'static {
    /// Which server answers.
    async fn server(&self) -> Result<Server, StoreError>;
    /// Writes the instance row and its fence rows (counters at 0).
    async fn join(&self, instance: &NewInstance) -> Result<(), StoreError>;
    /// Moves the beat counter on. Returns the view as well, in which its own beat may be the one before;
    /// `None`: this instance has been evicted.
    async fn beat(&self, me: InstanceId) -> Result<Option<ClusterView>, StoreError>;
    /// All live members and all claims.
    async fn view(&self) -> Result<ClusterView, StoreError>;
    /// Declares a live instance dead and closes its fence rows, in one transaction. With a beat:
    /// only if the beat still stands, and it counts as a crash. Returns whether it was done.
    async fn evict(&self, id: InstanceId, beat: Option<i64>) -> Result<bool, StoreError>;
    /// Claims partitions by compare-and-set on their generation, only free ones and those of dead or
    /// stopped owners. Returns all that `me` owns afterwards.
    async fn claim(
        &self,
        me: InstanceId,
        wanted: &[(Partition, Generation)],
    ) -> Result<Vec<(Partition, Generation)>, StoreError>;
    /// Gives partitions back, each only in the generation it was claimed in: a release that arrives
    /// late must not free what was claimed again meanwhile. Returns how many were freed.
    async fn release(&self, me: InstanceId, claims: &[(Partition, Generation)]) -> Result<usize, StoreError>;
    /// Turns an active instance into a draining one. Returns whether it was active.
    async fn drain(&self, id: InstanceId) -> Result<bool, StoreError>;
    /// Leaves: closes the fence rows, frees what is still owned, and turns STOPPED.
    async fn leave(&self, me: InstanceId) -> Result<(), StoreError>;
    /// Deletes rows of stopped and dead instances that own nothing and have been silent that long, some
    /// thousands at most.
    async fn purge_instances(&self, silent_for: Duration) -> Result<usize, StoreError>;
}

/// A process that joins.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct NewInstance {
    /// New at each start.
    pub id: InstanceId,
    /// For people: `service-7f` or the like.
    pub name: String,
    /// The version of the library.
    pub version: String,
    /// How many fence rows it needs.
    pub fence_rows: u32,
}
