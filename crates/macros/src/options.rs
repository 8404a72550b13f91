//! Lists of options: `name`, `name = value` and `name(…)`, separated by commas.
//!
//! Every attribute reads its options here, so that all of them refuse an unknown option, a repeated option and
//! an option without its value in the same words.

use std::{fmt, str::FromStr};

use proc_macro2::Span;
use syn::{
    Error, Ident, LitInt, Path, Result, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    token,
};

/// Reads the options of one attribute, which may stand in several places.
pub(crate) struct Options {
    known: &'static [&'static str],
    seen: Vec<Ident>,
}

impl Options {
    /// Options with these names.
    pub(crate) fn new(known: &'static [&'static str]) -> Self {
        Self { known, seen: Vec::new() }
    }

    /// Hands each option to `take`, which reads its value.
    pub(crate) fn read(
        &mut self,
        input: ParseStream<'_>,
        mut take: impl FnMut(&Ident, ParseStream<'_>) -> Result<()>,
    ) -> Result<()> {
        while !input.is_empty() {
            let name = self.name(input)?;
            take(&name, input)?;
            self.seen.push(name);
            if !input.is_empty() && input.parse::<Option<Token![,]>>()?.is_none() {
                return Err(input.error("a comma is missing before this"));
            }
        }
        Ok(())
    }

    fn name(&self, input: ParseStream<'_>) -> Result<Ident> {
        // `crate` is a keyword, so that `parse_any` is needed.
        let Ok(name) = input.call(Ident::parse_any) else {
            return Err(input.error(format!("expected the name of an option: {}", names(self.known))));
        };
        if !self.known.iter().any(|known| name == known) {
            let known = names(self.known);
            return Err(Error::new(name.span(), format!("unknown option `{name}`; the options are {known}")));
        }
        if self.seen.contains(&name) {
            return Err(Error::new(name.span(), format!("`{name}` is given twice; keep one")));
        }
        Ok(name)
    }
}

/// The value after `name =`. An error shows the example.
pub(crate) fn value<T: Parse>(name: &Ident, input: ParseStream<'_>, example: &str) -> Result<T> {
    let advice = |span| Error::new(span, format!("write it as `{example}`"));
    if input.parse::<Option<Token![=]>>()?.is_none() || input.is_empty() {
        return Err(advice(name.span()));
    }
    let span = input.span();
    input.parse().map_err(|_| advice(span))
}

/// The whole number after `name =`. An error shows the example.
pub(crate) fn count<T: FromStr<Err: fmt::Display>>(
    name: &Ident,
    input: ParseStream<'_>,
    example: &str,
) -> Result<(T, Span)> {
    let literal: LitInt = value(name, input, example)?;
    let advice = |_| Error::new(literal.span(), format!("write it as `{example}`"));
    Ok((literal.base10_parse().map_err(advice)?, literal.span()))
}

/// Reads an option that is only a name.
pub(crate) fn flag(name: &Ident, input: ParseStream<'_>) -> Result<Span> {
    if input.peek(Token![=]) || input.peek(token::Paren) {
        return Err(input.error(format!("`{name}` takes no value: write it alone")));
    }
    Ok(name.span())
}

/// The values in `name(…)`. An error shows the example.
pub(crate) fn list<T: Parse>(name: &Ident, input: ParseStream<'_>, example: &str) -> Result<Vec<T>> {
    let content = inside(name, input, example)?;
    items(&content, example)
}

/// The values in `name = […]`. An error shows the example.
pub(crate) fn array<T: Parse>(name: &Ident, input: ParseStream<'_>, example: &str) -> Result<Vec<T>> {
    if input.parse::<Option<Token![=]>>()?.is_none() || !input.peek(token::Bracket) {
        return Err(Error::new(name.span(), format!("write it as `{example}`")));
    }
    let content;
    syn::bracketed!(content in input);
    items(&content, example)
}

/// The tokens between the brackets of `name(…)`. An error shows the example.
pub(crate) fn inside<'a>(
    name: &Ident,
    input: ParseStream<'a>,
    example: &str,
) -> Result<syn::parse::ParseBuffer<'a>> {
    if !input.peek(token::Paren) {
        return Err(Error::new(name.span(), format!("write it as `{example}`")));
    }
    let content;
    syn::parenthesized!(content in input);
    Ok(content)
}

/// The path to the library after `crate =`.
pub(crate) fn library(name: &Ident, input: ParseStream<'_>) -> Result<Path> {
    const EXAMPLE: &str = "crate = path::to::keylane";
    if input.parse::<Option<Token![=]>>()?.is_none() {
        return Err(Error::new(name.span(), format!("write it as `{EXAMPLE}`")));
    }
    Path::parse_mod_style(input).map_err(|error| Error::new(error.span(), format!("write it as `{EXAMPLE}`")))
}

/// The names as a list in a sentence.
pub(crate) fn names<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

fn items<T: Parse>(content: ParseStream<'_>, example: &str) -> Result<Vec<T>> {
    let items = Punctuated::<T, Token![,]>::parse_terminated(content)
        .map_err(|error| Error::new(error.span(), format!("write it as `{example}`")))?;
    Ok(items.into_iter().collect())
}
