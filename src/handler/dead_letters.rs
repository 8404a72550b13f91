//! The table of dead letters, as a fallback handler.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{
    calls::{BoxFuture, FallbackCall},
    context::{Context, State},
    error::{Failure, HandlerError},
};
use crate::{
    record::Record,
    store::{DeadLetterCause, Store},
};

/// The time until a record is tried again whose dead letter could not be written.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The table `outbox_dead_letter` of an outbox, for fallback handlers. A fallback handler gets the table as
/// `State<DeadLetterTable>`; the builder needs no call for it. If all dead letters of a handler go to the
/// table, use [`Registration::dead_letter_table`](super::Registration::dead_letter_table).
///
/// ```
/// use keylane::{Failure, HandlerError, Record, handler::{BoxFuture, Context, DeadLetterTable, FallbackCall, State}};
///
/// /// Keeps what was refused; the rest blocks its key.
/// struct KeepRefused;
///
/// impl FallbackCall for KeepRefused {
///     fn call<'a>(&'a self, context: Context<'a>, failure: &'a Failure) -> BoxFuture<'a, Result<(), HandlerError>> {
///         Box::pin(async move {
///             if failure.retries_exhausted {
///                 return Err(HandlerError::permanent("not refused, but spent"));
///             }
///             let State(table) = context.state::<DeadLetterTable>()?;
///             table.keep(context.record(), failure, "https://example.com").await
///         })
///     }
/// }
/// ```
#[derive(Clone, Default)]
pub struct DeadLetterTable(Arc<OnceLock<Arc<dyn Store>>>);

impl DeadLetterTable {
    pub(crate) fn open(&self, store: &Arc<dyn Store>) {
        // A table is opened once, by its builder.
        let _ = self.0.set(Arc::clone(store));
    }

    /// Writes a record and its failure into the table, unless the record is there. `target` is the target of
    /// the dead letter, such as a topic or an address. If the write fails, no attempt counts, and the record
    /// is tried again a second later.
    ///
    /// # Errors
    /// The database did not accept the write.
    pub async fn keep(&self, record: &Record, failure: &Failure, target: &str) -> Result<(), HandlerError> {
        let store = self.0.get().ok_or_else(|| HandlerError::new("the outbox is not built"))?;
        let cause = DeadLetterCause {
            attempts: failure.attempts,
            target: target.to_owned(),
            error: failure.text(),
            class: failure.class.clone(),
            kind: failure.kind.as_str(),
        };
        let copied = store.copy_to_dead_letters(record.delivery.id, &cause).await;
        copied.map_err(|error| HandlerError::new(error).uncounted(RETRY_AFTER))
    }
}

impl fmt::Debug for DeadLetterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadLetterTable")
    }
}

/// A fallback handler that writes every dead letter into the table, with the handler id as the target.
pub(super) struct KeepAll;

impl FallbackCall for KeepAll {
    fn call<'a>(
        &'a self,
        context: Context<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(async move {
            let State(table) = context.state::<DeadLetterTable>()?;
            table.keep(context.record(), failure, &context.delivery().handler).await
        })
    }
}
