//! Headers come back unchanged out of a row and out of a message, and any message is read or refused.
//!
//! The first byte chooses the form and the protocol. The next lines are headers as `name=value`, and the body follows
//! an empty line.

use std::collections::BTreeMap;

use keylane::inner::Tables;
use keylane_message::{Binding, Event, Form, Received};

use crate::record::{inserted, record, statements, text};

type Headers = BTreeMap<String, String>;

pub(crate) fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let form = Form::ALL[usize::from(*choice) % Form::ALL.len()];
    let binding = if *choice < 128 { Binding::Kafka } else { Binding::Http };
    let (head, body) = split(rest);
    let head = String::from_utf8_lossy(head);
    let headers: Headers = head
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .collect();
    stored(&headers);
    sent(&headers, form, binding, body);
    received(&headers, form, body);
}

/// The parts before and after the first empty line.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.windows(2).position(|pair| pair == b"\n\n");
    end.map_or((data, &[]), |end| (&data[..end], &data[end + 2..]))
}

/// The workers read the same headers out of the text in the row.
fn stored(headers: &Headers) {
    let mut given = record("order-42");
    given.headers = headers.clone();
    for statements in statements(&Tables::default(), &given, None) {
        let read = match &inserted(&statements)[7] {
            keylane::sql::Value::Null => Headers::new(),
            value => serde_json::from_str(text(value)).expect("headers in a row can be read"),
        };
        assert_eq!(&read, headers);
    }
}

/// A consumer finds the event in the message, with any headers of the event.
fn sent(headers: &Headers, form: Form, binding: Binding, body: &[u8]) {
    let mut event = Event::new("0198f5f0-1c7e-7000-8000-000000000001", "order.placed", "order-42", body);
    event.sequence = Some(42);
    event.headers = headers;
    let (written, body) = event.write(form, binding);
    // Names that differ only in the case of letters are one name.
    let mut names: Vec<String> = written.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    let own: Vec<String> = headers.keys().map(|name| name.to_ascii_lowercase()).collect();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        let by_event = own.iter().filter(|name| **name == pair[0]).count();
        assert!(by_event > 1, "the header {:?} is there twice: {written:?}", pair[0]);
    }
    // Only headers tell the form of a plain message, and the event may have such headers.
    if form == Form::Plain {
        return;
    }
    let pairs = written.iter().map(|(name, value)| (&**name, value.as_bytes()));
    let received = Received::read_as(form, pairs, None, &body).expect("what is written can be read");
    assert_eq!(received.event_id.as_deref(), Some(&*event.id), "{form:?} {headers:?}");
    assert_eq!(received.record_type.as_deref(), Some("order.placed"), "{form:?} {headers:?}");
    assert_eq!(received.content_type.as_deref(), Some("application/json"), "{form:?} {headers:?}");
    assert_eq!(received.sequence, Some(42), "{form:?} {headers:?}");
}

/// Any headers and any body are a message, or are refused with a sentence.
fn received(headers: &Headers, form: Form, body: &[u8]) {
    let pairs = || headers.iter().map(|(name, value)| (&**name, value.as_bytes()));
    for read in [Received::read(pairs(), Some(b"key"), body), Received::read_as(form, pairs(), None, body)] {
        match read {
            Ok(received) => assert!(received.payload.len() <= body.len(), "{received:?}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
