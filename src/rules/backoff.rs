//! The growth of the delay between attempts, and its form in settings.

use std::{fmt, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, value::MapAccessDeserializer},
};

/// How the delay grows with the failures. In settings, the word `exponential` is the default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields, remote = "Self")]
#[non_exhaustive]
pub enum Backoff {
    /// Always the same delay.
    Fixed {
        /// The delay.
        #[serde(with = "crate::duration::fixed_delay")]
        delay: Duration,
    },
    /// `initial + (failures - 1) * increment`.
    Linear {
        /// The delay after the first failure.
        #[serde(with = "crate::duration::linear_initial")]
        initial: Duration,
        /// The growth per further failure.
        #[serde(with = "crate::duration::linear_increment")]
        increment: Duration,
    },
    /// `initial * multiplier ^ (failures - 1)`.
    Exponential {
        /// The delay after the first failure.
        #[serde(with = "crate::duration::exponential_initial")]
        initial: Duration,
        /// The factor per further failure, at least 1.
        multiplier: f64,
    },
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential { initial: Duration::from_secs(2), multiplier: 2.0 }
    }
}

impl Serialize for Backoff {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WordOrTable)
    }
}

struct WordOrTable;

impl<'de> de::Visitor<'de> for WordOrTable {
    type Value = Backoff;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "\"exponential\" for retry.backoff, or a table such as { fixed = { delay = \"5s\" } }, \
             { linear = { initial = \"2s\", increment = \"2s\" } } or \
             { exponential = { initial = \"2s\", multiplier = 2.0 } }",
        )
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Backoff, E> {
        match word {
            "exponential" => Ok(Backoff::default()),
            other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
        }
    }

    fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Backoff, A::Error> {
        Backoff::deserialize(MapAccessDeserializer::new(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Settings {
        backoff: Backoff,
    }

    fn read(text: &str) -> Result<Backoff, String> {
        let settings: Result<Settings, _> = toml::from_str(&format!("backoff = {text}"));
        settings.map(|settings| settings.backoff).map_err(|error| error.to_string())
    }

    #[test]
    fn a_word_or_a_table_says_how_the_delay_grows() {
        let s = Duration::from_secs;
        assert_eq!(read("\"exponential\""), Ok(Backoff::default()));
        assert_eq!(read("{ fixed = { delay = \"5s\" } }"), Ok(Backoff::Fixed { delay: s(5) }));
        let linear = read("{ linear = { initial = \"2s\", increment = \"3s\" } }");
        assert_eq!(linear, Ok(Backoff::Linear { initial: s(2), increment: s(3) }));
    }

    #[test]
    fn another_word_is_refused_with_what_it_may_be() {
        for text in ["\"fixed\"", "5"] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains("{ fixed = { delay = \"5s\" } }"), "{refused}");
        }
    }
}
