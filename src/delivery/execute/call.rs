//! The only place of this wing that calls the user's code. Each call goes through `handler::guarded`. The
//! store calls transactional handlers, inside the transaction and through the same function.

use super::context::ExecContext;
use crate::{
    handler::{
        BatchCall, BatchResults, Call, Context, Entry, Failure, FallbackCall, Guarded, HandlerError, guarded,
    },
    record::Record,
};

/// Calls the handler with one record.
pub(super) fn handle<'a>(
    call: &'a dyn Call,
    record: &'a Record,
    entry: &Entry,
    context: &'a ExecContext,
) -> Guarded<'a, Result<(), HandlerError>> {
    guarded(entry.timeout, || call.call(Context::new(record, &context.states)))
}

/// Calls the handler with several records. If the call fails as a whole, its first record fails. If the call
/// returns no results, its first record fails, too, because otherwise the same call would repeat without end.
pub(super) async fn handle_batch(
    call: &dyn BatchCall,
    records: &[&Record],
    entry: &Entry,
    context: &ExecContext,
) -> BatchResults {
    match guarded(entry.timeout, || call.call(records, &context.states)).await {
        Ok(results) if results.is_empty() => {
            vec![Err(HandlerError::new("the batch handler returned no results"))]
        }
        Ok(results) => results,
        Err(error) => vec![Err(error)],
    }
}

/// Calls the fallback handler with a record that has failed.
pub(super) async fn fall_back(
    fallback: &dyn FallbackCall,
    record: &Record,
    failure: Failure,
    (entry, context): (&Entry, &ExecContext),
) -> Result<(), HandlerError> {
    guarded(entry.timeout, || fallback.call(Context::new(record, &context.states), &failure)).await?
}
