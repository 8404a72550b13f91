//! One stay of an instance in the cluster: from its join until it leaves, is evicted, or finds another
//! server.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    instance::InstanceId,
    ownership::Ownership,
    rules::horizon::Server,
    store::{ErrorClass, FenceRow, NewInstance, Store, StoreError},
};

/// The parts of one stay. Fixed at the join.
pub(crate) struct Membership {
    pub(crate) me: InstanceId,
    /// The store, bound to the server on which the instance has joined.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ownership: Ownership,
    server: Server,
}

impl Membership {
    /// Joins. Asks for the server first, so that the rows are written on the server to which this stay is
    /// bound. `tried` is the server on which an earlier try without a reply may have written the rows.
    pub(crate) async fn begin(
        store: &dyn Store,
        instance: &mut NewInstance,
        tried: &mut Option<Server>,
    ) -> Result<Self, StoreError> {
        let server = store.server().await?;
        store.close_idle(Duration::ZERO).await;
        let store = store.bound_to(server);
        if tried.is_some_and(|before| before != server) {
            // An identity belongs to one server. This server may have a copy of the rows of the earlier try.
            store.leave(instance.id).await?;
            instance.id = InstanceId::generate();
        }
        *tried = Some(server);
        match store.join(instance).await {
            // The identity is new, so the earlier try has written the row.
            Err(error) if error.class == ErrorClass::Duplicate => {}
            joined => joined?,
        }
        let clock = if store.own_thread() { Clock::Boot } else { Clock::pausable() };
        Ok(Self { me: instance.id, store, ownership: Ownership::new(clock), server })
    }

    /// The fence row of the settler, with its counter as of the join.
    pub(crate) fn fence(&self) -> FenceRow {
        FenceRow::of_settler(self.me, self.server)
    }
}
