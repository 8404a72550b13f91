//! The input: a week of departures, each an event keyed by its aircraft.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use keylane::OutboxEvent;
use serde::{Deserialize, Serialize};

/// See `DATA.md`.
const WEEK: &str = include_str!("flights-week.csv");

/// A departure, or a flight that was to depart.
#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "flight.departed", key_with = Flight::aircraft)]
pub(crate) struct Flight {
    /// Line of the file, from 1.
    #[serde(default)]
    pub(crate) row: usize,
    pub(crate) scheduled: String,
    /// Not given: the flight was cancelled.
    pub(crate) departed: Option<String>,
    pub(crate) carrier: String,
    #[serde(rename = "flight")]
    pub(crate) number: u32,
    pub(crate) tail: Option<String>,
    pub(crate) origin: String,
    pub(crate) dest: String,
}

impl Flight {
    /// The key: flights of one aircraft stay in order. Some cancelled flights never got an aircraft.
    pub(crate) fn aircraft(&self) -> String {
        match &self.tail {
            Some(tail) => format!("aircraft-{tail}"),
            None => format!("flight-{}{}", self.carrier, self.number),
        }
    }

    /// How long the bookkeeper works on it: 20 to 60 ms, and for one flight in eight more than a
    /// second, so that the next flight of the aircraft catches up with it.
    pub(crate) fn work(&self) -> Duration {
        let hash = hash(self.identity());
        Duration::from_millis(if hash.is_multiple_of(8) { 1000 + hash / 8 % 400 } else { 20 + hash / 8 % 40 })
    }

    /// Whether the bookkeeper fails at the first attempt: about one flight in a hundred.
    pub(crate) fn stumbles(&self) -> bool {
        self.departed.is_some() && (hash(self.identity()) / 1000).is_multiple_of(100)
    }

    /// Equal for flights of one aircraft.
    pub(crate) fn aircraft_hash(&self) -> u64 {
        hash(self.aircraft())
    }

    fn identity(&self) -> impl Hash {
        (&self.scheduled, &self.carrier, self.number)
    }
}

/// The same in every process.
fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The flights of the week, in the order in which they happened.
pub(crate) fn week() -> Result<Vec<Flight>, csv::Error> {
    let mut flights = Vec::new();
    for flight in csv::Reader::from_reader(WEEK.as_bytes()).deserialize() {
        let mut flight: Flight = flight?;
        flight.row = flights.len() + 1;
        flights.push(flight);
    }
    Ok(flights)
}
