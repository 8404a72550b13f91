//! What comes before the workers start: the schema, the mode and the handlers.

use std::{sync::Arc, time::Duration};

use crate::{
    database::Database,
    parts::Parts,
    patience::Patience,
    store::{Mode, SchemaError, Store},
    telemetry::Signal,
};

/// Why the workers did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The outbox has no handlers, so it can only schedule.
    #[error("this outbox has no handlers: it can schedule, but there is nothing to start")]
    NoHandlers,
    /// The schema does not fit this build, or the database refuses a call for a reason that only a person can
    /// fix.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The system could not start the thread of the heartbeat.
    #[error("the heartbeat thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Checks the schema and the mode of the tables, and publishes the handlers.
pub(crate) async fn prepare<DB: Database>(inner: &Arc<Parts<DB>>) -> Result<(), StartError> {
    if inner.registry.is_empty() {
        return Err(StartError::NoHandlers);
    }
    let routes: Vec<_> = inner.registry.routes().into_iter().collect();
    let mut patience = Patience::default();
    // After a request to shut down, the workers start and end at once: their service sees one kind of end.
    while !inner.shutdown.is_cancelled() {
        let ready = async {
            inner.store.check().await?;
            compare(&*inner.store, inner.own.as_deref()).await?;
            enter(&*inner.store, inner.config.mode).await?;
            inner.store.publish_routes(&routes).await?;
            Ok::<_, SchemaError>(inner.scheduler.routes.refresh(&*inner.store).await?)
        };
        match ready.await {
            Ok(()) => break,
            Err(SchemaError::Store(error)) if error.class.may_pass() => {
                inner.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            }
            Err(error) => {
                inner.store.close_idle(Duration::ZERO).await;
                return Err(error.into());
            }
        }
        let _ = tokio::time::timeout(patience.next(), inner.shutdown.cancelled()).await;
    }
    Ok(())
}

/// Refuses tables of the other mode: both would deliver the same records.
async fn enter(store: &dyn Store, wanted: Mode) -> Result<(), SchemaError> {
    let found = store.enter(wanted).await?;
    let (is_wanted, found, wanted) = (found == wanted, found.as_str(), wanted.as_str());
    if is_wanted { Ok(()) } else { Err(SchemaError::Mode { found, wanted }) }
}

/// Refuses a worker pool that leads to other tables than the pool.
async fn compare(store: &dyn Store, own: Option<&dyn Store>) -> Result<(), SchemaError> {
    let Some(own) = own else { return Ok(()) };
    let pool = own.identity().await;
    own.close_idle(Duration::ZERO).await;
    let (pool, worker_pool) = (pool?, store.identity().await?);
    store.close_idle(Duration::ZERO).await;
    if pool == worker_pool { Ok(()) } else { Err(SchemaError::WorkerPool { pool, worker_pool }) }
}
