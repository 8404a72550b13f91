//! Reads that take longer than a call may: the next time they are given more.

use std::{collections::BTreeMap, sync::Mutex};

use tokio::time::Instant;

use super::{SqlStore, driver::Driver};
use crate::{rules::pacing, store::StoreError};

/// How many times the limit of a call each read is given. Reads that are not listed are given the limit once.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<BTreeMap<&'static str, u32>>);

impl Patience {
    fn of(&self, name: &str) -> u32 {
        self.0.lock().map_or(1, |times| times.get(name).copied().unwrap_or(1))
    }

    fn set(&self, name: &'static str, to: u32) {
        if let Ok(mut times) = self.0.lock() {
            match to {
                1 => drop(times.remove(name)),
                more => drop(times.insert(name, more)),
            }
        }
    }
}

impl<D: Driver> SqlStore<D> {
    /// As [`SqlStore::call`], for a read of a fetch on its connection. What has died in the table may take longer to walk
    /// over than a call may take, and would do so at each attempt: so a read that got no answer in time is given more time
    /// the next time.
    pub(super) async fn read_patiently<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        let (once, times) = (self.settings.call_timeout, self.patience.of(name));
        if times > 1 {
            // The connection has the limit of the server for it. To open it takes no longer than otherwise.
            self.call(name, self.poll.open_anew(once * times)).await?;
        }
        let began = Instant::now();
        let done = self.call_within(name, once * times, work).await;
        self.patience.set(name, pacing::patience(times, once, began.elapsed(), done.is_ok()));
        if times > 1 {
            self.poll.discard().await;
        }
        done
    }
}
