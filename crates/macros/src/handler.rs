//! `#[outbox_handler]`: a function as a handler.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Result;

use crate::{
    arguments::{Batch, HandlerArguments, OnFailure, RecordTypes},
    call, duration,
    form::Form,
    signature::{Function, Taken},
};

/// The code beside the function: its declaration, and the call by the outbox.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (arguments, function) = call::both(HandlerArguments::read(attribute), Function::read(item))?;
    let form = Form::of(&arguments, &function)?;
    let declared = call::declared(&arguments.keylane, &function, &registration(&arguments, &function, &form));
    let call = call(&arguments, &function, &form);
    Ok(quote!(#declared #call))
}

/// The constructor of `Registration` and the options.
fn registration(arguments: &HandlerArguments, function: &Function, form: &Form<'_>) -> TokenStream {
    let HandlerArguments { keylane, id, .. } = arguments;
    let name = &function.name;
    let takes = match (&function.takes, &arguments.record_types) {
        (Taken::Event(event) | Taken::Events(event), _) => quote!(event::<#event>()),
        (Taken::Record, Some((RecordTypes::These(types), _))) => quote!(types([#(#types),*])),
        (Taken::Record, _) => quote!(all()),
    };
    let takes = quote!(#keylane::handler::RecordTypes::#takes);
    let start = match form {
        Form::Single => quote!(single(#id, #takes, #name {})),
        Form::Batch(_, Batch { size, mixed }) => quote!(batch_call(#id, #takes, #size, #mixed, #name {})),
        Form::Transactional(connection) => {
            quote!(transactional_call::<<#connection as #keylane::database::HasDatabase>::Database>(#id, #takes, #name {}))
        }
        Form::TransactionalBatch { connection, batch: Batch { size, mixed }, .. } => quote! {
            transactional_batch_call::<<#connection as #keylane::database::HasDatabase>::Database>(#id, #takes, #size, #mixed, #name {})
        },
    };
    let retry = arguments.retry.iter().map(|retry| retry.tokens(keylane));
    let timeout = arguments.timeout.map(duration::tokens).into_iter();
    let concurrency = arguments.concurrency.iter();
    let rate = arguments.rate.iter().map(|rate| rate.tokens(keylane));
    let stop = arguments.stop_on_first_failure.iter();
    let on_failure = arguments.on_failure.iter().map(|after| match after {
        OnFailure::Block => quote!(Block),
        OnFailure::Continue => quote!(Continue),
    });
    quote! {
        #start
            #(.retry(#retry))*
            #(.timeout(#timeout))*
            #(.concurrency(#concurrency))*
            #(.rate(#rate))*
            #(.stop_on_first_failure(#stop))*
            #(.on_failure(#keylane::OnFailure::#on_failure))*
    }
}

/// The implementation of the call trait that fits.
fn call(arguments: &HandlerArguments, function: &Function, form: &Form<'_>) -> TokenStream {
    let (keylane, name) = (&arguments.keylane, &function.name);
    let handler = quote!(#keylane::handler);
    let mixed = Span::mixed_site();
    let (call_trait, inputs, output) = match form {
        Form::Single => {
            (quote!(Call), quote_spanned!(mixed=> context: #handler::Context<'a>), call::result(keylane))
        }
        Form::Transactional(connection) => (
            quote!(TransactionalCall<<#connection as #keylane::database::HasDatabase>::Database>),
            quote_spanned!(mixed=> context: #handler::Context<'a>, tx: &'a mut #connection),
            call::result(keylane),
        ),
        Form::Batch(..) => (
            quote!(BatchCall),
            quote_spanned!(mixed=> records: &'a [&'a #keylane::Record], states: &'a #handler::States),
            quote!(#handler::BatchResults),
        ),
        Form::TransactionalBatch { connection, .. } => (
            quote!(TransactionalBatchCall<<#connection as #keylane::database::HasDatabase>::Database>),
            quote_spanned! {mixed=>
                records: &'a [&'a #keylane::Record], states: &'a #handler::States, tx: &'a mut #connection
            },
            call::result(keylane),
        ),
    };
    let body = match form {
        Form::Single | Form::Transactional(_) => call::one(keylane, function),
        Form::Batch(event, _) => call::many(keylane, function, event),
        Form::TransactionalBatch { event, .. } => call::all(keylane, function, event),
    };
    quote_spanned! {mixed=>
        #[automatically_derived]
        impl #handler::#call_trait for #name {
            fn call<'a>(&'a self, #inputs) -> #handler::BoxFuture<'a, #output> {
                #body
            }
        }
    }
}
