//! `retry(…)`: a handler's own retry policy.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, Lit, LitStr, Path, Result, Token, ext::IdentExt, parse::ParseStream};

use crate::{
    duration,
    options::{self, Options},
};

const EXAMPLE: &str = "retry(exponential, max_retries = 3)";
const KINDS: [&str; 4] = ["exponential", "linear", "fixed", "never"];

/// A policy as written. `RetryPolicy` has the values that are not given.
pub(crate) struct Retry {
    kind: Ident,
    initial: Option<Duration>,
    increment: Option<Duration>,
    delay: Option<Duration>,
    multiplier: Option<f64>,
    max_retries: Option<u32>,
    max_delay: Option<Duration>,
    jitter: Option<f64>,
    retry_on: Vec<LitStr>,
    never_on: Vec<LitStr>,
}

impl Retry {
    /// Reads the options in the brackets after `retry`.
    pub(crate) fn read(name: &Ident, input: ParseStream<'_>) -> Result<Self> {
        let content = options::inside(name, input, EXAMPLE)?;
        let mut retry = Self::of(kind(name, &content)?);
        let mut options = Options::new(retry.options());
        options.read(&content, |name, input| retry.take(name, input))?;
        retry.check()?;
        Ok(retry)
    }

    fn of(kind: Ident) -> Self {
        Self {
            kind,
            initial: None,
            increment: None,
            delay: None,
            multiplier: None,
            max_retries: None,
            max_delay: None,
            jitter: None,
            retry_on: Vec::new(),
            never_on: Vec::new(),
        }
    }

    /// An expression of the policy.
    pub(crate) fn tokens(&self, keylane: &Path) -> TokenStream {
        let duration = |value: Option<Duration>| duration::tokens(value.unwrap_or_default());
        let start = match self.kind.to_string().as_str() {
            "linear" => {
                let (initial, increment) = (duration(self.initial), duration(self.increment));
                quote!(linear(#initial, #increment))
            }
            "fixed" => {
                let delay = duration(self.delay);
                quote!(fixed(#delay))
            }
            "never" => quote!(never()),
            _ => {
                let initial = self.initial.map(duration::tokens).into_iter();
                quote!(exponential() #(.initial_delay(#initial))*)
            }
        };
        let multiplier = self.multiplier.iter();
        let max_retries = self.max_retries.iter();
        let max_delay = self.max_delay.map(duration::tokens).into_iter();
        let jitter = self.jitter.iter();
        let retry_on = classes(&self.retry_on, quote!(retry_on));
        let never_on = classes(&self.never_on, quote!(never_on));
        quote! {
            #keylane::RetryPolicy::#start
                #(.multiplier(#multiplier))*
                #(.max_retries(#max_retries))*
                #(.max_delay(#max_delay))*
                #(.jitter(#jitter))*
                #retry_on
                #never_on
        }
    }

    fn options(&self) -> &'static [&'static str] {
        match self.kind.to_string().as_str() {
            "linear" => {
                &["initial", "increment", "max_retries", "max_delay", "jitter", "retry_on", "never_on"]
            }
            "fixed" => &["delay", "max_retries", "max_delay", "jitter", "retry_on", "never_on"],
            "never" => &[],
            _ => &["initial", "multiplier", "max_retries", "max_delay", "jitter", "retry_on", "never_on"],
        }
    }

    fn take(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "initial" => self.initial = Some(time(name, input)?),
            "increment" => self.increment = Some(time(name, input)?),
            "delay" => self.delay = Some(time(name, input)?),
            "max_delay" => {
                let literal = options::value(name, input, "max_delay = \"1m\"")?;
                self.max_delay = Some(duration::read_positive("max_delay", &literal)?);
            }
            "max_retries" => {
                self.max_retries = Some(options::count(name, input, "max_retries = 3")?.0);
            }
            "multiplier" => {
                let wanted = |value: f64| value.is_finite() && value >= 1.0;
                self.multiplier = Some(number(name, input, "a number of at least 1, such as 2.0", wanted)?);
            }
            "jitter" => {
                let wanted = |value: f64| (0.0..=1.0).contains(&value);
                self.jitter = Some(number(name, input, "a share from 0 to 1, such as 0.1", wanted)?);
            }
            "retry_on" => self.retry_on = options::array(name, input, "retry_on = [\"timeout\"]")?,
            _ => self.never_on = options::array(name, input, "never_on = [\"refused\"]")?,
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let lacks = |option: &str, example: &str| {
            let advice = format!("{} retries need `{option}`: write `{example}`", self.kind);
            Err(Error::new(self.kind.span(), advice))
        };
        if self.kind == "fixed" && self.delay.is_none() {
            return lacks("delay", "retry(fixed, delay = \"5s\")");
        }
        if self.kind == "linear" && (self.initial.is_none() || self.increment.is_none()) {
            return lacks("initial` and `increment", "retry(linear, initial = \"2s\", increment = \"3s\")");
        }
        let retried: Vec<String> = self.retry_on.iter().map(LitStr::value).collect();
        match self.never_on.iter().find(|never| retried.contains(&never.value())) {
            Some(class) => {
                let advice = "this class is in `retry_on` as well: keep it in one of the lists";
                Err(Error::new(class.span(), advice))
            }
            None => Ok(()),
        }
    }
}

fn kind(name: &Ident, content: ParseStream<'_>) -> Result<Ident> {
    let fail = |span| {
        let kinds = options::names(&KINDS);
        Error::new(span, format!("retry begins with its kind, one of {kinds}: write it as `{EXAMPLE}`"))
    };
    let span = if content.is_empty() { name.span() } else { content.span() };
    let kind = content.call(Ident::parse_any).map_err(|_| fail(span))?;
    if !KINDS.iter().any(|known| kind == known) {
        return Err(fail(kind.span()));
    }
    if !content.is_empty() {
        content.parse::<Token![,]>()?;
    }
    Ok(kind)
}

fn time(name: &Ident, input: ParseStream<'_>) -> Result<Duration> {
    duration::read(&options::value(name, input, &format!("{name} = \"2s\""))?)
}

fn number(name: &Ident, input: ParseStream<'_>, what: &str, wanted: impl Fn(f64) -> bool) -> Result<f64> {
    let literal: Lit = options::value(name, input, &format!("{name} = 1.0"))?;
    let value = match &literal {
        Lit::Float(literal) => literal.base10_parse().ok(),
        Lit::Int(literal) => literal.base10_parse().ok(),
        _ => None,
    };
    let value = value.filter(|value| wanted(*value));
    value.ok_or_else(|| Error::new(literal.span(), format!("`{name}` is {what}")))
}

fn classes(list: &[LitStr], method: TokenStream) -> TokenStream {
    if list.is_empty() { TokenStream::new() } else { quote!(.#method([#(#list),*])) }
}

#[cfg(test)]
mod tests {
    use quote::format_ident;
    use syn::parse::Parser;

    use super::*;

    fn expand(text: &str) -> Result<String> {
        let read = |input: ParseStream<'_>| Retry::read(&format_ident!("retry"), input);
        let retry = read.parse_str(text)?;
        let tokens = retry.tokens(&syn::parse_quote!(k)).to_string();
        Ok(tokens
            .replace([' ', '\n'], "")
            .replace("::core::time::Duration::new", "")
            .replace("k::RetryPolicy::", ""))
    }

    #[test]
    fn what_is_written_is_what_is_built() {
        let check = |text, tokens| assert_eq!(expand(text).unwrap(), tokens, "{text}");
        check("(exponential)", "exponential()");
        check("(never)", "never()");
        check("(fixed, delay = \"500ms\",)", "fixed((0u64,500000000u32))");
        check(
            "(linear, initial = \"2s\", increment = \"3s\", max_retries = 9)",
            "linear((2u64,0u32),(3u64,0u32)).max_retries(9u32)",
        );
        check(
            "(exponential, initial = \"1s\", multiplier = 3, max_delay = \"1m\", jitter = 0.1, \
             retry_on = [\"a\", \"b\"], never_on = [\"c\"])",
            "exponential().initial_delay((1u64,0u32)).multiplier(3f64).max_delay((60u64,0u32)).jitter(0.1f64)\
             .retry_on([\"a\",\"b\"]).never_on([\"c\"])",
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |text, reason: &str| {
            let problem = expand(text).unwrap_err().to_string();
            assert!(problem.contains(reason), "{text}: {problem}");
        };
        refused("", "write it as `retry(");
        refused("()", "begins with its kind");
        refused("(max_retries = 3)", "begins with its kind");
        refused("(fixed)", "need `delay`");
        refused("(linear, initial = \"1s\")", "need `initial` and `increment`");
        refused("(fixed, delay = \"1s\", multiplier = 2)", "unknown option `multiplier`");
        refused("(never, max_retries = 1)", "unknown option");
        refused("(exponential, jitter = 2)", "from 0 to 1");
        refused("(exponential, multiplier = 0.5)", "at least 1");
        refused("(exponential, max_delay = \"0s\")", "max_delay is zero");
        refused("(exponential, retry_on = [\"a\"], never_on = [\"a\"])", "one of the lists");
    }
}
