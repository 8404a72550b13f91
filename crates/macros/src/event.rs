//! `#[derive(OutboxEvent)]`: the record type and the key of an event.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{
    Data, DeriveInput, Error, Fields, Index, LitStr, Member, Path, Result, parse_quote, spanned::Spanned,
};

use crate::{
    key::{self, Piece},
    name,
    options::{self, Options},
};

/// The implementation of `OutboxEvent`.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    check_shape(&input)?;
    let arguments = Arguments::read(&input)?;
    let record_type = required("record type", &arguments.record_type, &input.ident)?;
    let record_type = name::check("the record type", record_type)?;
    let key = arguments.key(&input)?;
    let evolution = arguments.evolution()?;
    let (keylane, event) = (&arguments.keylane, &input.ident);
    Ok(quote_spanned! {Span::call_site()=>
        #[automatically_derived]
        impl #keylane::OutboxEvent for #event {
            const RECORD_TYPE: &'static str = #record_type;
            #evolution

            fn key(&self) -> ::std::borrow::Cow<'_, str> {
                #key
            }
        }
    })
}

/// The codecs of the library, each a function of `Codec`.
const CODECS: &[&str] = &["json", "cbor", "message_pack", "protobuf"];

/// The options of `#[outbox(…)]`.
struct Arguments {
    keylane: Path,
    record_type: Option<LitStr>,
    key: Option<LitStr>,
    key_with: Option<(Span, Path)>,
    constant_key: Option<Span>,
    version: Option<(Span, u32)>,
    upcast: Option<(Span, Path)>,
    codec: Option<Path>,
}

impl Arguments {
    fn read(input: &DeriveInput) -> Result<Self> {
        let mut arguments = Self {
            keylane: parse_quote!(::keylane),
            record_type: None,
            key: None,
            key_with: None,
            constant_key: None,
            version: None,
            upcast: None,
            codec: None,
        };
        let mut options = Options::new(&[
            "record_type",
            "key",
            "constant_key",
            "key_with",
            "version",
            "upcast",
            "codec",
            "crate",
        ]);
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("outbox")) {
            attribute.parse_args_with(|input: syn::parse::ParseStream<'_>| {
                options.read(input, |name, input| arguments.take(name, input))
            })?;
        }
        Ok(arguments)
    }

    fn take(&mut self, name: &Ident, input: syn::parse::ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "record_type" => {
                self.record_type = Some(options::value(name, input, "record_type = \"order.placed\"")?);
            }
            "key" => self.key = Some(options::value(name, input, "key = \"order-{id}\"")?),
            "constant_key" => self.constant_key = Some(options::flag(name, input)?),
            "key_with" => {
                let path = options::value(name, input, "key_with = path::to::function")?;
                self.key_with = Some((name.span(), path));
            }
            "version" => {
                let (version, span) = options::count(name, input, "version = 2")?;
                self.version = Some((span, version));
            }
            "upcast" => {
                let path = options::value(name, input, "upcast = path::to::function")?;
                self.upcast = Some((name.span(), path));
            }
            "codec" => self.codec = Some(options::value(name, input, "codec = cbor")?),
            _ => self.keylane = options::library(name, input)?,
        }
        Ok(())
    }

    /// The version and the upcast, if given.
    fn evolution(&self) -> Result<TokenStream> {
        let keylane = &self.keylane;
        let version = match (&self.version, &self.upcast) {
            (Some((span, 0)), _) => return Err(Error::new(*span, "versions are counted from 1")),
            (None | Some((_, 1)), Some((span, _))) => {
                return Err(Error::new(*span, "nothing is older than version 1: give a `version` above it"));
            }
            (Some((span, version)), _) => {
                quote_spanned!(*span=> const VERSION: ::core::primitive::u32 = #version;)
            }
            (None, _) => TokenStream::new(),
        };
        let upcast = self.upcast.as_ref().map(|(option, function)| {
            let span = Span::call_site().located_at(*option);
            quote_spanned! {span=>
                fn upcast(
                    from: ::core::primitive::u32,
                    payload: #keylane::handler::JsonValue,
                ) -> ::core::result::Result<#keylane::handler::JsonValue, #keylane::handler::BoxedError> {
                    ::core::result::Result::map_err(#function(from, payload), ::core::convert::Into::into)
                }
            }
        });
        let codec = self.codec();
        Ok(quote_spanned!(Span::call_site()=> #version #codec #upcast))
    }

    /// The codec, if given: a codec of the library by its name, or a constant.
    fn codec(&self) -> Option<TokenStream> {
        let (keylane, codec) = (&self.keylane, self.codec.as_ref()?);
        let is_known = CODECS.iter().any(|name| codec.is_ident(name));
        let span = codec.span();
        let value = match codec.get_ident().filter(|_| is_known) {
            Some(name) => quote_spanned!(span=> #keylane::encoding::Codec::#name()),
            None => quote_spanned!(span=> #codec),
        };
        Some(quote_spanned!(span=> const CODEC: #keylane::encoding::Codec<Self> = #value;))
    }

    /// The body of `key`.
    fn key(&self, input: &DeriveInput) -> Result<TokenStream> {
        if let Some((option, function)) = &self.key_with {
            if let Some(span) = self.key.as_ref().map(LitStr::span).or(self.constant_key) {
                return Err(Error::new(span, "the key is given twice: keep this or `key_with`"));
            }
            let span = Span::call_site().located_at(*option);
            return Ok(quote_spanned!(span=> ::core::convert::Into::into(#function(self))));
        }
        let literal = required("key", &self.key, &input.ident)?;
        let fail = |problem: String| Error::new(literal.span(), problem);
        let pieces = key::parse(&literal.value()).map_err(fail)?;
        // `self` must resolve as in `fn key(&self)`, even if a macro wrote the literal.
        let span = Span::call_site().located_at(literal.span());
        let fields = fields(&pieces, input, span).map_err(fail)?;
        match (fields.is_empty(), self.constant_key) {
            (true, None) => Err(fail(
                "the key names no field, so all events of this type would wait for one another: \
                 name a field, as in `order-{id}`, or add `constant_key` if this is meant"
                    .to_owned(),
            )),
            (false, Some(span)) => {
                Err(Error::new(span, "the key names a field, so it is not constant: take `constant_key` out"))
            }
            (true, Some(_)) => {
                let text: String = pieces.into_iter().map(Piece::into_text).collect();
                Ok(quote_spanned!(span=> ::std::borrow::Cow::Borrowed(#text)))
            }
            (false, None) => {
                let format = LitStr::new(&key::format_string(&pieces), span);
                Ok(quote_spanned!(span=> ::std::borrow::Cow::Owned(::std::format!(#format, #(#fields),*))))
            }
        }
    }
}

fn required<'a>(what: &str, literal: &'a Option<LitStr>, event: &Ident) -> Result<&'a LitStr> {
    literal.as_ref().ok_or_else(|| {
        let example = "#[outbox(record_type = \"order.placed\", key = \"order-{id}\")]";
        Error::new(event.span(), format!("an event needs a {what}: write `{example}`"))
    })
}

fn check_shape(input: &DeriveInput) -> Result<()> {
    if let Data::Union(union) = &input.data {
        return Err(Error::new(union.union_token.span, "a union cannot be an event: make it a struct"));
    }
    if input.generics.params.is_empty() {
        return Ok(());
    }
    Err(Error::new_spanned(
        &input.generics,
        "a generic event would give its one record type to several types: derive it on a struct without parameters",
    ))
}

/// An expression for each field that the key names.
fn fields(
    pieces: &[Piece],
    input: &DeriveInput,
    span: Span,
) -> std::result::Result<Vec<TokenStream>, String> {
    let known = match &input.data {
        Data::Struct(data) => members(&data.fields),
        Data::Enum(_) | Data::Union(_) => Vec::new(),
    };
    let mut fields = Vec::new();
    for piece in pieces {
        let Piece::Field { path, .. } = piece else { continue };
        if !known.contains(&path[0]) {
            return Err(unknown(&path[0], &known, &input.data));
        }
        let path = path.iter().map(|name| member(name, span)).collect::<syn::Result<Vec<_>>>();
        let path = path.map_err(|error| error.to_string())?;
        fields.push(quote_spanned!(span=> self #(.#path)*));
    }
    Ok(fields)
}

fn members(fields: &Fields) -> Vec<String> {
    let name = |member| match member {
        Member::Named(name) => name.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    fields.members().map(name).collect()
}

fn member(name: &str, span: Span) -> Result<Member> {
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        let mut index: Index = syn::parse_str(name)?;
        index.span = span;
        return Ok(Member::Unnamed(index));
    }
    let mut name: Ident = syn::parse_str(name)?;
    name.set_span(span);
    Ok(Member::Named(name))
}

fn unknown(name: &str, known: &[String], data: &Data) -> String {
    match data {
        Data::Struct(_) if known.is_empty() => {
            format!(
                "the key names `{name}`, but the struct has no fields: add one, or write `key = \"…\", constant_key`"
            )
        }
        Data::Struct(_) => {
            format!("the key names `{name}`, which is not a field; the fields are {}", options::names(known))
        }
        Data::Enum(_) | Data::Union(_) => {
            "an enum has no fields that all its variants share: write `key_with = path::to::function` \
             instead of `key`"
                .to_owned()
        }
    }
}
