//! One stay of an instance in the cluster: from its join until it leaves, is evicted, or finds another server.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    instance::InstanceId,
    ownership::Ownership,
    rules::watermark::Server,
    store::{ErrorClass, FenceRow, NewInstance, Store, StoreError},
};

/// What belongs to one stay.
pub(crate) struct Membership {
    pub(crate) me: InstanceId,
    /// Bound to the server on which the instance has joined.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ownership: Ownership,
    server: Server,
}

impl Membership {
    /// Joins. The server is asked for first, so that the rows are written where this stay is bound to. `tried`: where
    /// an earlier try may have written them, without an answer.
    pub(crate) async fn begin(
        store: &dyn Store,
        instance: &mut NewInstance,
        tried: &mut Option<Server>,
    ) -> Result<Self, StoreError> {
        let server = store.server().await?;
        store.close_idle(Duration::ZERO).await;
        let store = store.bound_to(server);
        if tried.is_some_and(|before| before != server) {
            // An identity is of one server. This one may have a copy of the rows.
            store.leave(instance.id).await?;
            instance.id = InstanceId::generate();
        }
        *tried = Some(server);
        match store.join(instance).await {
            // The identity is new, so the row is of the earlier try.
            Err(error) if error.class == ErrorClass::Duplicate => {}
            joined => joined?,
        }
        let clock = if store.own_thread() { Clock::Boot } else { Clock::pausable() };
        Ok(Self { me: instance.id, store, ownership: Ownership::new(clock), server })
    }

    /// The fence row of the settler as it is after the join.
    pub(crate) fn fence(&self) -> FenceRow {
        FenceRow::of_settler(self.me, self.server)
    }
}
