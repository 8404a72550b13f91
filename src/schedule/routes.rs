//! The published handlers of each record type, as a producer knows them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use crate::{
    handler::{ANY_TEXT, EVERY_TYPE, Route, is_of_pattern},
    name::Name,
    store::{Store, StoreError},
};

/// The pause after a failed read of the list of handlers.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The published handlers per record type, shared by all users of an outbox.
pub(crate) struct Routes {
    /// The handlers of this process, known without a read. Never changes.
    own: BTreeSet<Route>,
    published: RwLock<Published>,
    /// The time of the last failed read of the list. The task that reads the list holds this lock, so that
    /// the others wait for its result instead of reading the list, too.
    reading: Mutex<Option<Instant>>,
}

struct Published {
    /// The handlers per type, sorted, those of every type included.
    handlers: HashMap<String, Arc<[Name]>>,
    /// The handlers of patterns: each pattern and its handler.
    patterns: Vec<(String, Name)>,
    refreshed: Option<Instant>,
}

impl Published {
    fn new<'a>(routes: impl Iterator<Item = &'a Route> + Clone, refreshed: Option<Instant>) -> Self {
        let is_pattern =
            |route: &&Route| route.record_type.contains(ANY_TEXT) && route.record_type != EVERY_TYPE;
        let patterns = routes.clone().filter(is_pattern);
        let patterns = patterns.map(|route| (route.record_type.clone(), route.handler.as_str().into()));
        Self { patterns: patterns.collect(), handlers: by_type(routes), refreshed }
    }
}

impl Routes {
    pub(crate) fn new(own: BTreeSet<Route>) -> Self {
        let published = RwLock::new(Published::new(own.iter(), None));
        Self { own, published, reading: Mutex::new(None) }
    }

    /// Reads the list and keeps it, unless a younger list has come meanwhile.
    ///
    /// # Errors
    /// The error of the store. The list stays unchanged.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), StoreError> {
        // The time is taken before the reply, because the reply may lack handlers that were published since.
        let asked = Instant::now();
        let published = store.routes().await?;
        let read = Published::new(self.own.iter().chain(&published), Some(asked));
        let mut list = self.published.write().unwrap_or_else(PoisonError::into_inner);
        if list.refreshed.is_none_or(|at| at <= asked) {
            *list = read;
        }
        Ok(())
    }

    /// The list was current at this time, if it was ever read.
    pub(crate) fn confirm(&self, at: Instant) {
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        published.refreshed = published.refreshed.map(|refreshed| refreshed.max(at));
    }

    /// Reads the list if it is older than `max_age`. If the read fails, the old list stays valid for another
    /// second: if the database is unreachable, the insert reports it.
    ///
    /// # Errors
    /// The list was never read: other processes may have more handlers than this one.
    pub(super) async fn keep_fresh(&self, store: &dyn Store, max_age: Duration) -> Result<(), StoreError> {
        if !self.is_stale(max_age) {
            return Ok(());
        }
        let mut failed_at = self.reading.lock().await;
        let known = self.read().refreshed.is_some();
        let pausing = known && failed_at.is_some_and(|at| at.elapsed() < READ_AGAIN_AFTER);
        if !self.is_stale(max_age) || pausing {
            return Ok(());
        }
        let read = self.refresh(store).await;
        *failed_at = read.is_err().then(Instant::now);
        if known { Ok(()) } else { read }
    }

    fn is_stale(&self, max_age: Duration) -> bool {
        self.read().refreshed.is_none_or(|at| at.elapsed() > max_age)
    }

    /// The handlers of a type, sorted, those of patterns and of every type included.
    pub(super) fn of(&self, record_type: &str) -> Arc<[Name]> {
        let published = self.read();
        let handlers = published.handlers.get(record_type).or_else(|| published.handlers.get(EVERY_TYPE));
        let handlers = handlers.cloned().unwrap_or_default();
        let mut more = published.patterns.iter().filter(|(pattern, _)| is_of_pattern(record_type, pattern));
        let Some((_, first)) = more.next() else { return handlers };
        let more = more.map(|(_, handler)| handler).chain([first]);
        handlers.iter().chain(more).collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_type<'a>(routes: impl Iterator<Item = &'a Route>) -> HashMap<String, Arc<[Name]>> {
    let mut handlers: HashMap<&str, BTreeSet<&String>> = HashMap::new();
    for route in routes {
        handlers.entry(&route.record_type).or_default().insert(&route.handler);
    }
    let every = handlers.get(EVERY_TYPE).cloned().unwrap_or_default();
    let of_type = |(record_type, own): (&str, BTreeSet<&String>)| {
        let handlers = own.union(&every).map(|handler| handler.as_str().into()).collect();
        (record_type.to_owned(), handlers)
    };
    handlers.into_iter().map(of_type).collect()
}
