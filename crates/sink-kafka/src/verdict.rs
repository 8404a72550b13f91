//! The consequence of each Kafka error for a record. All errors are sorted here.

use std::time::Duration;

use keylane::HandlerError;
use rdkafka::error::RDKafkaErrorCode as Code;

/// The consequence of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The brokers cannot accept the message now. No attempt counts.
    Away,
    /// The topic accepts no message. The record fails for good.
    TopicRejected,
    /// The broker refuses a batch. The record fails for good if the broker refuses it alone, too.
    MessageRejected,
    /// The producer cannot send any more. A new producer sends the message again.
    ProducerBroken,
    /// Any other error: the retry policy decides, and the attempt counts.
    Other,
}

/// Sorts an error.
pub fn verdict(code: Code) -> Verdict {
    match code {
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::Resolve
        | Code::MessageTimedOut
        | Code::OperationTimedOut
        | Code::TimedOutQueue
        | Code::RequestTimedOut
        | Code::NetworkException
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::BrokerNotAvailable
        | Code::ReplicaNotAvailable
        | Code::NotEnoughReplicas
        | Code::NotEnoughReplicasAfterAppend
        | Code::ISRInsufficient
        | Code::KafkaStorageError
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::CoordinatorLoadInProgress
        | Code::CoordinatorNotAvailable
        | Code::NotCoordinator
        | Code::NotController
        | Code::ThrottlingQuotaExceeded
        | Code::QueueFull
        | Code::SSL
        // Wrong credentials are not the fault of a record.
        | Code::Authentication
        | Code::SaslAuthenticationFailed => Verdict::Away,
        Code::UnknownTopic
        | Code::UnknownTopicOrPartition
        | Code::UnknownPartition
        | Code::InvalidTopic
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed => Verdict::TopicRejected,
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat => Verdict::MessageRejected,
        Code::Fatal
        | Code::GaplessGuarantee
        | Code::PurgeQueue
        | Code::PurgeInflight
        | Code::BrokerDestroy
        | Code::State
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::InvalidProducerIdMapping
        | Code::ProducerFenced
        | Code::Fenced => Verdict::ProducerBroken,
        _ => Verdict::Other,
    }
}

/// The reason why a record was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No route of the sink accepts the record.
    #[error(
        "no route takes records of type {record_type}: add one with KafkaSink::route, or call KafkaSink::skip_unrouted"
    )]
    Unrouted {
        /// The type of the record.
        record_type: String,
    },
    /// Kafka refused the message.
    #[error("kafka did not take {bytes} bytes for topic {topic}: {code}")]
    Refused {
        /// The topic.
        topic: String,
        /// The size of key, headers and body, in bytes.
        bytes: usize,
        /// The text of the broker or the client.
        code: Code,
    },
    /// No acknowledgement arrived in time.
    #[error("no acknowledgement of topic {topic} within {waited:?}")]
    NoAnswer {
        /// The topic.
        topic: String,
        /// The time that the call has waited.
        waited: Duration,
    },
    /// An earlier record of the same key was not sent.
    #[error("an earlier record of the key was not sent")]
    Behind,
    /// The brokers are away, and another call tries whether they are back.
    #[error("the brokers are away")]
    Away,
}

/// A message without an acknowledgement. It may have reached the topic all the same.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct NotSent {
    /// The reason.
    pub error: SendError,
    /// The consequence.
    pub verdict: Verdict,
}

impl NotSent {
    pub(crate) fn of(error: SendError, verdict: Verdict) -> Self {
        Self { error, verdict }
    }

    /// Whether a repetition may succeed. If not, the topic or the broker refuses this message.
    pub fn is_retryable(&self) -> bool {
        !matches!(self.verdict, Verdict::TopicRejected | Verdict::MessageRejected)
    }

    /// The error for the outbox.
    pub(crate) fn told(self, retry_after: Duration) -> HandlerError {
        match self.verdict {
            Verdict::TopicRejected | Verdict::MessageRejected => {
                HandlerError::permanent(self.error).class("kafka-rejected")
            }
            Verdict::Away | Verdict::ProducerBroken => {
                HandlerError::new(self.error).class("kafka-away").uncounted(retry_after)
            }
            Verdict::Other => HandlerError::new(self.error).class("kafka"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_as_the_page_says() {
        let table = [
            (Code::BrokerTransportFailure, Verdict::Away),
            (Code::AllBrokersDown, Verdict::Away),
            (Code::NotEnoughReplicas, Verdict::Away),
            (Code::NotLeaderForPartition, Verdict::Away),
            (Code::SaslAuthenticationFailed, Verdict::Away),
            (Code::UnknownTopic, Verdict::TopicRejected),
            (Code::UnknownTopicOrPartition, Verdict::TopicRejected),
            (Code::TopicAuthorizationFailed, Verdict::TopicRejected),
            (Code::MessageSizeTooLarge, Verdict::MessageRejected),
            (Code::InvalidRecord, Verdict::MessageRejected),
            (Code::Fatal, Verdict::ProducerBroken),
            (Code::GaplessGuarantee, Verdict::ProducerBroken),
            (Code::PurgeInflight, Verdict::ProducerBroken),
            (Code::OutOfOrderSequenceNumber, Verdict::ProducerBroken),
            (Code::Unknown, Verdict::Other),
        ];
        for (code, expected) in table {
            assert_eq!(verdict(code), expected, "{code}");
        }
    }

    #[test]
    fn the_outbox_is_told_what_counts() {
        let told = |verdict| {
            let error = NotSent::of(SendError::Behind, verdict);
            let is_retryable = error.is_retryable();
            let told = error.told(Duration::from_secs(2));
            let fault = told.fault();
            assert_eq!(is_retryable, !fault.permanent);
            (fault.permanent, fault.unavailable)
        };
        assert_eq!(told(Verdict::Away), (false, true));
        assert_eq!(told(Verdict::ProducerBroken), (false, true));
        assert_eq!(told(Verdict::TopicRejected), (true, false));
        assert_eq!(told(Verdict::MessageRejected), (true, false));
        assert_eq!(told(Verdict::Other), (false, false));
    }

    #[test]
    fn a_refusal_has_the_words_of_the_broker() {
        let error = SendError::Refused { topic: "t".into(), bytes: 9, code: Code::MessageSizeTooLarge };
        let text = error.to_string();
        assert!(text.contains("9 bytes for topic t") && text.contains("Message size too large"), "{text}");
    }
}
