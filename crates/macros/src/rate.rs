//! `rate = "50/s"`: the most calls of a handler per time.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, Path, Result};

use crate::duration;

/// A number of calls per time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    calls: u32,
    period: Duration,
}

impl Rate {
    /// Reads the number of calls, a slash, and a unit of time or a duration.
    pub(crate) fn read(literal: &LitStr) -> Result<Self> {
        let advice = |text: &str| {
            let text = format!("{text:?} is not a rate: write it like \"50/s\", \"600/m\" or \"5/10s\"");
            Error::new(literal.span(), text)
        };
        let text = literal.value();
        let (calls, period) = text.split_once('/').ok_or_else(|| advice(&text))?;
        let calls =
            calls.trim().parse::<u32>().ok().filter(|calls| *calls > 0).ok_or_else(|| advice(&text))?;
        let period = period.trim();
        let begins_with_digit = period.starts_with(|first: char| first.is_ascii_digit());
        let period = if begins_with_digit { period.to_owned() } else { format!("1{period}") };
        let period = duration::read(&LitStr::new(&period, literal.span())).map_err(|_| advice(&text))?;
        if period.is_zero() {
            return Err(advice(&text));
        }
        Ok(Self { calls, period })
    }

    /// An expression of the rate.
    pub(crate) fn tokens(&self, keylane: &Path) -> TokenStream {
        let (calls, period) = (self.calls, duration::tokens(self.period));
        quote!(#keylane::handler::Rate::new(#calls, #period))
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    fn read(text: &str) -> Option<(u32, u64)> {
        let rate = Rate::read(&LitStr::new(text, Span::call_site())).ok()?;
        Some((rate.calls, rate.period.as_millis() as u64))
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        assert_eq!(read("50/s"), Some((50, 1_000)));
        assert_eq!(read("600 / m"), Some((600, 60_000)));
        assert_eq!(read("5/10s"), Some((5, 10_000)));
        for wrong in ["", "50", "0/s", "s/50", "50/0s", "50/week", "-1/s", "1.5/s"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
