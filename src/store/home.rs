//! The server on which an instance has joined.
//!
//! All knowledge of an instance concerns one server: the records in memory, the owned partitions, the
//! counters of the fence rows. A failover can lead to a server that has lost the latest commits and gives the
//! same ids to other records. An instance therefore stays on one server. If another server answers, the
//! instance drops its state and joins again.

use crate::{rules::horizon::Server, wake::Wake};

/// The server on which an instance has joined, and whether another one has answered since.
#[derive(Clone, Debug)]
pub(crate) struct HomeServer {
    server: Server,
    changed: Wake,
}

impl HomeServer {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, changed: Wake::default() }
    }

    /// Whether the server that answers is the home server. If it is another one, [`changed`](Self::changed)
    /// returns.
    pub(crate) fn is(&self, answering: Server) -> bool {
        let same = answering == self.server;
        if !same {
            self.changed.nudge();
        }
        same
    }

    /// Returns when another server has answered. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.changed.nudged().await;
    }
}

/// The text of the error of a call that another server has answered.
pub(crate) const OTHER_SERVER: &str =
    "another server answers than the one on which this instance has joined, or the server has crashed since";
