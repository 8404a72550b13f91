//! The plan of a relay, from the file and the command line.

use keylane::Config;

use super::{Source, config::RelayConfig, database::Opened};
use crate::settings::{Secrets, Settings};

/// Everything that is needed to build the workers of a relay.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) relay: RelayConfig,
    pub(crate) database_url: String,
    pub(crate) secrets: Secrets,
}

/// Why there is no plan. The text contains no secrets.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PlanError(pub(crate) String);

impl Plan {
    /// Reads the file and checks all that can be checked without a connection.
    ///
    /// # Errors
    /// The mistake, as a sentence.
    pub(crate) fn read(source: &Source) -> Result<Self, PlanError> {
        let settings = Settings::read(Some(&source.file)).map_err(|error| PlanError(error.to_string()))?;
        Self::of(settings, source.database_url.as_deref(), &source.file.display().to_string())
    }

    /// The plan of settings that were read.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn of(settings: Settings, database_url: Option<&str>, file: &str) -> Result<Self, PlanError> {
        let Settings { config, relay, mut secrets } = settings;
        let relay =
            relay.ok_or_else(|| PlanError(format!("{file} has no table [relay]: see docs/relay.md")))?;
        let relay: RelayConfig =
            secrets.deserialize("relay", relay).map_err(|error| PlanError(error.to_string()))?;
        let url = database_url.or(relay.database_url()).map(str::to_owned);
        let url = url.ok_or_else(|| {
            PlanError("give relay.database_url in the file, --database-url, or set DATABASE_URL".to_owned())
        })?;
        secrets.keep("DATABASE_URL", &url);
        config.validate().map_err(|error| PlanError(error.to_string()))?;
        Ok(Self { config, relay, database_url: url, secrets })
    }

    /// The outbox with the relay as its handler. It does not connect.
    ///
    /// # Errors
    /// A mistake in the routes, or settings that contradict each other.
    pub(crate) async fn open(&self) -> Result<Opened, PlanError> {
        let registrations = self.relay.registrations().map_err(|problem| self.error(&problem))?;
        let opened = Opened::new(&self.database_url, &self.config, registrations).await;
        opened.map_err(|error| self.error(&error.to_string()))
    }

    fn error(&self, problem: &str) -> PlanError {
        PlanError(self.secrets.redact(problem))
    }
}
