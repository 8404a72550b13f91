//! A session: one producer of the client, and the acknowledgements that calls wait for.
//!
//! Within a session, the messages of a key reach Kafka as an unbroken prefix of the messages that were sent.
//! A caller that sends again, in order, from the first message without acknowledgement, repeats messages but
//! swaps none.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use keylane_message::{Message, MessageHeaders};
use rdkafka::{
    ClientContext,
    config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig, ThreadedProducer},
};
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// What the client is given of a message.
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: Cow<'a, str>,
    pub(crate) key: Cow<'a, str>,
    pub(crate) headers: MessageHeaders<'a>,
    pub(crate) body: Cow<'a, [u8]>,
}

impl<'a> From<Message<'a>> for Outgoing<'a> {
    fn from(message: Message<'a>) -> Self {
        let Message { target, key, headers, body, .. } = message;
        Self { topic: target, key, headers, body }
    }
}

/// The result of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All replicas in sync have the message.
    Acknowledged,
    /// The broker refused the message, or the message was dropped with its producer.
    Failed(Code),
    /// The client did not get the message, or no answer has come.
    None,
}

/// The answers that one call waits for.
pub(crate) struct Answers {
    state: Mutex<(Vec<Answer>, usize)>,
    complete: Notify,
}

impl Answers {
    pub(crate) fn of(count: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((vec![Answer::None; count], 0)), complete: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, (Vec<Answer>, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        self.state().1 += 1;
    }

    fn end(&self, index: usize, answer: Answer) {
        let mut state = self.state();
        state.0[index] = answer;
        state.1 -= 1;
        if state.1 == 0 {
            // The notification is kept for a waiter that comes later.
            self.complete.notify_one();
        }
    }

    /// Returns when each message that the client got has its answer.
    pub(crate) async fn complete(&self) {
        while self.state().1 > 0 {
            self.complete.notified().await;
        }
    }

    /// The answers so far.
    pub(crate) fn known(&self) -> Vec<Answer> {
        self.state().0.clone()
    }
}

/// The companion of a message in the client.
pub(crate) struct Ticket {
    answers: Arc<Answers>,
    index: usize,
    /// The message's permits of the queue, returned with the ticket.
    _room: OwnedSemaphorePermit,
}

impl Ticket {
    pub(crate) fn new(answers: &Arc<Answers>, index: usize, room: OwnedSemaphorePermit) -> Box<Self> {
        answers.begin();
        Box::new(Self { answers: Arc::clone(answers), index, _room: room })
    }
}

#[derive(Default)]
pub(crate) struct Events;

impl ClientContext for Events {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!(target: "keylane_kafka", facility, text, "the kafka client reports");
    }

    // An error here fails no record, because the client goes on trying.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "keylane_kafka", %error, reason, "the kafka client has met an error");
    }
}

impl ProducerContext for Events {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let answer = match result {
            Ok(_) => Answer::Acknowledged,
            Err((error, _)) => Answer::Failed(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        };
        ticket.answers.end(ticket.index, answer);
    }
}

/// One producer. After it is retired, it sends nothing more.
pub(crate) struct Session {
    /// The producer. `None` only during the drop.
    producer: Option<ThreadedProducer<Events>>,
    retired: AtomicBool,
}

impl Session {
    pub(crate) fn open(config: &ClientConfig) -> Result<Arc<Self>, KafkaError> {
        let producer = ThreadedProducer::from_config_and_context(config, Events)?;
        Ok(Arc::new(Self { producer: Some(producer), retired: AtomicBool::new(false) }))
    }

    /// Gives a message to the client. A message that the client refuses at once has its answer, too.
    ///
    /// Returns whether later messages of the key may follow.
    pub(crate) fn send(&self, message: &Outgoing<'_>, ticket: Box<Ticket>) -> bool {
        let Some(producer) = self.producer.as_ref().filter(|_| !self.is_retired()) else {
            ticket.answers.end(ticket.index, Answer::Failed(Code::PurgeQueue));
            return false;
        };
        let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
        for (key, value) in &message.headers {
            headers = headers.insert(Header { key, value: Some(&**value) });
        }
        let record = BaseRecord::with_opaque_to(&message.topic, ticket)
            .key(&*message.key)
            .payload(&*message.body)
            .headers(headers);
        let Err((error, record)) = producer.send(record) else { return true };
        let ticket = record.delivery_opaque;
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        ticket.answers.end(ticket.index, Answer::Failed(code));
        false
    }

    /// Drops the messages that wait in the client. Each of them gets an answer; some may have reached Kafka.
    pub(crate) fn retire(&self) {
        if let Some(producer) = self.producer.as_ref().filter(|_| !self.retired.swap(true, Relaxed)) {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// The fatal error of the client, if any.
    pub(crate) fn fatal(&self) -> Option<(Code, String)> {
        self.producer.as_ref()?.client().fatal_error()
    }
}

/// Ends the client on a thread of its own. The end takes up to half a second and would block the runtime.
impl Drop for Session {
    fn drop(&mut self) {
        let producer = self.producer.take();
        // If no thread can be started, the client ends here.
        let _ = std::thread::Builder::new().name("kafka-end".to_owned()).spawn(move || drop(producer));
    }
}
