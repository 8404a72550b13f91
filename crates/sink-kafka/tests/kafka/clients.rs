//! Asking a broker although a client may forget its brokers.

use std::{fmt::Debug, thread, time::Duration};

use tokio::time::Instant;

use super::leaders::PATIENCE;

/// Asks with a client, and with another one after each failure: a broker that has just started has no coordinator at
/// first, and a client may forget its brokers then (librdkafka, issue 5301). Blocks the thread meanwhile.
pub(crate) fn with_another_client<T, E: Debug>(what: &str, ask: impl Fn() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(instead) => assert!(began.elapsed() < PATIENCE, "{what}: {instead:?}"),
        }
        thread::park_timeout(Duration::from_millis(100));
    }
}
