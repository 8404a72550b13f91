//! The arguments of the two attributes: `#[outbox_handler(…)]` and `#[outbox_fallback_handler(…)]`.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use syn::{
    Error, Ident, LitBool, LitStr, Path, Result,
    parse::{ParseStream, Parser},
    parse_quote,
};

use crate::{
    duration, name,
    options::{self, Options},
    rate::Rate,
    retry::Retry,
};

const ID: &str = "#[outbox_handler(id = \"keep-books\")]";
const OF: &str = "#[outbox_fallback_handler(of = \"keep-books\")]";

/// The arguments of `#[outbox_handler(…)]`.
pub(crate) struct HandlerArguments {
    pub(crate) keylane: Path,
    pub(crate) id: String,
    pub(crate) retry: Option<Retry>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<Rate>,
    pub(crate) stop_on_first_failure: Option<bool>,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) batch: Option<(Batch, Span)>,
    pub(crate) transactional: Option<Span>,
    pub(crate) record_types: Option<(RecordTypes, Span)>,
}

/// What becomes of a lane whose record failed for good.
pub(crate) enum OnFailure {
    Block,
    Continue,
}

/// How many records a call takes.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) size: usize,
    /// Whether they may come from several lanes.
    pub(crate) mixed: bool,
}

/// Which records a handler of raw records takes.
pub(crate) enum RecordTypes {
    Every,
    These(Vec<String>),
}

/// The arguments of `#[outbox_fallback_handler(…)]`.
pub(crate) struct FallbackArguments {
    pub(crate) keylane: Path,
    /// The handler's id, or `None` for the default.
    pub(crate) of: Option<String>,
}

impl HandlerArguments {
    const KNOWN: &[&str] = &[
        "id",
        "retry",
        "timeout",
        "concurrency",
        "rate",
        "stop_on_first_failure",
        "on_failure",
        "batch",
        "transactional",
        "every",
        "types",
        "crate",
    ];

    pub(crate) fn read(attribute: TokenStream) -> Result<Self> {
        let mut arguments = Self {
            keylane: parse_quote!(::keylane),
            id: String::new(),
            retry: None,
            timeout: None,
            concurrency: None,
            rate: None,
            stop_on_first_failure: None,
            on_failure: None,
            batch: None,
            transactional: None,
            record_types: None,
        };
        let mut options = Options::new(Self::KNOWN);
        let read = |input: ParseStream<'_>| options.read(input, |name, input| arguments.take(name, input));
        read.parse2(attribute)?;
        if arguments.id.is_empty() {
            let advice = format!("a handler needs an id, which is stored with its records: write `{ID}`");
            return Err(Error::new(Span::call_site(), advice));
        }
        Ok(arguments)
    }

    fn take(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "id" => {
                self.id = name::check("the id", &options::value(name, input, "id = \"keep-books\"")?)?;
            }
            "retry" => self.retry = Some(Retry::read(name, input)?),
            "timeout" => {
                let literal = options::value(name, input, "timeout = \"30s\"")?;
                self.timeout = Some(duration::read_positive("the timeout", &literal)?);
            }
            "concurrency" => {
                self.concurrency = match options::count(name, input, "concurrency = 8")? {
                    (0, span) => return Err(Error::new(span, "0 calls at once are none: write at least 1")),
                    (calls, _) => Some(calls),
                };
            }
            "rate" => self.rate = Some(Rate::read(&options::value(name, input, "rate = \"50/s\"")?)?),
            "stop_on_first_failure" => {
                let example = "stop_on_first_failure = false";
                self.stop_on_first_failure = Some(options::value::<LitBool>(name, input, example)?.value);
            }
            "on_failure" => self.on_failure = Some(OnFailure::read(name, input)?),
            "batch" => self.batch = Some((Batch::read(name, input)?, name.span())),
            "transactional" => self.transactional = Some(options::flag(name, input)?),
            "every" => {
                let span = options::flag(name, input)?;
                self.take_types(RecordTypes::Every, span)?;
            }
            "types" => {
                let types = record_types(name, input)?;
                self.take_types(RecordTypes::These(types), name.span())?;
            }
            _ => self.keylane = options::library(name, input)?,
        }
        Ok(())
    }

    fn take_types(&mut self, types: RecordTypes, span: Span) -> Result<()> {
        if self.record_types.replace((types, span)).is_some() {
            let advice = "`every` takes all types, `types(…)` only some: keep one of them";
            return Err(Error::new(span, advice));
        }
        Ok(())
    }
}

impl OnFailure {
    fn read(name: &Ident, input: ParseStream<'_>) -> Result<Self> {
        let example = "on_failure = \"block\"` or `on_failure = \"continue\"";
        let word: LitStr = options::value(name, input, example)?;
        match word.value().as_str() {
            "block" => Ok(Self::Block),
            "continue" => Ok(Self::Continue),
            _ => Err(Error::new(word.span(), format!("write it as `{example}`"))),
        }
    }
}

impl Batch {
    /// Reads `batch = 100` or `batch(size = 100, mixed)`.
    fn read(name: &Ident, input: ParseStream<'_>) -> Result<Self> {
        const EXAMPLE: &str = "batch = 100` or `batch(size = 100, mixed)";
        if !input.peek(syn::token::Paren) {
            let size = Self::size(name, input, EXAMPLE)?;
            return Ok(Self { size, mixed: false });
        }
        let content = options::inside(name, input, EXAMPLE)?;
        let (mut size, mut mixed) = (None, false);
        let mut options = Options::new(&["size", "mixed"]);
        options.read(&content, |name, input| {
            match name == "size" {
                true => size = Some(Self::size(name, input, "size = 100")?),
                false => {
                    options::flag(name, input)?;
                    mixed = true;
                }
            }
            Ok(())
        })?;
        let size = size.ok_or_else(|| Error::new(name.span(), format!("write it as `{EXAMPLE}`")))?;
        Ok(Self { size, mixed })
    }

    fn size(name: &Ident, input: ParseStream<'_>, example: &str) -> Result<usize> {
        match options::count(name, input, example)? {
            (0, span) => Err(Error::new(span, "a batch of 0 records takes nothing: write at least 1")),
            (size, _) => Ok(size),
        }
    }
}

impl FallbackArguments {
    const KNOWN: &[&str] = &["of", "default", "crate"];

    pub(crate) fn read(attribute: TokenStream) -> Result<Self> {
        let mut keylane = parse_quote!(::keylane);
        let (mut of, mut default) = (None, None);
        let mut options = Options::new(Self::KNOWN);
        let mut take = |name: &Ident, input: ParseStream<'_>| {
            match name.to_string().as_str() {
                "of" => {
                    let literal = options::value(name, input, "of = \"keep-books\"")?;
                    of = Some(name::check("the handler's id", &literal)?);
                }
                "default" => default = Some(options::flag(name, input)?),
                _ => keylane = options::library(name, input)?,
            }
            Ok(())
        };
        let read = |input: ParseStream<'_>| options.read(input, &mut take);
        read.parse2(attribute)?;
        match (of, default) {
            (Some(_), Some(span)) => {
                Err(Error::new(span, "`of` is for one handler, `default` for all others: keep one of them"))
            }
            (None, None) => {
                let advice =
                    format!("whose fallback is it? Write `{OF}`, or `default` for all handlers without one");
                Err(Error::new(Span::call_site(), advice))
            }
            (of, _) => Ok(Self { keylane, of }),
        }
    }
}

fn record_types(name: &Ident, input: ParseStream<'_>) -> Result<Vec<String>> {
    const EXAMPLE: &str = "types(\"order.placed\", \"order.paid\")";
    let literals: Vec<LitStr> = options::list(name, input, EXAMPLE)?;
    if literals.is_empty() {
        return Err(Error::new(name.span(), format!("write it as `{EXAMPLE}`")));
    }
    literals.iter().map(|literal| name::check("the record type", literal)).collect()
}
