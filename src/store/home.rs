//! The server on which an instance has joined.
//!
//! What an instance knows, it knows of one server: which records it has in memory, which partitions it owns, how
//! far its fence rows have moved. A failover can lead to a server that has never heard of the last of it, and
//! that gives the same ids to other records. An instance therefore stays on one server. When another one
//! answers, the instance gives up all that it knows and joins again.

use crate::{rules::watermark::Server, wake::Wake};

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

    /// Whether the server that answers is this one.
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

/// What a call says that another server has answered.
pub(crate) const OTHER_SERVER: &str =
    "another server answers than the one on which this instance has joined, or the server has crashed since";
