//! What goes to Kafka: topic, key, headers and body, with the headers of CloudEvents.

use keylane::Record;

/// A message for Kafka. The body is the record's payload as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Where to.
    pub topic: String,
    /// What chooses the partition.
    pub key: String,
    /// In this order.
    pub headers: Vec<(String, String)>,
}

/// CloudEvents 1.0 in binary mode, as its binding for Kafka has it: `ce_` before each attribute.
/// `sequence` compares as text, as its extension asks.
pub(crate) fn cloud_events(record: &Record, source: &str) -> Vec<(String, String)> {
    let delivery = &record.delivery;
    let mut headers = vec![
        ("ce_specversion".to_owned(), "1.0".to_owned()),
        ("ce_id".to_owned(), delivery.event_id.to_string()),
        ("ce_source".to_owned(), source.to_owned()),
        ("ce_type".to_owned(), delivery.record_type.to_string()),
        ("ce_partitionkey".to_owned(), delivery.key.to_string()),
        ("ce_sequence".to_owned(), format!("{:020}", delivery.id)),
        ("content-type".to_owned(), delivery.content_type.to_string()),
    ];
    for trace in ["traceparent", "tracestate"] {
        if let Some(value) = delivery.headers.get(trace) {
            headers.push((format!("ce_{trace}"), value.clone()));
        }
    }
    headers
}

/// Adds a header unless there is one of this name.
pub(crate) fn add(headers: &mut Vec<(String, String)>, name: &str, value: &str) {
    if !headers.iter().any(|(there, _)| there == name) {
        headers.push((name.to_owned(), value.to_owned()));
    }
}
