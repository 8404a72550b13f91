//! The parts of the expansion that handlers and fallback handlers share.
//!
//! Local names are written at the mixed site, so that a handler may be called `context` or `batch`
//! without being hidden by them.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Ident, Path, Result, Type, Visibility, spanned::Spanned};

use crate::signature::{Function, Given, Head, Taken};

/// The attribute and its function, or the problems of both.
pub(crate) fn both<A>(attribute: Result<A>, function: Result<Function>) -> Result<(A, Function)> {
    match (attribute, function) {
        (Ok(attribute), Ok(function)) => Ok((attribute, function)),
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
        (Err(mut error), Err(further)) => {
            error.combine(further);
            Err(error)
        }
    }
}

/// A struct of the function's name, which may live beside it, and what it declares.
pub(crate) fn declared(keylane: &Path, function: &Function, registration: &TokenStream) -> TokenStream {
    let name = &function.name;
    let marker = marker(&function.visibility, name);
    let needs = function.states().map(|state| quote!(.needs::<#state>()));
    quote! {
        #marker

        #[automatically_derived]
        impl #keylane::handler::Declare for #name {
            fn declare() -> #keylane::handler::Registration {
                #keylane::handler::Registration::#registration #(#needs)*
            }
        }
    }
}

/// The same for a function that was refused, so that one mistake is not reported a second time
/// wherever the handler is named.
pub(crate) fn refused(item: TokenStream) -> Option<TokenStream> {
    let head: Head = syn::parse2(item).ok()?;
    if head.signature.receiver().is_some() {
        return None;
    }
    let name = &head.signature.ident;
    let marker = marker(&head.visibility, name);
    Some(quote! {
        #marker

        #[automatically_derived]
        impl ::keylane::handler::Declare for #name {
            fn declare() -> ::keylane::handler::Registration {
                ::core::unreachable!()
            }
        }
    })
}

/// `Result<(), HandlerError>`
pub(crate) fn result(keylane: &Path) -> TokenStream {
    quote!(::core::result::Result<(), #keylane::handler::HandlerError>)
}

/// The future of a call that handles one record.
pub(crate) fn one(keylane: &Path, function: &Function) -> TokenStream {
    let mixed = Span::mixed_site();
    let first = match &function.takes {
        Taken::Record => quote_spanned!(mixed=> context.record()),
        Taken::Event(event) | Taken::Events(event) => quote_spanned!(mixed=> context.event::<#event>()?),
    };
    let state = |ty: &Type| quote_spanned!(mixed=> context.state::<#ty>()?);
    let returned = returned(function, &quote!(::core::result::Result<(), _>), &first, state);
    let converted = converted(keylane);
    let body = quote_spanned! {mixed=>
        #returned
        returned.map_err(#converted)
    };
    boxed(function, &body)
}

/// The future of a call that handles several records.
pub(crate) fn many(keylane: &Path, function: &Function, event: &Type) -> TokenStream {
    let mixed = Span::mixed_site();
    let first = quote_spanned!(mixed=> batch.events);
    let state = |ty: &Type| {
        quote_spanned! {mixed=>
            match states.get::<#ty>() {
                ::core::result::Result::Ok(state) => state,
                ::core::result::Result::Err(error) => return ::std::vec![::core::result::Result::Err(error)],
            }
        }
    };
    let converted = converted(keylane);
    let (wanted, results) = match one_result_each(&function.returns) {
        true => (
            quote!(::std::vec::Vec<::core::result::Result<(), _>>),
            quote_spanned! {mixed=>
                returned.into_iter().map(|result| result.map_err(#converted)).collect()
            },
        ),
        false => (
            quote!(::core::result::Result<(), _>),
            quote_spanned! {mixed=>
                match returned.map_err(#converted) {
                    ::core::result::Result::Ok(()) => {
                        ::core::iter::repeat_with(|| ::core::result::Result::Ok(())).take(count).collect()
                    }
                    // It is not known which record failed, so the first one is tried alone next.
                    ::core::result::Result::Err(error) => ::std::vec![::core::result::Result::Err(error)],
                }
            },
        ),
    };
    let returned = returned(function, &wanted, &first, state);
    let body = quote_spanned! {mixed=>
        let batch = #keylane::handler::DecodedBatch::<#event>::of(records);
        let count = batch.events.len();
        let results: #keylane::handler::BatchResults = match count {
            0 => ::std::vec::Vec::new(),
            _ => {
                #returned
                #results
            }
        };
        batch.undecodable.close(results, count)
    };
    boxed(function, &body)
}

/// The future of a call that handles all of several records or none of them.
pub(crate) fn all(keylane: &Path, function: &Function, event: &Type) -> TokenStream {
    let mixed = Span::mixed_site();
    let first = quote_spanned!(mixed=> batch.events);
    let state = |ty: &Type| quote_spanned!(mixed=> states.get::<#ty>()?);
    let returned = returned(function, &quote!(::core::result::Result<(), _>), &first, state);
    let converted = converted(keylane);
    let body = quote_spanned! {mixed=>
        let batch = #keylane::handler::DecodedBatch::<#event>::of(records);
        batch.undecodable.check()?;
        #returned
        returned.map_err(#converted)
    };
    boxed(function, &body)
}

/// Calls the function and binds what it returned to the type it must have, or else the compiler says
/// so at its return type.
fn returned(
    function: &Function,
    wanted: &TokenStream,
    first: &TokenStream,
    state: impl Fn(&Type) -> TokenStream,
) -> TokenStream {
    let mixed = Span::mixed_site();
    let further = function.given.iter().map(|(given, _)| match given {
        Given::Delivery => quote_spanned!(mixed=> context.delivery()),
        Given::Deliveries => quote_spanned!(mixed=> &batch.deliveries),
        Given::Failure => quote_spanned!(mixed=> failure),
        Given::Connection(_) => quote_spanned!(mixed=> tx),
        Given::State(ty) => state(ty),
    });
    let name = &function.name;
    let span = mixed.located_at(function.returns.span());
    quote_spanned!(span=> let returned: #wanted = #name(#first #(, #further)*).await;)
}

/// A boxed future, as the call traits return it. If the function's future is not `Send`, the
/// compiler says so at the function's name.
fn boxed(function: &Function, body: &TokenStream) -> TokenStream {
    let span = Span::mixed_site().located_at(function.name.span());
    quote_spanned!(span=> ::std::boxed::Box::pin(async move { #body }))
}

/// A closure that turns the function's error into a `HandlerError`.
fn converted(keylane: &Path) -> TokenStream {
    quote_spanned! {Span::mixed_site()=>
        |error| {
            use #keylane::handler::convert::*;
            (&&&Returned::new(error)).into_handler_error()
        }
    }
}

/// Whether a batch handler returns a `Vec` of results instead of a single one.
pub(crate) fn one_result_each(returns: &Type) -> bool {
    let Type::Path(path) = returns else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Vec" || last.ident == "BatchResults")
}

fn marker(visibility: &Visibility, name: &Ident) -> TokenStream {
    quote! {
        #[allow(
            missing_copy_implementations,
            missing_debug_implementations,
            non_camel_case_types,
            unreachable_pub
        )]
        #[doc(hidden)]
        #visibility struct #name {}
    }
}
