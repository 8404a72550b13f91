//! Redis, as the guards use it: scripts, each with a time limit.

use std::{fmt, time::Duration};

use redis::{
    Client, FromRedisValue, IntoConnectionInfo, ScriptInvocation,
    aio::{ConnectionManager, ConnectionManagerConfig},
};

use crate::error::{SettingError, StoreError};

/// How long an answer may take.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a connection may take to be made.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// A Redis server, or a server with its protocol, for the guards of one process. Clones are cheap and share one
/// connection. The first call opens the connection, and it is opened again when it is lost.
#[derive(Clone)]
pub struct Redis {
    connection: ConnectionManager,
    timeout: Duration,
}

impl fmt::Debug for Redis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redis").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Redis {
    /// A server by its address, `redis://host:port/`. No connection is opened. A call waits for 500 ms at most.
    ///
    /// # Errors
    /// [`SettingError::Address`], which has nothing of the address, because it may have a password.
    pub async fn open(url: &str) -> Result<Self, SettingError> {
        let info = url.into_connection_info().map_err(|_| SettingError::Address)?;
        let client = Client::open(info).map_err(|_| SettingError::Address)?;
        // A call that finds no connection fails at once. A new connection is opened meanwhile.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(CONNECTION_TIMEOUT))
            .set_response_timeout(Some(CALL_TIMEOUT));
        let connection = ConnectionManager::new_lazy_with_config(client, config);
        Ok(Self::with(connection.map_err(|_| SettingError::Address)?))
    }

    /// A connection of the service, with settings of its own.
    pub fn with(connection: ConnectionManager) -> Self {
        Self { connection, timeout: CALL_TIMEOUT }
    }

    /// How long a guard waits for an answer; 500 ms by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs a script.
    ///
    /// # Errors
    /// [`StoreError`]: it failed, or has not answered in time.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        call: &'static str,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        match tokio::time::timeout(self.timeout, script.invoke_async(&mut connection)).await {
            Ok(answer) => answer.map_err(|error| StoreError::Store { call, source: error.into() }),
            Err(_) => Err(StoreError::NoAnswer { call, limit: self.timeout }),
        }
    }
}
