//! Reading a topic although a client may forget its brokers.

use std::fmt::Debug;

const CLIENTS: usize = 2;

/// Reads a topic with a client, and with another one if the first fails: a client may forget its brokers when they have
/// just started (librdkafka, issue 5301).
pub(crate) fn with_another_client<T, E: Debug>(topic: &str, read: impl Fn() -> Result<T, E>) -> T {
    let mut found = read();
    for _ in 1..CLIENTS {
        found = found.or_else(|_| read());
    }
    found.unwrap_or_else(|instead| panic!("{topic} cannot be read: {instead:?}"))
}
