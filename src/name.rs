//! Names: short texts that are written once and cloned often.

use std::{borrow::Borrow, fmt, ops::Deref};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A short text that does not change: a record key, a handler id, a record type, a media type.
///
/// A `Name` reads as a `&str`. A clone costs no allocation.
///
/// ```
/// use keylane::Name;
///
/// let key = Name::from("order-42");
/// assert_eq!(key, "order-42");
/// assert!(key.starts_with("order-"));
/// assert_eq!(format!("{key} {key:?}"), "order-42 \"order-42\"");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(SmolStr);

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name from a text of the program, which is not copied.
    pub(crate) const fn from_static(text: &'static str) -> Self {
        Self(SmolStr::new_static(text))
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A map with names as keys can be searched by a `&str`, because both hash and compare alike.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(SmolStr::new(text))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(SmolStr::from(text))
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.into()
    }
}

macro_rules! compares_with {
    ($($text:ty),*) => {$(
        impl PartialEq<$text> for Name {
            fn eq(&self, other: &$text) -> bool {
                self.as_str() == &other[..]
            }
        }

        impl PartialEq<Name> for $text {
            fn eq(&self, other: &Name) -> bool {
                other == self
            }
        }
    )*};
}

compares_with!(str, &str, String);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_map_by_names_is_asked_by_a_text() {
        let map = HashMap::from([(Name::from("a"), 1)]);
        assert_eq!(map.get("a"), Some(&1));
    }

    #[test]
    fn a_name_is_written_as_its_text() {
        let name = Name::from("order-42".to_owned());
        assert_eq!(serde_json::to_value(&name).ok(), Some("order-42".into()));
        assert_eq!(serde_json::from_str::<Name>("\"order-42\"").ok(), Some(name));
    }
}
