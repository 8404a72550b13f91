//! Every error has a class: codes of databases, statuses of HTTP, and errors of handlers.
//!
//! The first four bytes are a number, the rest is a text.

use std::time::Duration;

use keylane::{
    HandlerError,
    database::ErrorClass::{self, Duplicate, Reconnect, Record, Refused, Resource, Retry, Setup, WrongNode},
    inner::{class_of_code, class_of_number, class_of_state},
};
use keylane_webhook::{Verdict, verdict};

pub(crate) fn run(data: &[u8]) {
    let (number, text) = data.split_at(data.len().min(4));
    let mut bytes = [0; 4];
    bytes[..number.len()].copy_from_slice(number);
    let number = u32::from_le_bytes(bytes);
    let text = String::from_utf8_lossy(text);
    states(&text);
    numbers(number as u16);
    codes(i64::from(number as i32));
    statuses(number as u16);
    errors(&text, number);
}

/// The first two characters of a SQLSTATE decide its class, with few exceptions.
fn states(text: &str) {
    let class = class_of_state(text);
    let alone: [(&str, ErrorClass); 12] = [
        ("40001", Retry),
        ("40P01", Retry),
        ("55P03", Retry),
        ("57014", Retry),
        ("25006", WrongNode),
        ("25P02", Record),
        ("23505", Duplicate),
        ("57P01", Reconnect),
        ("57P02", Reconnect),
        ("57P03", Reconnect),
        ("57P05", Reconnect),
        ("0A000", Reconnect),
    ];
    let of_its_own = alone.iter().find(|(state, _)| *state == text);
    let expected = of_its_own.map(|(_, class)| *class).unwrap_or_else(|| match text.as_bytes() {
        [b'5', b'3', ..] => Resource,
        [b'2', b'2' | b'3', ..] | [b'5', b'4', ..] => Record,
        [b'4', b'2', ..] | [b'3', b'F' | b'D', ..] | [b'2', b'8', ..] => Setup,
        [b'0', b'8' | b'A' | b'B', ..] | [b'2', b'5' | b'6', ..] | [b'5', b'7' | b'8', ..] => Reconnect,
        [b'F', b'0', ..] | [b'X', b'X', ..] => Reconnect,
        // A text that is no state comes from a broken connection.
        _ if text.get(..2).is_none() => Reconnect,
        _ => Refused,
    });
    assert_eq!(class, expected, "{text:?}");
}

/// Numbers of clients and of connections never blame a record. A number that no server has is a refusal.
fn numbers(number: u16) {
    let class = class_of_number(number);
    match number {
        0..=999 | 2000..=2999 => assert_eq!(class, Reconnect, "{number}"),
        // Number 1644 is raised by a trigger. The others are above those of any server.
        1644 | 10_000.. => assert_eq!(class, Refused, "{number}"),
        1205 | 1213 => assert_eq!(class, Retry),
        1062 => assert_eq!(class, Duplicate),
        1406 => assert_eq!(class, Record),
        1146 => assert_eq!(class, Setup),
        _ => assert!(ErrorClass::ALL.contains(&class)),
    }
}

/// An extended code of SQLite has the class of its primary code, except those of unique keys.
fn codes(code: i64) {
    let class = class_of_code(code);
    match code {
        2067 | 1555 | 2579 => assert_eq!(class, Duplicate),
        _ => assert_eq!(class, class_of_code(code & 0xff), "{code}"),
    }
}

fn statuses(status: u16) {
    let found = verdict(status);
    assert_eq!(found == Verdict::Delivered, (200..300).contains(&status), "{status}");
    assert!(found != Verdict::Rejected || (300..500).contains(&status), "{status}");
}

/// The text of a handler's error is one line, cut to its limit. The error keeps its class.
fn errors(text: &str, number: u32) {
    let delay = Duration::from_millis(u64::from(number));
    let error = HandlerError::new(text.to_owned()).class(text.to_owned()).retry_after(delay);
    let fault = error.fault();
    assert_eq!((fault.class, fault.retry_after), (Some(text), Some(delay)));
    assert!(!fault.permanent && !fault.unavailable && !fault.undecodable && !fault.expired);
    assert!(HandlerError::permanent(text.to_owned()).fault().permanent);
    let away = HandlerError::new(text.to_owned()).uncounted(delay);
    assert!(away.fault().unavailable && away.fault().retry_after == Some(delay));
    let limit = (number % 64) as usize;
    let line = error.text(limit);
    assert!(line.len() <= limit && !line.contains(char::is_control), "{line:?}");
    assert!(text.replace(char::is_control, " ").starts_with(&line), "{line:?} of {text:?}");
}
