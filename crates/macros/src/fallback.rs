//! `#[outbox_fallback_handler]`: a function that takes the records that a handler could not deliver.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, Result};

use crate::{
    arguments::FallbackArguments,
    call,
    signature::{Function, Given, Taken},
};

/// The code beside the function: its declaration, and the call by the outbox.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (arguments, function) = call::both(FallbackArguments::read(attribute), Function::read(item))?;
    check(&arguments, &function)?;
    let (keylane, name) = (&arguments.keylane, &function.name);
    let of = match &arguments.of {
        Some(id) => quote!(::core::option::Option::Some(::std::string::String::from(#id))),
        None => quote!(::core::option::Option::None),
    };
    let declared = call::declared(keylane, &function, &quote!(fallback_call(#of, #name {})));
    let result = call::result(keylane);
    let body = call::one(keylane, &function);
    let call = quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl #keylane::handler::FallbackCall for #name {
            fn call<'a>(
                &'a self,
                context: #keylane::handler::Context<'a>,
                failure: &'a #keylane::handler::Failure,
            ) -> #keylane::handler::BoxFuture<'a, #result> {
                #body
            }
        }
    };
    Ok(quote!(#declared #call))
}

fn check(arguments: &FallbackArguments, function: &Function) -> Result<()> {
    match &function.takes {
        Taken::Event(event) if arguments.of.is_none() => {
            let advice =
                "the default fallback takes records of every type: make the first argument a `&Record`";
            return Err(Error::new_spanned(event, advice));
        }
        Taken::Events(events) => {
            let advice =
                "a fallback takes one event at a time: make the first argument an event `E` or a `&Record`";
            return Err(Error::new_spanned(events, advice));
        }
        Taken::Event(_) | Taken::Record => {}
    }
    for (given, ty) in &function.given {
        let advice = match given {
            Given::Delivery => "the delivery is in the failure: take `&Failure` and use `failure.delivery`",
            Given::Deliveries => "a fallback takes one event at a time: take `&Failure`",
            Given::Connection(_) => "a fallback has no transaction: take a `State` with a pool",
            Given::Failure | Given::State(_) => continue,
        };
        return Err(Error::new_spanned(ty, advice));
    }
    Ok(())
}
