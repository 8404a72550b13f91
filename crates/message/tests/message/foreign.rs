//! Messages of other producers, and messages that are not what they say.

use keylane_message::{Binding, Event, Form, ReadError, Received};

fn read<'a>(headers: &[(&str, &str)], body: &'a str) -> Result<Received<'a>, ReadError> {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    Received::read(headers, Some(b"of-the-message"), body.as_bytes())
}

/// The structured example of the specification, with its attribute names.
#[test]
fn a_structured_event_of_another_producer_is_read() {
    let body = r#"{
        "specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext", "subject": null,
        "id": "C234-1234-1234", "time": "2018-04-05T17:31:00Z", "comexampleextension1": "value",
        "comexampleothervalue": 5, "datacontenttype": "application/vnd.apache.thrift.binary",
        "data_base64": "AQID"
    }"#;
    let received = read(&[("Content-Type", "application/cloudevents+json; charset=UTF-8")], body).unwrap();
    assert_eq!(received.form, Form::CloudEventsJson);
    assert_eq!(received.event_id.as_deref(), Some("C234-1234-1234"));
    assert_eq!(received.key.as_deref(), Some("of-the-message"));
    assert_eq!(received.content_type.as_deref(), Some("application/vnd.apache.thrift.binary"));
    assert_eq!(&*received.payload, [1, 2, 3]);
    assert_eq!(received.headers["ce_time"], "2018-04-05T17:31:00Z");
    assert_eq!(received.headers["ce_comexampleothervalue"], "5");
}

#[test]
fn a_binary_event_is_read_from_http_and_from_kafka() {
    let facts = [("specversion", "1.0"), ("id", "a%20b"), ("type", "t"), ("source", "/s"), ("subject", "x")];
    let with = |prefix: &str| facts.map(|(name, value)| (format!("{prefix}{name}"), value));
    for (prefix, id) in [("ce_", "a%20b"), ("ce-", "a b"), ("CE-", "a b")] {
        let headers = with(prefix);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let received = read(&headers, "body").unwrap();
        assert_eq!((received.form, received.event_id.as_deref()), (Form::CloudEvents, Some(id)), "{prefix}");
        assert_eq!(received.headers[&format!("{prefix}subject")], "x");
    }
}

/// No header tells this form, if it was not keylane that wrote it.
#[test]
fn an_envelope_of_another_producer_is_read_when_it_is_asked_for() {
    let body =
        br#"{"messageId":"m-1","traceId":"t-1","bizKey":"order-42","payload":{"id":42},"createdAt":1}"#;
    let none: [(&str, &[u8]); 0] = [];
    let received = Received::read_as(Form::BaseEvent, none, None, body).unwrap();
    assert_eq!((received.event_id.as_deref(), received.key.as_deref()), (Some("m-1"), Some("order-42")));
    assert_eq!(received.trace.trace_id.as_deref(), Some("t-1"));
    assert_eq!(&*received.payload, br#"{"id":42}"#);
    assert_eq!(received.content_type.as_deref(), Some("application/json"));
    assert_eq!(Received::read(none, None, body).unwrap().form, Form::Plain);
}

#[test]
fn the_last_of_several_headers_counts() {
    let received = read(&[("tenant", "old"), ("tenant", "new")], "").unwrap();
    assert_eq!(received.headers["tenant"], "new");
}

/// Headers, the body, and the words of the error.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);

#[test]
fn what_a_message_lacks_is_named() {
    let structured = [("content-type", "application/cloudevents+json")];
    let table: [Case<'_>; 6] = [
        (&[("ce_specversion", "1.0")], "", "the message has no id, which the form cloud-events needs"),
        (
            &[("ce_specversion", "0.3")],
            "",
            "the message is a CloudEvent of version \"0.3\", but only 1.0 can be read",
        ),
        (&structured, "{}", "the message has no specversion, which the form cloud-events-json needs"),
        (
            &structured,
            "secret",
            "the body is not an object of the form cloud-events-json at line 1, column 1",
        ),
        (&structured, "{\"data_base64\":\"?\"}", "the field data_base64 is not base64"),
        (
            &[("content-type", "application/cloudevents-batch+json")],
            "[]",
            "the message is a batch of CloudEvents, but only single events can be read",
        ),
    ];
    for (headers, body, expected) in table {
        assert_eq!(read(headers, body).unwrap_err().to_string(), expected);
    }
}

/// What a consumer behind Debezium's outbox event router expects, with `type:header:eventType`.
#[test]
fn the_headers_of_debezium_are_there() {
    let event = Event::new("4d47e190", "OrderCreated", "1", b"{\"id\":1}");
    let (headers, body) = event.write(Form::Debezium, Binding::Kafka);
    assert_eq!(headers[0], ("id".into(), "4d47e190".into()));
    assert_eq!(headers[1], ("eventType".into(), "OrderCreated".into()));
    assert_eq!(&*body, b"{\"id\":1}");
}

#[test]
fn an_envelope_has_the_fields_of_its_consumers() {
    let event = Event::new("7", "order.placed", "order-42", b"{\"id\":42}");
    let (_, body) = event.write(Form::BaseEvent, Binding::Kafka);
    let expected = r#"{"messageId":"7","eventId":"7","bizKey":"order-42","payload":{"id":42}}"#;
    assert_eq!(std::str::from_utf8(&body), Ok(expected));
}
