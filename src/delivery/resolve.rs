//! Finds out what became of a write whose reply was lost.

use std::time::Duration;

use crate::{
    store::{FenceRow, Resolution, Store},
    telemetry::{Observers, Signal},
};

/// Pauses between tries while the database is unreachable: the first pause, which doubles up to the last.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Asks the counter of the fence row whether a write with a lost reply was applied. Tries until the database
/// answers.
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
