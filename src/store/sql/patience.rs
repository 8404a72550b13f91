//! Reads that take longer than a call may: the next time they are given more.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::{call::within, driver::Driver, link::Link};
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

    /// Runs a read on the connection of a link, within `once` or as many times that as the read is given by now.
    pub(super) async fn read<D: Driver, T>(
        &self,
        name: &'static str,
        link: &Link<D>,
        once: Duration,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        let times = self.of(name);
        if times > 1 {
            // The connection has the limit of the server for it. To open it takes no longer than otherwise.
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
