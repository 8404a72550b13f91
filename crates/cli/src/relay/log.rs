//! The log of a relay: one line per event on stderr, as text or as JSON.

use std::io::stderr;

use tracing_subscriber::EnvFilter;

use super::config::LogForm;

/// The filter of the log if RUST_LOG is not set.
const LEVELS: &str = "info,sqlx=warn";

/// Begins to log. Called once.
pub(crate) fn begin(form: LogForm) {
    let levels = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LEVELS));
    let log = tracing_subscriber::fmt().with_env_filter(levels).with_writer(stderr).with_ansi(false);
    match form {
        LogForm::Text => log.init(),
        LogForm::Json => log.json().flatten_event(true).init(),
    }
}
