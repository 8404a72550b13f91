//! A nudge that says that there may be work. Nudges coalesce.

use std::sync::Arc;

use tokio::sync::Notify;

/// A nudge. Many nudges before a wait count as one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wake(Arc<Notify>);

impl Wake {
    pub(crate) fn nudge(&self) {
        self.0.notify_one();
    }

    /// Returns at once if there was a nudge since the last return. Cancel safe.
    pub(crate) async fn nudged(&self) {
        self.0.notified().await;
    }
}
