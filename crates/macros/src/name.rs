//! Handler ids and record types: short and plain, because they are stored with every record.

use syn::{Error, LitStr, Result};

/// The longest name, in bytes.
const LIMIT_BYTES: usize = 128;

/// The name in the literal, or a sentence with the problem. `what` begins the sentence.
pub(crate) fn check(what: &str, literal: &LitStr) -> Result<String> {
    let name = literal.value();
    match problem(&name) {
        Some(problem) => Err(Error::new(literal.span(), format!("{what} {problem}"))),
        None => Ok(name),
    }
}

fn problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("is empty: give it a name that can stay for years".to_owned());
    }
    if name.len() > LIMIT_BYTES {
        return Some(format!("has {} bytes: shorten it to at most {LIMIT_BYTES}", name.len()));
    }
    let plain = |c: &char| c.is_ascii_alphanumeric() || "._-:/".contains(*c);
    let bad = name.chars().find(|c| !plain(c))?;
    Some(format!("contains {bad:?}: use only ASCII letters, digits and . _ - : /"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass() {
        for name in ["a", "order.placed", "billing:v2/eu_west-1", &"x".repeat(128)] {
            assert_eq!(problem(name), None, "{name:?}");
        }
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        let refused = |name: &str, reason: &str| assert!(problem(name).unwrap().contains(reason), "{name:?}");
        refused("", "is empty");
        refused("book keeper", "contains ' '");
        refused("bücher", "contains 'ü'");
        refused("a\0", "contains '\\0'");
        refused(&"x".repeat(129), "has 129 bytes");
    }
}
