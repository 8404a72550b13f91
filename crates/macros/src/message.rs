//! `#[message_handler]`: a function that handles the messages of a topic.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, FnArg, LitStr, Path, Result, Signature, Type, meta, parse::Parser, parse_quote};

use crate::signature::Head;

/// What `#[message_handler(…)]` says.
struct Arguments {
    consumer: Path,
    topic: LitStr,
    group: Option<LitStr>,
}

impl Arguments {
    fn read(attribute: TokenStream) -> Result<Self> {
        let (mut consumer, mut topic, mut group) = (parse_quote!(::keylane_consumer), None, None);
        let parser = meta::parser(|option| {
            let is = |name| option.path.is_ident(name);
            if is("topic") {
                topic = Some(option.value()?.parse::<LitStr>()?);
            } else if is("group") {
                group = Some(option.value()?.parse::<LitStr>()?);
            } else if is("crate") {
                consumer = option.value()?.parse()?;
            } else {
                return Err(option.error("unknown option: `topic`, `group` and `crate` are known"));
            }
            Ok(())
        });
        parser.parse2(attribute)?;
        let empty = |text: &LitStr| text.value().is_empty();
        match topic {
            Some(topic) if !empty(&topic) && !group.as_ref().is_some_and(empty) => {
                Ok(Self { consumer, topic, group })
            }
            _ => Err(Error::new(
                Span::call_site(),
                "name the topic: #[message_handler(topic = \"orders\", group = \"billing\")]",
            )),
        }
    }
}

/// What is added beside the function: its topic, and how the consumer calls it.
pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let Arguments { consumer, topic, group } = Arguments::read(attribute)?;
    let Head { visibility, signature } = syn::parse2(item)?;
    let (connection, argument) = arguments(&signature)?;
    let name = &signature.ident;
    let group = match group {
        Some(group) => quote!(::core::option::Option::Some(#group)),
        None => quote!(::core::option::Option::None),
    };
    let declared = quote! {
        #[allow(non_camel_case_types, missing_docs)]
        #[automatically_derived]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #name {}

        #[automatically_derived]
        impl #consumer::Declared for #name {
            const TOPIC: &'static str = #topic;
            const GROUP: ::core::option::Option<&'static str> = #group;
        }
    };
    let result = quote!(::core::result::Result<(), #consumer::HandlerError>);
    let done = quote!(::core::result::Result::Ok(()));
    let call = match connection {
        None => quote_spanned! {Span::mixed_site()=>
            #[automatically_derived]
            impl #consumer::MessageHandler for #name {
                async fn handle(&self, message: &#consumer::Message) -> #result {
                    #name(#argument).await?;
                    #done
                }
            }
        },
        Some(connection) => quote_spanned! {Span::mixed_site()=>
            #[automatically_derived]
            impl<DB> #consumer::TransactionalMessageHandler<DB> for #name
            where
                DB: #consumer::InboxDatabase<Connection = #connection>,
            {
                async fn handle(&self, tx: &mut #connection, message: &#consumer::Message) -> #result {
                    #name(tx, #argument).await?;
                    #done
                }
            }
        },
    };
    Ok(quote!(#declared #call))
}

/// The type of the connection, if the function takes one, and what it is given for the message.
fn arguments(signature: &Signature) -> Result<(Option<Type>, TokenStream)> {
    let advice = "a message handler is an `async fn` that takes a `&Message` or the payload, and before it a \
                  `&mut` connection if it is transactional";
    let refused = || Error::new_spanned(signature, advice);
    if signature.asyncness.is_none() || !signature.generics.params.is_empty() {
        return Err(refused());
    }
    let mut types = Vec::new();
    for argument in &signature.inputs {
        match argument {
            FnArg::Typed(argument) => types.push(&*argument.ty),
            _ => return Err(refused()),
        }
    }
    let (connection, message) = match types[..] {
        [message] => (None, message),
        [Type::Reference(tx), message] if tx.mutability.is_some() => (Some((*tx.elem).clone()), message),
        _ => return Err(refused()),
    };
    let hygienic = Span::mixed_site();
    match message {
        Type::Reference(message) if message.mutability.is_none() => {
            Ok((connection, quote_spanned!(hygienic=> message)))
        }
        Type::Reference(_) => Err(refused()),
        _ => Ok((connection, quote_spanned!(hygienic=> message.json()?))),
    }
}
