//! The sessions of a sink and their limits.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use rdkafka::error::KafkaError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    config::{ConfigError, KafkaConfig},
    session::Session,
};

/// The producers of a sink or of a [`KafkaProducer`](crate::KafkaProducer), and the state that its calls share.
#[derive(Debug)]
pub(crate) struct Producers {
    pub(crate) config: KafkaConfig,
    /// Created at the first use and after each end of a session.
    many: Mutex<Option<Arc<Session>>>,
    /// Sends each message in a separate request.
    alone: Mutex<Option<Arc<Session>>>,
    /// Permits of the queue, one per started KiB.
    room: Arc<Semaphore>,
    /// Whether no acknowledgement has come since a call gave up.
    away: AtomicBool,
    /// The permit of the one call that tries whether the brokers are back.
    probe: Semaphore,
}

impl Producers {
    pub(crate) fn new(config: KafkaConfig) -> Result<Self, ConfigError> {
        config.check()?;
        for alone in [false, true] {
            // The client checks its properties when it creates a producer.
            Session::open(&config.client(alone)).map_err(|error| refused(&error))?;
        }
        let room = Arc::new(Semaphore::new(config.queue_bytes / 1024));
        let (many, alone) = (Mutex::new(None), Mutex::new(None));
        Ok(Self { config, many, alone, room, away: AtomicBool::new(false), probe: Semaphore::new(1) })
    }

    /// The session in use, or a new one.
    pub(crate) fn session(&self, alone: bool) -> Result<Arc<Session>, KafkaError> {
        let place = if alone { &self.alone } else { &self.many };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = place.as_ref().filter(|session| !session.is_retired()) {
            return Ok(Arc::clone(session));
        }
        let session = Session::open(&self.config.client(alone))?;
        *place = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Waits until the queue has room for these many bytes.
    pub(crate) async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let all = self.config.queue_bytes / 1024;
        let shares = (bytes / 1024 + 1).min(all);
        Arc::clone(&self.room).acquire_many_owned(u32::try_from(shares).ok()?).await.ok()
    }

    pub(crate) fn set_away(&self, away: bool) {
        if self.away.swap(away, Relaxed) != away {
            tracing::debug!(target: "keylane_kafka", away, "the brokers are away or back");
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Relaxed)
    }

    /// While the brokers are away, one call at a time tries them. All others get `None`.
    pub(crate) fn probe(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.probe.try_acquire().ok()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("retired", &self.is_retired()).finish()
    }
}

/// Removes the value from the client's text, because the value can be a secret. The text has property, value
/// and permitted values.
fn refused(error: &KafkaError) -> ConfigError {
    ConfigError::Client(match error {
        KafkaError::ClientConfig(_, _, name, _) => {
            format!("{name} is unknown or has a value that it cannot have")
        }
        other => other.to_string(),
    })
}
