//! A producer without an outbox, for services that want only the message.

use keylane_message::{Binding, Event, Form};

use crate::{
    call::Call,
    config::{ConfigError, KafkaConfig},
    producers::Producers,
    session::Outgoing,
    verdict::{NotSent, SendError, Verdict},
};

/// Sends events that no outbox has. Their messages have the form, the partition and the acknowledgements of those
/// of a [`KafkaSink`](crate::KafkaSink).
///
/// Nothing repeats an event that was not sent: after a crash of the process it is lost. If an event belongs to a
/// change in a database, schedule it in an outbox.
///
/// ```no_run
/// use keylane_kafka::{Event, KafkaConfig, KafkaProducer};
///
/// # async fn run(event_id: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let producer = KafkaProducer::new(KafkaConfig::new("127.0.0.1:9092").source("/shop"))?;
/// let event = Event::new(event_id, "payment.made", "customer-7", br#"{"amount":20}"#);
/// producer.send("payments", &event).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KafkaProducer {
    producers: Producers,
    form: Form,
}

impl KafkaProducer {
    /// Creates a producer. It does not connect, because Kafka may be away when a service starts.
    ///
    /// # Errors
    /// [`ConfigError`]: a setting is not valid.
    pub fn new(config: KafkaConfig) -> Result<Self, ConfigError> {
        Ok(Self { producers: Producers::new(config)?, form: Form::CloudEvents })
    }

    /// Sets the form of the messages. Default [`Form::CloudEvents`].
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Sends an event, and returns when all replicas in sync have its message. The source is that of the settings.
    ///
    /// The events of a key arrive in order if each one is sent after the acknowledgement of the one before. Those of
    /// different keys may be sent at once.
    ///
    /// # Errors
    /// [`NotSent`]. The message may have reached the topic all the same. Send it again with the same event id, so that
    /// consumers see that it is the same.
    ///
    /// # Cancel safety
    /// If the future is dropped, the message may be sent or not.
    pub async fn send(&self, topic: &str, event: &Event<'_>) -> Result<(), NotSent> {
        let mut event = event.clone();
        event.source = &self.producers.config.source;
        let events = [&event];
        let call = Call::new(
            &self.producers,
            &events,
            |_| Some(Ok(())),
            |event| {
                let (headers, body) = event.write(self.form, Binding::Kafka);
                Some(Outgoing { topic: topic.into(), key: event.key.into(), headers, body })
            },
        );
        let sent = call.run().await;
        // There is one result per event.
        sent.into_iter().next().unwrap_or_else(|| Err(NotSent::of(SendError::Behind, Verdict::Away)))
    }
}
