//! Leaves no reply in doubt.

use std::time::Duration;

use crate::{
    store::{FenceRow, Resolution, Store},
    telemetry::{Observers, Signal},
};

/// Pauses between tries while the database is away: from the first, doubling, to the last.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Finds out what became of a write whose reply was lost, however long the database is away.
pub(super) async fn resolve(store: &dyn Store, observers: &Observers, fence: FenceRow) -> Resolution {
    let mut pause = FIRST_PAUSE;
    loop {
        match store.resolve(fence).await {
            Ok(resolution) => {
                let applied = resolution == Resolution::Applied;
                observers.emit(Signal::LostReplyResolved { applied });
                return resolution;
            }
            Err(error) => observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() }),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
