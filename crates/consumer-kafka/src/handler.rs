//! The traits that a service implements, and the run of each form.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use keylane::HandlerError;
use keylane_inbox::{Inbox, InboxDatabase, InboxError, OnceError, ProcessError};
use tracing::Instrument;

use crate::{message::Message, run::guarded};

/// Handles the messages of a topic, at least once.
///
/// With an inbox, the message is claimed first: one consumer at a time handles it, and nobody handles it
/// again after a success. Messages of one key come one after another.
pub trait MessageHandler: Send + Sync + 'static {
    /// Handles a message.
    ///
    /// # Cancel safety
    /// The future is dropped after `handler_timeout`, or `drain_timeout` after its partition begins to go to
    /// another consumer.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Handles the messages of a topic in a transaction. The effect and the entry in the inbox commit together,
/// so that each message has its effect exactly once.
pub trait TransactionalMessageHandler<DB: InboxDatabase>: Send + Sync + 'static {
    /// Handles a message. Writes on the connection commit together with the entry in the inbox, or not at
    /// all.
    ///
    /// # Cancel safety
    /// Like [`MessageHandler::handle`]. The transaction is rolled back then.
    fn handle(
        &self,
        tx: &mut DB::Connection,
        message: &Message,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// A handler that names its topic. `#[message_handler]` makes one from a function.
///
/// ```no_run
/// use keylane_consumer::{Consumer, ConsumerConfig, HandlerError, message_handler};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     number: u64,
/// }
///
/// #[message_handler(topic = "orders", group = "mail")]
/// async fn write_mail(order: Order) -> Result<(), HandlerError> {
///     println!("dear customer, your order {} is on its way", order.number);
///     Ok(())
/// }
///
/// # fn run() -> Result<(), keylane_consumer::ConfigError> {
/// let config = ConsumerConfig::new("127.0.0.1:9092", "mail");
/// let running = Consumer::builder(config).handler(write_mail {}).start()?;
/// # Ok(())
/// # }
/// ```
pub trait Declared {
    /// The topic.
    const TOPIC: &'static str;
    /// The only group of the handler, if it names one.
    const GROUP: Option<&'static str>;
}

/// The outcome of a message.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The message was handled, now or before.
    Done,
    Failed(HandlerError),
    /// An earlier message of the key has failed.
    NotTried,
}

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs messages, each key in order.
pub(crate) trait Execute: Send + Sync {
    /// Returns one outcome per message.
    fn run<'a>(&'a self, messages: &'a [Arc<Message>], call: &'a Call) -> BoxFuture<'a, Vec<Outcome>>;

    /// Whether several messages may share a run.
    fn batches(&self) -> bool {
        false
    }
}

/// The state that all calls share.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) group: String,
    pub(crate) timeout: Duration,
}

/// A handler without an inbox.
pub(crate) struct Plain<H>(pub(crate) H);

/// A handler whose messages are claimed.
pub(crate) struct Claimed<H, DB: InboxDatabase>(pub(crate) H, pub(crate) Inbox<DB>);

/// A handler in the transaction of the inbox.
pub(crate) struct Transactional<H, DB: InboxDatabase>(pub(crate) H, pub(crate) Inbox<DB>);

/// The wait of a message that another consumer has claimed, or that met a conflict in the database.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Runs one message.
trait One: Send + Sync {
    fn one(&self, message: &Message, call: &Call) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

impl<H: MessageHandler> One for Plain<H> {
    async fn one(&self, message: &Message, call: &Call) -> Result<(), HandlerError> {
        guarded(call.timeout, self.0.handle(message)).await
    }
}

impl<H: MessageHandler> Execute for Plain<H> {
    fn run<'a>(&'a self, messages: &'a [Arc<Message>], call: &'a Call) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(each(messages, call, self))
    }
}

impl<H: MessageHandler, DB: InboxDatabase> One for Claimed<H, DB> {
    async fn one(&self, message: &Message, call: &Call) -> Result<(), HandlerError> {
        let work = async || guarded(call.timeout, self.0.handle(message)).await;
        match self.1.process(message.event_id(), &call.group, work).await {
            Ok(_) => Ok(()),
            Err(ProcessError::Once(error)) => Err(of_once(error)),
            Err(error) => Err(HandlerError::new(error).class("inbox").uncounted(AGAIN_AFTER)),
        }
    }
}

impl<H: MessageHandler, DB: InboxDatabase> Execute for Claimed<H, DB> {
    fn run<'a>(&'a self, messages: &'a [Arc<Message>], call: &'a Call) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(each(messages, call, self))
    }
}

impl<H: TransactionalMessageHandler<DB>, DB: InboxDatabase> One for Transactional<H, DB> {
    async fn one(&self, message: &Message, call: &Call) -> Result<(), HandlerError> {
        let ran = guarded(call.timeout, async {
            let work = async |tx: &mut DB::Connection| self.0.handle(tx, message).await;
            match self.1.run(message.event_id(), &call.group, work).await {
                Ok(_) => Ok(Ok(())),
                // The inbox has the failure.
                Err(error) => Ok(Err(of_once(error))),
            }
        });
        let error = match ran.await {
            Ok(ran) => return ran,
            Err(error) => error,
        };
        // A panic or a timeout has rolled back the transaction, and the entry with it.
        let text = error.to_string();
        let written = self.1.write_failure(message.event_id(), &call.group, &text, call.timeout);
        if let Err(error) = written.await {
            tracing::warn!(target: "keylane_consumer", %error, "a failure was not written to the inbox");
        }
        Err(error)
    }
}

impl<H: TransactionalMessageHandler<DB>, DB: InboxDatabase> Transactional<H, DB> {
    /// Runs all messages in one transaction. Returns false if nothing was written.
    async fn all(&self, messages: &[Arc<Message>], call: &Call) -> bool {
        let ids: Vec<&str> = messages.iter().map(|message| message.event_id()).collect();
        let work = async |tx: &mut DB::Connection, fresh: &[usize]| {
            for place in fresh {
                let message = &messages[*place];
                self.0.handle(tx, message).instrument(message.span(&call.group)).await?;
            }
            Ok::<_, HandlerError>(())
        };
        let ran = guarded(call.timeout, async {
            let ran = self.1.run_batch(&ids, &call.group, work).await;
            Ok(ran.is_ok_and(|batch| batch.in_progress.is_empty()))
        });
        ran.await.unwrap_or(false)
    }
}

impl<H: TransactionalMessageHandler<DB>, DB: InboxDatabase> Execute for Transactional<H, DB> {
    fn run<'a>(&'a self, messages: &'a [Arc<Message>], call: &'a Call) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let readable = messages.iter().all(|message| message.unreadable.is_none());
            if messages.len() > 1 && readable && self.all(messages, call).await {
                return messages.iter().map(|_| Outcome::Done).collect();
            }
            each(messages, call, self).await
        })
    }

    fn batches(&self) -> bool {
        true
    }
}

/// Runs the messages one after another. After a failure, the later messages of its key are left out.
async fn each(messages: &[Arc<Message>], call: &Call, handler: &impl One) -> Vec<Outcome> {
    use rdkafka::Message as _;
    let mut outcomes = Vec::with_capacity(messages.len());
    let mut stopped: Vec<(&str, i32, Option<&[u8]>)> = Vec::new();
    for message in messages {
        let key = (message.topic(), message.partition(), message.raw.key());
        if key.2.is_some() && stopped.contains(&key) {
            outcomes.push(Outcome::NotTried);
            continue;
        }
        let handled = match &message.unreadable {
            Some(problem) => Err(HandlerError::permanent(problem.clone()).class("decode")),
            None => handler.one(message, call).instrument(message.span(&call.group)).await,
        };
        outcomes.push(match handled {
            Ok(()) => Outcome::Done,
            Err(error) => {
                stopped.push(key);
                Outcome::Failed(error)
            }
        });
    }
    outcomes
}

/// The error of the inbox, for the retry policy.
fn of_once(error: OnceError<HandlerError>) -> HandlerError {
    match error {
        OnceError::Work(error) => error,
        OnceError::InProgress { left, .. } => HandlerError::new(error)
            .class("in-progress")
            .uncounted(left.clamp(AGAIN_AFTER, Duration::from_secs(1))),
        OnceError::Ended => HandlerError::permanent(error).class("ended"),
        OnceError::Inbox(InboxError::BadId { .. }) => HandlerError::permanent(error).class("inbox"),
        _ => HandlerError::new(error).class("inbox").uncounted(AGAIN_AFTER),
    }
}
