//! Which handlers take which record type, as those who schedule know it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use crate::{
    handler::{EVERY_TYPE, Route},
    store::Store,
};

/// The pause after a list of handlers that could not be read.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Which handlers take which record type, as published; shared by all users of an outbox.
pub(crate) struct Routes {
    /// The handlers of this process, known without asking.
    own: BTreeSet<Route>,
    published: RwLock<Published>,
    /// When reading the list has failed last. Held by whoever reads it, so that the others wait for
    /// that instead of reading it too.
    reading: Mutex<Option<Instant>>,
}

struct Published {
    /// The handlers of each type, sorted, those of every type included.
    handlers: HashMap<String, Arc<[String]>>,
    refreshed: Option<Instant>,
}

impl Routes {
    pub(crate) fn new(own: BTreeSet<Route>) -> Self {
        let published = RwLock::new(Published { handlers: by_type(own.iter()), refreshed: None });
        Self { own, published, reading: Mutex::new(None) }
    }

    /// Takes over the published list.
    pub(crate) fn refresh(&self, published: Vec<Route>) {
        let handlers = by_type(self.own.iter().chain(&published));
        let refreshed = Some(Instant::now());
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Published { handlers, refreshed };
    }

    /// The list, if it was ever read, is known to be as it was.
    pub(crate) fn confirm(&self) {
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        published.refreshed = published.refreshed.map(|_| Instant::now());
    }

    /// Reads the list if it is older than this. A list that cannot be read is left as it is, for a
    /// second: the database is away, and the insert will say so.
    pub(super) async fn keep_fresh(&self, store: &dyn Store, max_age: Duration) {
        if !self.is_stale(max_age) {
            return;
        }
        let mut failed_at = self.reading.lock().await;
        if !self.is_stale(max_age) || failed_at.is_some_and(|at| at.elapsed() < READ_AGAIN_AFTER) {
            return;
        }
        match store.routes().await {
            Ok(published) => {
                *failed_at = None;
                self.refresh(published);
            }
            Err(_) => *failed_at = Some(Instant::now()),
        }
    }

    fn is_stale(&self, max_age: Duration) -> bool {
        self.read().refreshed.is_none_or(|at| at.elapsed() > max_age)
    }

    /// The handlers of a type, sorted, those of every type included.
    pub(super) fn of(&self, record_type: &str) -> Arc<[String]> {
        let published = self.read();
        let handlers = published.handlers.get(record_type).or_else(|| published.handlers.get(EVERY_TYPE));
        handlers.cloned().unwrap_or_default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_type<'a>(routes: impl Iterator<Item = &'a Route>) -> HashMap<String, Arc<[String]>> {
    let mut handlers: HashMap<&str, BTreeSet<&String>> = HashMap::new();
    for route in routes {
        handlers.entry(&route.record_type).or_default().insert(&route.handler);
    }
    let every = handlers.get(EVERY_TYPE).cloned().unwrap_or_default();
    let of_type = |(record_type, own): (&str, BTreeSet<&String>)| {
        let handlers = own.union(&every).map(|handler| (*handler).clone()).collect();
        (record_type.to_owned(), handlers)
    };
    handlers.into_iter().map(of_type).collect()
}
