//! Reading is the way back from writing.

use std::collections::BTreeMap;

use keylane_message::{Binding, Event, Form, Received};
use proptest::{collection::btree_map, option, prelude::*};

/// Payloads with media types that fit, and with some that lie.
fn payload() -> impl Strategy<Value = (String, Vec<u8>)> {
    let json = prop_oneof![
        Just("null".to_owned()),
        "[a-zé\"\\\\]{0,8}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        any::<f64>().prop_filter("JSON has none else", |n| n.is_finite()).prop_map(|n| n.to_string()),
        btree_map("[a-z]{1,4}", any::<i64>(), 0..4).prop_map(|map| serde_json::to_string(&map).unwrap()),
    ];
    let bytes = prop_oneof![json.prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 0..40)];
    let types = [
        "application/json",
        "application/json; version=2",
        "application/vnd.shop+json",
        "application/cbor",
        "text/plain",
    ];
    // White space around JSON is no part of it, and a form may drop it.
    (proptest::sample::select(types.to_vec()), bytes)
        .prop_filter("white space", |(_, bytes)| bytes.trim_ascii().len() == bytes.len())
        .prop_map(|(content_type, bytes)| (content_type.to_owned(), bytes))
}

fn headers() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = prop_oneof!["x-[a-z]{1,6}", Just("tenant".to_owned()), Just("trace_id".to_owned())];
    let trace = option::of("00-[0-9a-f]{32}-[0-9a-f]{16}-01");
    (btree_map(names, "\\PC{0,12}", 0..4), trace, option::of("[a-z]=[0-9]{1,3}")).prop_map(
        |(mut headers, parent, state)| {
            headers.extend(parent.map(|value| ("traceparent".to_owned(), value)));
            headers.extend(state.map(|value| ("tracestate".to_owned(), value)));
            headers
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_written_is_read_back(
        form in proptest::sample::select(&Form::ALL[..]),
        http in any::<bool>(),
        (id, record_type) in ("\\PC{1,20}", "[a-z.]{1,12}"),
        (key, source) in ("\\PC{1,12}", "/[a-z%]{0,6}"),
        sequence in option::of(0..i64::MAX),
        (content_type, payload) in payload(),
        headers in headers(),
    ) {
        let mut event = Event::new(id, &record_type, &key, &payload);
        event.source = &source;
        event.sequence = sequence;
        event.content_type = &content_type;
        event.headers = &headers;
        let binding = if http { Binding::Http } else { Binding::Kafka };
        let (written, body) = event.write(form, binding);
        // What carries headers in HTTP writes names in small letters.
        let written: Vec<(String, String)> = written
            .into_iter()
            .map(|(name, value)| (if http { name.to_lowercase() } else { name.into_owned() }, value.into_owned()))
            .collect();
        let pairs = || written.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let received = Received::read(pairs(), Some(key.as_bytes()), &body).unwrap();
        prop_assert_eq!(&received, &Received::read_as(form, pairs(), Some(key.as_bytes()), &body).unwrap());
        prop_assert_eq!(received.form, form);
        prop_assert_eq!(&*received.payload, &payload[..]);
        prop_assert_eq!(received.key.as_deref(), Some(&*key));
        prop_assert_eq!(&received.headers, &headers);
        prop_assert_eq!(received.trace.traceparent.as_ref(), headers.get("traceparent"));
        prop_assert_eq!(received.trace.tracestate.as_ref(), headers.get("tracestate"));
        prop_assert_eq!(received.trace.trace_id.as_deref(), event.trace_id());
        let is_plain = form == Form::Plain;
        prop_assert_eq!(received.event_id.as_deref(), (!is_plain).then_some(&*event.id));
        prop_assert_eq!(received.record_type.as_deref(), (!is_plain).then_some(&*record_type));
        prop_assert_eq!(received.content_type.as_deref(), (!is_plain).then_some(&*content_type));
        prop_assert_eq!(received.sequence, sequence.filter(|_| !is_plain));
        let has_source = matches!(form, Form::CloudEvents | Form::CloudEventsJson);
        prop_assert_eq!(received.source.as_deref(), has_source.then_some(&*source));
    }

    #[test]
    fn no_message_makes_the_reader_panic(
        form in proptest::sample::select(&Form::ALL[..]),
        names in proptest::collection::vec("ce_id|ce_specversion|content-type|id|eventType|keylane-sequence|[a-z]{0,3}", 0..5),
        value in proptest::collection::vec(any::<u8>(), 0..12),
        body in prop_oneof!["[\\[{\"a:,}\\]0]{0,20}".prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 0..40)],
    ) {
        let headers = || names.iter().map(|name| (name.as_str(), value.as_slice()));
        let _ = Received::read(headers(), None, &body);
        let _ = Received::read_as(form, headers(), Some(&value), &body);
    }
}

/// `Ce_id` was read as the id of the event, because readers compare names without case; over HTTP, `ce_id` was.
#[test]
fn no_header_of_a_record_takes_the_place_of_one_of_the_form() {
    let own = ["Ce_id", "Ce-Type", "ID", "Keylane-Type", "X-A", "x-a"];
    let headers = BTreeMap::from(own.map(|name| (name.to_owned(), name.to_owned())));
    let mut event = Event::new("7", "order.placed", "order-42", b"{}");
    event.headers = &headers;
    let table: [(Form, Binding, &[&str]); 4] = [
        (Form::CloudEvents, Binding::Kafka, &["Ce_id", "Ce-Type"]),
        (Form::CloudEvents, Binding::Http, &["Ce_id", "Ce-Type"]),
        (Form::Debezium, Binding::Kafka, &["ID"]),
        (Form::BaseEvent, Binding::Kafka, &["Keylane-Type"]),
    ];
    for (form, binding, left_out) in table {
        let (written, body) = event.write(form, binding);
        let pairs = written.iter().map(|(name, value)| (&**name, value.as_bytes()));
        let received = Received::read_as(form, pairs, None, &body).unwrap();
        assert_eq!(received.event_id.as_deref(), Some("7"), "{form:?}");
        assert_eq!(received.record_type.as_deref(), Some("order.placed"), "{form:?}");
        let kept: Vec<&str> = received.headers.keys().map(String::as_str).collect();
        let wanted: Vec<&str> =
            headers.keys().map(|name| &**name).filter(|name| !left_out.contains(name)).collect();
        assert_eq!(kept, wanted, "{form:?}");
    }
}
