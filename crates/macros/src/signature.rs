//! The shape of a handler function, recognised by the syntax of its types.
//!
//! Types are compared by the last segment of their paths, so `&keylane::Delivery` and `&Delivery` are
//! the same. The body is never parsed: it goes back to the compiler as it came.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, PathArguments, Result, ReturnType, Safety, Signature,
    Type, TypeReference, Visibility,
    parse::{Parse, ParseStream},
};

/// A function that can be a handler.
pub(crate) struct Function {
    pub(crate) visibility: Visibility,
    pub(crate) name: Ident,
    /// The kind of the first argument.
    pub(crate) takes: Taken,
    /// The kinds of the further arguments, with their types.
    pub(crate) given: Vec<(Given, Type)>,
    pub(crate) returns: Type,
}

/// The first argument of a handler.
pub(crate) enum Taken {
    /// `event: E`
    Event(Type),
    /// `record: &Record`
    Record,
    /// `events: Vec<E>`
    Events(Type),
}

/// A further argument of a handler.
pub(crate) enum Given {
    /// `&Delivery`
    Delivery,
    /// `&[&Delivery]`
    Deliveries,
    /// `&Failure`
    Failure,
    /// `State<T>`
    State(Type),
    /// `&mut C`
    Connection(Type),
}

/// A function without its body.
pub(crate) struct Head {
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
}

impl Parse for Head {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Attribute::parse_outer(input)?;
        let visibility = input.parse()?;
        let span = input.span();
        let signature = input.parse().map_err(|error: Error| match input.is_empty() {
            true => error,
            false => Error::new(span, "only an `async fn` can be a handler"),
        })?;
        input.parse::<TokenStream>()?;
        Ok(Self { visibility, signature })
    }
}

impl Function {
    /// The shape of the function, or the reason why it cannot be a handler.
    pub(crate) fn read(item: TokenStream) -> Result<Self> {
        let Head { visibility, signature } = syn::parse2(item)?;
        check_kind(&signature)?;
        let returns = match signature.output {
            ReturnType::Type(_, returns) => *returns,
            ReturnType::Default => {
                let advice = "a handler says whether it succeeded: return `Result<(), E>`";
                return Err(Error::new(signature.ident.span(), advice));
            }
        };
        let mut types = signature.inputs.iter().filter_map(|argument| match argument {
            FnArg::Typed(argument) => Some(bare(&argument.ty)),
            FnArg::Receiver(_) => None,
        });
        let Some(first) = types.next() else {
            let advice = "a handler takes what it handles: add the event as its first argument";
            return Err(Error::new(signature.paren_token.span.join(), advice));
        };
        let takes = Taken::of(first)?;
        let given = types.map(|ty| Ok((Given::of(ty)?, ty.clone()))).collect::<Result<_>>()?;
        Ok(Self { visibility, name: signature.ident, takes, given, returns })
    }

    /// The types of its shared values.
    pub(crate) fn states(&self) -> impl Iterator<Item = &Type> {
        self.given.iter().filter_map(|(given, _)| match given {
            Given::State(ty) => Some(ty),
            _ => None,
        })
    }
}

impl Taken {
    fn of(ty: &Type) -> Result<Self> {
        let refuse = |advice: &str| Err(Error::new_spanned(ty, advice));
        match ty {
            Type::Path(_) if named(ty, "State") => {
                refuse("the first argument is the event: put `State` after it")
            }
            Type::Path(_) => Ok(match inner(ty, "Vec") {
                Some(event) => Self::Events(event.clone()),
                None => Self::Event(ty.clone()),
            }),
            // A macro may have written the type.
            Type::Macro(_) => Ok(Self::Event(ty.clone())),
            Type::Reference(reference) if is_shared(reference, "Record") => Ok(Self::Record),
            Type::Reference(reference) if reference.mutability.is_some() => {
                refuse("the first argument is the event: put the connection after it")
            }
            Type::Reference(reference) if is_shared(reference, "Delivery") => {
                refuse("the first argument is the event: put `&Delivery` after it")
            }
            Type::Reference(reference) if matches!(bare(&reference.elem), Type::Path(_)) => {
                refuse("a handler owns its event: take it by value, without `&`")
            }
            Type::ImplTrait(_) => refuse("a handler cannot be generic: name the event's type"),
            _ => refuse("the first argument is an event `E`, a `&Record`, or a `Vec<E>` for a batch"),
        }
    }
}

impl Given {
    fn of(ty: &Type) -> Result<Self> {
        let refuse = |advice: &str| Err(Error::new_spanned(ty, advice));
        if let Some(state) = inner(ty, "State") {
            return Ok(Self::State(state.clone()));
        }
        let Type::Reference(reference) = ty else {
            return match ty {
                Type::ImplTrait(_) => refuse("a handler cannot be generic: name the type"),
                _ if named(ty, "State") => refuse("say which value of yours it is: `State<T>`"),
                _ if named(ty, "Delivery") || named(ty, "Failure") => refuse("take it by reference: add `&`"),
                _ => refuse(
                    "a handler is given nothing of this type: to be given a value of your own, take `State<T>`",
                ),
            };
        };
        match bare(&reference.elem) {
            ty if reference.mutability.is_some() && named(ty, "Transaction") => {
                refuse("take the connection that the transaction holds, such as `&mut sqlx::PgConnection`")
            }
            ty if reference.mutability.is_some() => Ok(Self::Connection(ty.clone())),
            ty if named(ty, "Delivery") => Ok(Self::Delivery),
            ty if named(ty, "Failure") => Ok(Self::Failure),
            ty if named(ty, "State") => refuse("a handler owns its state: take it by value, without `&`"),
            Type::Slice(slice) => match bare(&slice.elem) {
                Type::Reference(reference) if is_shared(reference, "Delivery") => Ok(Self::Deliveries),
                _ => refuse("a batch handler is told about its records by `&[&Delivery]`"),
            },
            _ => refuse(
                "a handler is given nothing of this type: to be given a value of your own, take `State<T>`",
            ),
        }
    }
}

fn check_kind(signature: &Signature) -> Result<()> {
    let refuse = |tokens: &dyn ToTokens, advice| Err(Error::new_spanned(tokens.to_token_stream(), advice));
    if let Some(receiver) = signature.receiver() {
        return refuse(
            receiver,
            "a method cannot be a handler: write a free function, and take `State<T>` for `self`",
        );
    }
    if signature.asyncness.is_none() {
        return refuse(&signature.fn_token, "a handler is awaited: write `async fn`");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        return refuse(
            token,
            "a handler cannot be unsafe: put the unsafe part into a function that it calls",
        );
    }
    if !signature.generics.params.is_empty() {
        return refuse(&signature.generics, "a handler cannot be generic: its id stands for one function");
    }
    match &signature.generics.where_clause {
        Some(clause) => refuse(clause, "a handler cannot be generic: take the `where` clause out"),
        None => Ok(()),
    }
}

/// The type without the invisible brackets of a macro.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        ty => ty,
    }
}

fn named(ty: &Type, name: &str) -> bool {
    matches!(bare(ty), Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

fn is_shared(reference: &TypeReference, name: &str) -> bool {
    reference.mutability.is_none() && named(&reference.elem, name)
}

/// `T` of `Name<T>`.
fn inner<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = bare(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(ty)) if arguments.args.len() == 1 => Some(ty),
        _ => None,
    }
}
