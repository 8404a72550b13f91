//! The endpoints that are away. One request at a time tries such an endpoint, and no other is sent to it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The most endpoints that are tracked as away. Routes can yield any number of endpoints. Those above the limit
/// are tried like all others.
const LIMIT: usize = 4096;

/// The endpoints that are away.
#[derive(Debug, Default)]
pub(crate) struct Endpoints(Mutex<HashMap<String, Away>>);

#[derive(Debug)]
struct Away {
    until: Instant,
    tried: bool,
}

/// Whether a request may be sent.
pub(crate) enum Admission<'a> {
    /// The request may be sent.
    Go(Option<Trial<'a>>),
    /// The request must wait for this time.
    Wait(Duration),
}

/// The request that tries whether an endpoint is back.
pub(crate) struct Trial<'a> {
    endpoints: &'a Endpoints,
    endpoint: String,
}

/// A dropped request has tried nothing, so the next one may try.
impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if let Some(away) = self.endpoints.away().get_mut(&self.endpoint) {
            away.tried = false;
        }
    }
}

impl Endpoints {
    fn away(&self) -> MutexGuard<'_, HashMap<String, Away>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `pause` is the wait of other requests for the one that tries the endpoint.
    pub(crate) fn admit(&self, endpoint: &str, pause: Duration) -> Admission<'_> {
        let mut all = self.away();
        let Some(away) = all.get_mut(endpoint) else { return Admission::Go(None) };
        let left = away.until.saturating_duration_since(Instant::now());
        match (left.is_zero(), away.tried) {
            (false, _) => Admission::Wait(left),
            (true, true) => Admission::Wait(pause),
            (true, false) => {
                away.tried = true;
                Admission::Go(Some(Trial { endpoints: self, endpoint: endpoint.to_owned() }))
            }
        }
    }

    /// The endpoint is away for this time.
    pub(crate) fn set_away(&self, endpoint: &str, pause: Duration) {
        let until = Instant::now() + pause;
        let mut all = self.away();
        if let Some(away) = all.get_mut(endpoint) {
            away.until = away.until.max(until);
        } else if all.len() < LIMIT {
            all.insert(endpoint.to_owned(), Away { until, tried: false });
            tracing::debug!(target: "keylane_webhook", endpoint, "the endpoint is away");
        }
    }

    /// The endpoint has answered.
    pub(crate) fn set_back(&self, endpoint: &str) {
        if self.away().remove(endpoint).is_some() {
            tracing::debug!(target: "keylane_webhook", endpoint, "the endpoint is back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(5);

    fn waits(admission: &Admission<'_>) -> Option<Duration> {
        match admission {
            Admission::Go(_) => None,
            Admission::Wait(left) => Some(*left),
        }
    }

    #[tokio::test]
    async fn one_request_at_a_time_tries_an_endpoint_that_is_away() {
        let endpoints = Endpoints::default();
        assert!(waits(&endpoints.admit("a", PAUSE)).is_none());
        endpoints.set_away("a", 2 * PAUSE);
        let left = waits(&endpoints.admit("a", PAUSE)).unwrap();
        assert!(left > PAUSE && left <= 2 * PAUSE, "{left:?}");
        assert!(waits(&endpoints.admit("b", PAUSE)).is_none());
        endpoints.set_back("a");
        endpoints.set_away("a", Duration::ZERO);
        let trial = endpoints.admit("a", PAUSE);
        assert!(waits(&trial).is_none());
        assert_eq!(waits(&endpoints.admit("a", PAUSE)), Some(PAUSE));
        drop(trial);
        assert!(
            waits(&endpoints.admit("a", PAUSE)).is_none(),
            "a request that was cut off has tried nothing"
        );
        endpoints.set_back("a");
        assert!(waits(&endpoints.admit("a", PAUSE)).is_none());
    }
}
