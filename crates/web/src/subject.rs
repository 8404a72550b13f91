//! Names and subjects as parts of the keys of a store.

use sha2::{Digest, Sha256};

use crate::error::SettingError;

/// The longest name of a limit or a scope, in bytes.
pub(crate) const LONGEST_NAME: usize = 64;
/// The longest subject that stands in a key as it is, in bytes.
const LONGEST_SUBJECT: usize = 64;

/// Refuses a name that could run into what comes after it in a key.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), SettingError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(SettingError::Name { what, name: name.chars().take(2 * LONGEST_NAME).collect() }),
    }
}

/// `{name}`, or `{name}:{subject}`. A subject comes from a request: one that is long, or has other characters than
/// letters, digits and `-_.@/+`, is replaced by its SHA-256, so that no two subjects ever share a key.
pub(crate) fn keyed(name: &str, subject: Option<&str>) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@/+".contains(&byte);
    match subject {
        None => name.to_owned(),
        Some(subject) if subject.len() <= LONGEST_SUBJECT && subject.bytes().all(plain) => {
            format!("{name}:{subject}")
        }
        Some(subject) => format!("{name}:sha256={}", hex(&Sha256::digest(subject))),
    }
}

/// Bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_subjects_share_a_key() {
        let long = "x".repeat(65);
        let subjects =
            [None, Some(""), Some("a"), Some("a:b"), Some("ä"), Some("a b"), Some("a\nb"), Some(&long)];
        let keys: std::collections::BTreeSet<String> =
            subjects.into_iter().map(|subject| keyed("api", subject)).collect();
        assert_eq!(keys.len(), subjects.len());
        assert!(keys.iter().all(|key| key.len() < 140 && key.bytes().all(|byte| byte.is_ascii_graphic())));
        // What would be the key of another subject is not plain.
        let taken = keyed("api", Some("a:b"));
        assert_ne!(keyed("api", taken.strip_prefix("api:")), taken);
        assert_eq!(keyed("api", Some("ann@example.org")), "api:ann@example.org");
    }

    #[test]
    fn names_are_plain() {
        assert!(check_name("limit", "orders.v1-a_b").is_ok() && check_name("limit", &"a".repeat(64)).is_ok());
        for bad in ["", "a:b", "a b", "ä", &"a".repeat(65)] {
            assert!(check_name("limit", bad).is_err(), "{bad:?}");
        }
    }
}
