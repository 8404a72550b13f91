//! Reads that may take longer than the limit of a call: after a timeout the next attempt is given more time.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::{call::within, driver::Driver, link::Link};
use crate::{rules::pacing, store::StoreError};

/// The time of each read, in multiples of the limit of a call. A read that is not listed has the limit once.
/// Written by `read`.
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

    /// Runs a read on the connection of a link, within `once` times the current multiple of the read.
    pub(super) async fn read<D: Driver, T>(
        &self,
        name: &'static str,
        link: &Link<D>,
        once: Duration,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        let times = self.of(name);
        if times > 1 {
            // The limit on the server is a setting of the connection, so a new one is opened. Opening has the
            // usual limit.
            within::<D, _>(name, once, link.open_anew(once * times)).await?;
        }
        let began = Instant::now();
        let done = within::<D, _>(name, once * times, work).await;
        self.set(name, pacing::patience(times, once, began.elapsed(), done.is_ok()));
        if times > 1 {
            link.discard().await;
        }
        done
    }
}
