//! A log in memory, for tests that read what was logged.

use std::{
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex},
};

use tracing::{Dispatch, subscriber::DefaultGuard};

/// As long as a process has one subscriber only, tracing asks the thread that first comes by a line of the log
/// whether anybody wants it: a thread of another test, without a subscriber, would turn the line off for all.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Takes what this thread logs while the guard lives.
    pub(crate) fn begin() -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND);
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines with this text.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
