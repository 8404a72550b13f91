//! Durations as people write them: `500ms`, `30s`, `1m 30s`, `2h`.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, Result};

/// Units and their lengths in nanoseconds. A minute is `m`, as in the configuration file.
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// The duration in the literal.
pub(crate) fn read(literal: &LitStr) -> Result<Duration> {
    parse(&literal.value()).ok_or_else(|| {
        let text = literal.value();
        let advice =
            format!("{text:?} is not a duration: write it like \"500ms\", \"30s\", \"1m 30s\" or \"2h\"");
        Error::new(literal.span(), advice)
    })
}

/// The duration in the literal, which must not be zero. `what` begins the sentence.
pub(crate) fn read_positive(what: &str, literal: &LitStr) -> Result<Duration> {
    let duration = read(literal)?;
    match duration.is_zero() {
        true => Err(Error::new(literal.span(), format!("{what} is zero: set it to at least \"1ms\""))),
        false => Ok(duration),
    }
}

/// An expression of the duration.
pub(crate) fn tokens(duration: Duration) -> TokenStream {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    quote!(::core::time::Duration::new(#seconds, #nanoseconds))
}

fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut nanoseconds = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after_number) = split(rest, |c| c.is_ascii_digit());
        let (unit, after_unit) = split(after_number, |c| c.is_ascii_alphabetic());
        let (_, length) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let part = number.parse::<u64>().ok()?.checked_mul(length)?;
        nanoseconds = nanoseconds.checked_add(part)?;
        rest = after_unit.trim_start();
    }
    Some(Duration::from_nanos(nanoseconds))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let check = |text, milliseconds| assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)));
        check("500ms", 500);
        check("30s", 30_000);
        check("1m 30s", 90_000);
        check("1m30s", 90_000);
        check(" 2h ", 7_200_000);
        check("1d", 86_400_000);
        check("0s", 0);
        assert_eq!(parse("1us 1ns"), Some(Duration::from_nanos(1_001)));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            " ",
            "30",
            "s",
            "30 s",
            "1.5s",
            "-1s",
            "30x",
            "30s,",
            "1M",
            "99999999999999999999s",
            "999999999d",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
