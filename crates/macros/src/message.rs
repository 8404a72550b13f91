//! `#[message_handler]`: a function that handles the messages of a topic.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Error, FnArg, LitStr, Path, Result, ReturnType, Safety, Signature, Type,
    meta::{self, ParseNestedMeta},
    parse::Parser,
    parse_quote,
};

use crate::signature::Head;

/// The arguments of `#[message_handler(…)]`.
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
                text(&mut topic, &option)?;
            } else if is("group") {
                text(&mut group, &option)?;
            } else if is("crate") {
                consumer = option.value()?.parse()?;
            } else {
                return Err(option.error("unknown option: `topic`, `group` and `crate` are known"));
            }
            Ok(())
        });
        parser.parse2(attribute)?;
        let Some(topic) = topic else {
            let advice = "name the topic: #[message_handler(topic = \"orders\", group = \"billing\")]";
            return Err(Error::new(Span::call_site(), advice));
        };
        Ok(Self { consumer, topic, group })
    }
}

/// Reads the text of an option.
fn text(place: &mut Option<LitStr>, option: &ParseNestedMeta<'_>) -> Result<()> {
    let name = option.path.require_ident()?;
    let text: LitStr = option.value()?.parse()?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), format!("`{name}` is empty: name one, or take the option out")));
    }
    match place.replace(text) {
        Some(_) => Err(option.error(format!("`{name}` is given twice; keep one"))),
        None => Ok(()),
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
    let advice = "a message handler is a safe `async fn` without type parameters; it takes a `&Message` or the \
                  payload, and before it a `&mut` connection if it is transactional";
    let refused = || Error::new_spanned(signature, advice);
    let is_plain = signature.generics.params.is_empty() && signature.generics.where_clause.is_none();
    if signature.asyncness.is_none() || !is_plain || matches!(signature.safety, Safety::Unsafe(_)) {
        return Err(refused());
    }
    if let ReturnType::Default = signature.output {
        let advice = "a handler says whether it succeeded: return `Result<(), E>`";
        return Err(Error::new(signature.ident.span(), advice));
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
