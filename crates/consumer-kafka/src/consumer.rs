//! The builder, and the running consumer.

use std::{collections::HashMap, sync::Arc};

use keylane_inbox::{Inbox, InboxDatabase};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

use crate::{
    budget::unhindered,
    config::{ConfigError, ConsumerConfig},
    dead::DeadLetters,
    handler::{
        Claimed, Declared, Execute, MessageHandler, Plain, Transactional, TransactionalMessageHandler,
    },
    pump::Pump,
    source::{PartitionLag, Source},
};

/// A member of a consumer group. [`Consumer::builder`] creates one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Consumer {}

/// Topics with their handlers.
#[must_use = "call start"]
pub struct ConsumerBuilder {
    config: ConsumerConfig,
    topics: Vec<(String, Arc<dyn Execute>)>,
    /// The topics of handlers that are declared for one group.
    groups: Vec<(&'static str, &'static str)>,
    dead: Option<String>,
}

/// A running consumer. If it is dropped, it stops without waiting.
#[derive(Debug)]
#[must_use = "keep it, and call shutdown at the end"]
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<ShutdownReport>,
    lags: watch::Receiver<Vec<PartitionLag>>,
}

/// The result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Whether all calls under way ended within `shutdown_timeout`. The others were dropped, and their
    /// messages come again.
    pub graceful: bool,
}

impl Consumer {
    /// Begins a consumer with these settings.
    pub fn builder(config: ConsumerConfig) -> ConsumerBuilder {
        ConsumerBuilder { config, topics: Vec::new(), groups: Vec::new(), dead: None }
    }
}

impl ConsumerBuilder {
    /// Adds a topic whose handler has no inbox: at least once.
    pub fn topic(self, topic: impl Into<String>, handler: impl MessageHandler) -> Self {
        self.execute(topic, Arc::new(Plain(handler)))
    }

    /// Adds a topic whose messages are claimed in the inbox, for effects outside the database: at least once,
    /// by one consumer at a time.
    pub fn claimed<DB: InboxDatabase>(
        self,
        topic: impl Into<String>,
        inbox: Inbox<DB>,
        handler: impl MessageHandler,
    ) -> Self {
        self.execute(topic, Arc::new(Claimed(handler, inbox)))
    }

    /// Adds a topic whose handler writes in the transaction of the inbox: exactly once.
    pub fn transactional<DB: InboxDatabase>(
        self,
        topic: impl Into<String>,
        inbox: Inbox<DB>,
        handler: impl TransactionalMessageHandler<DB>,
    ) -> Self {
        self.execute(topic, Arc::new(Transactional(handler, inbox)))
    }

    /// Like [`topic`](Self::topic), for the topic that the handler is declared with.
    pub fn handler<H: MessageHandler + Declared>(self, handler: H) -> Self {
        self.declared::<H>().topic(H::TOPIC, handler)
    }

    /// Like [`claimed`](Self::claimed), for the topic that the handler is declared with.
    pub fn claimed_handler<DB: InboxDatabase, H: MessageHandler + Declared>(
        self,
        inbox: Inbox<DB>,
        handler: H,
    ) -> Self {
        self.declared::<H>().claimed(H::TOPIC, inbox, handler)
    }

    /// Like [`transactional`](Self::transactional), for the topic that the handler is declared with.
    pub fn transactional_handler<DB: InboxDatabase, H: TransactionalMessageHandler<DB> + Declared>(
        self,
        inbox: Inbox<DB>,
        handler: H,
    ) -> Self {
        self.declared::<H>().transactional(H::TOPIC, inbox, handler)
    }

    fn declared<H: Declared>(mut self) -> Self {
        self.groups.extend(H::GROUP.map(|group| (H::TOPIC, group)));
        self
    }

    /// Sets the topic of messages that have failed for good. Without it, their keys stand still, and the
    /// messages are tried again every `max_delay` of the retry policy.
    pub fn dead_letters(mut self, topic: impl Into<String>) -> Self {
        self.dead = Some(topic.into());
        self
    }

    fn execute(mut self, topic: impl Into<String>, execute: Arc<dyn Execute>) -> Self {
        self.topics.push((topic.into(), execute));
        self
    }

    /// Joins the group and begins to consume. Must be called within a Tokio runtime. While Kafka is away, it
    /// waits.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn start(self) -> Result<Running, ConfigError> {
        self.config.check()?;
        if let Some((topic, declared)) = self.groups.iter().find(|(_, group)| *group != self.config.group) {
            return Err(ConfigError::Group { topic, declared, group: self.config.group });
        }
        let mut topics: HashMap<Arc<str>, Arc<dyn Execute>> = HashMap::new();
        for (topic, execute) in self.topics {
            if topics.insert(topic.as_str().into(), execute).is_some() {
                return Err(ConfigError::Topics(format!("the topic {topic} twice")));
            }
        }
        if topics.is_empty() {
            return Err(ConfigError::Topics("no topic".to_owned()));
        }
        let dead = self.dead.map(|topic| DeadLetters::new(&self.config, &topic)).transpose()?;
        let names: Vec<&str> = topics.keys().map(|topic| &**topic).collect();
        let source = Source::start(&self.config, &names)?;
        let (lag_sender, lags) = watch::channel(Vec::new());
        let (stop, stopped) = oneshot::channel();
        let pump = Pump::new(self.config, topics, dead, source, lag_sender);
        Ok(Running { stop, task: tokio::spawn(unhindered(pump.run(stopped))), lags })
    }
}

impl Running {
    /// The lag of each partition of this member, from the client's last report. Reports come every 5 s.
    pub fn lag(&self) -> Vec<PartitionLag> {
        self.lags.borrow().clone()
    }

    /// Starts no more calls, waits for calls under way, commits, and leaves the group. If the brokers are away, it gives
    /// up 20 s after the calls, and what was not committed comes again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the shutdown goes on by itself.
    pub async fn shutdown(self) -> ShutdownReport {
        let _ = self.stop.send(());
        self.task.await.unwrap_or(ShutdownReport { graceful: false })
    }
}
