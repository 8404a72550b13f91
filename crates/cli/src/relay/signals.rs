//! The signals of the system to the process.

use std::io;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An orderly end, with the number of the signal.
    Stop(u8),
    /// A reload of the file.
    Reload,
}

pub(crate) use imp::Signals;

#[cfg(unix)]
mod imp {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::{Asked, io};

    pub(crate) struct Signals {
        terminate: Signal,
        interrupt: Signal,
        hangup: Signal,
    }

    impl Signals {
        /// Catches the signals: from now on they do not end the process.
        pub(crate) fn listen() -> io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hangup: signal(SignalKind::hangup())?,
            })
        }

        pub(crate) async fn next(&mut self) -> Asked {
            tokio::select! {
                _ = self.terminate.recv() => Asked::Stop(15),
                _ = self.interrupt.recv() => Asked::Stop(2),
                _ = self.hangup.recv() => Asked::Reload,
            }
        }
    }
}

#[cfg(not(unix))]
mod imp {
    use super::{Asked, io};

    /// On other systems there is only Ctrl-C.
    pub(crate) struct Signals(());

    impl Signals {
        pub(crate) fn listen() -> io::Result<Self> {
            Ok(Self(()))
        }

        pub(crate) async fn next(&mut self) -> Asked {
            match tokio::signal::ctrl_c().await {
                Ok(()) => Asked::Stop(2),
                Err(_) => std::future::pending().await,
            }
        }
    }
}

impl Signals {
    /// Waits for a signal that asks for the end. Returns its number.
    pub(crate) async fn stop(&mut self) -> u8 {
        loop {
            if let Asked::Stop(number) = self.next().await {
                return number;
            }
        }
    }
}
