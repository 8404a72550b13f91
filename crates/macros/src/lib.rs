//! The macros of [Keylane](https://docs.rs/keylane): the derive for events and the attributes for
//! handlers.
//!
//! `keylane` re-exports them (feature `macros`, on by default). Use them from there. Their output could be
//! written by hand: an event is an `impl OutboxEvent`, a handler is a `Registration` of its function. The
//! function itself does not change, so that tests can call it.

mod arguments;
mod call;
mod duration;
mod event;
mod fallback;
mod form;
mod handler;
mod key;
mod message;
mod name;
mod options;
mod rate;
mod retry;
mod signature;

use proc_macro2::TokenStream;

/// Makes a struct an event, with a stable name and a key.
///
#[cfg_attr(not(doctest), doc = include_str!("doc/event.md"))]
///
/// # Options of `#[outbox(…)]`
///
/// | option | meaning |
/// | --- | --- |
/// | `record_type = "…"` | The name stored with every record: 1 to 128 ASCII letters, digits and `. _ - : /`. Records outlive the Rust name, so never change it. |
/// | `key = "…"` | The key, which orders the events, with fields in braces: `{tail}`, `{0}`, `{order.id}`, `{number:05}`; `{{` and `}}` stand for braces. |
/// | `constant_key` | Allows a `key` without a field. All events of the type then wait for one another. |
/// | `key_with = path` | Instead of `key`: a function from `&Self` to a `String`. The only way for an enum. |
/// | `version = 2` | The version of the payload's form, 1 if not given. A build with an older version leaves newer payloads to others. |
/// | `upcast = path` | A function from the version of an older payload and the payload as a `serde_json::Value` to the form of this version: `fn(u32, Value) -> Result<Value, E>`. |
/// | `codec = cbor` | The codec of the payload: `json` if not given, `cbor`, `message_pack`, `protobuf` (features of the library), or the path of a constant `Codec<Self>`. |
/// | `crate = path` | The path of `keylane`, if the crate has another name. |
#[proc_macro_derive(OutboxEvent, attributes(outbox))]
pub fn derive_outbox_event(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    event::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes an `async fn` a handler, to be given to the builder by `handlers![…]`.
///
#[cfg_attr(not(doctest), doc = include_str!("doc/handler.md"))]
///
/// A handler that no `handlers![…]` names is reported by the compiler as never used.
///
/// # Arguments
///
/// The first argument decides the form of the handler; the others may follow in any order.
///
/// | first argument | form | may be followed by |
/// | --- | --- | --- |
/// | `event: E` | typed | `&Delivery`, `State<T>` |
/// | `record: &Record` | generic: payload as bytes; needs `every` or `types(…)` | `State<T>` |
/// | `events: Vec<E>` | batch; needs `batch` | `&[&Delivery]`, `State<T>` |
/// | `event: E` or `record: &Record`, with `transactional` | transactional | `&mut` connection (needed), `&Delivery`, `State<T>` |
/// | `events: Vec<E>`, with `batch` and `transactional` | transactional batch | `&mut` connection (needed), `&[&Delivery]`, `State<T>` |
///
/// The connection of a transactional handler, such as `&mut sqlx::PgConnection`, is in the transaction
/// that completes the record: writes through it happen exactly once. A transactional batch
/// completes all of its records in one transaction; if it fails, each half is tried by itself, down to
/// the record that fails.
///
/// # Result
///
/// `Result<(), E>`, where `E` is a `HandlerError`, a `ClassifiedError`, or any other error. A batch
/// handler may return a `Vec` with one result per record instead. If a batch handler returns
/// `Result<(), E>`, `Ok(())` means that all are delivered, and `Err` that the first has failed and the
/// others were not tried. A transactional batch returns `Result<(), E>`.
///
/// # Options
///
/// | option | meaning |
/// | --- | --- |
/// | `id = "…"` | Needed. Stored with every record for this handler: 1 to 128 ASCII letters, digits and `. _ - : /`. |
/// | `retry(kind, …)` | This handler's retry policy; see below. |
/// | `timeout = "30s"` | The time limit of one call. |
/// | `concurrency = 8` | The most calls at once in one instance. |
/// | `rate = "50/s"` | The most calls that one instance begins per `ms`, `s`, `m` or `h`. |
/// | `stop_on_first_failure = false` | Whether a failing record stops the later ones of its lane. |
/// | `on_failure = "block"` or `"continue"` | Whether the lane stands still or goes on after a record has failed for good. |
/// | `batch = 100` or `batch(size = 100, mixed)` | Up to this many records in a call: a run of one lane, or a mix of several. |
/// | `transactional` | The handler writes in the transaction that completes the record. |
/// | `every` or `types("a", "b")` | The record types of a generic handler. |
/// | `crate = path` | The path of `keylane`, if the crate has another name. |
///
/// Kinds of `retry`: `exponential` (`initial`, `multiplier`), `linear` (`initial`, `increment`), `fixed`
/// (`delay`) and `never`. All but the last also take `max_retries = 3`, `max_delay = "1m"`,
/// `jitter = 0.1`, `retry_on = ["timeout"]` and `never_on = ["refused"]`. The other values are
/// those of `RetryPolicy::default()`. The notation of durations is `"500ms"`, `"30s"`, `"1m 30s"` or `"2h"`.
#[proc_macro_attribute]
pub fn outbox_handler(
    attribute: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    beside(item.into(), |item| handler::expand(attribute.into(), item)).into()
}

/// Makes an `async fn` a fallback handler, which takes the records that a handler could not deliver.
///
/// If the fallback handler succeeds, the record counts as delivered. If it returns an error, the record
/// has failed.
///
#[cfg_attr(not(doctest), doc = include_str!("doc/fallback.md"))]
///
/// # Arguments
///
/// First `event: E` or `record: &Record`; then, in any order and as needed, `&Failure` and `State<T>`.
///
/// # Options
///
/// | option | meaning |
/// | --- | --- |
/// | `of = "…"` | The id of the handler that the fallback belongs to. |
/// | `default` | Instead of `of`: the fallback of all handlers without a fallback. Takes a `&Record`. |
/// | `crate = path` | The path of `keylane`, if the crate has another name. |
#[proc_macro_attribute]
pub fn outbox_fallback_handler(
    attribute: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    beside(item.into(), |item| fallback::expand(attribute.into(), item)).into()
}

/// Makes an `async fn` a handler of the messages of a topic, for the consumer of `keylane-consumer`, which re-exports
/// this attribute.
///
/// ```text
/// use keylane_consumer::{Consumer, ConsumerConfig, Message, message_handler};
///
/// #[message_handler(topic = "orders", group = "billing")]
/// async fn bill(tx: &mut sqlx::PgConnection, order: Order) -> Result<(), sqlx::Error> {
///     sqlx::query("INSERT INTO bill (number) VALUES ($1)").bind(order.id).execute(tx).await?;
///     Ok(())
/// }
///
/// let running = Consumer::builder(config).transactional_handler(inbox, bill {}).start()?;
/// ```
///
/// The function takes a `&Message`, or a type that its payload is decoded into as JSON. Before it, a transactional
/// handler takes a `&mut` connection. The attribute adds a type of the same name, which is what the builder is given:
/// `bill {}`. A handler with a state of its own is a struct that implements the trait.
///
/// | option | meaning |
/// | --- | --- |
/// | `topic = "…"` | Needed. The topic. |
/// | `group = "…"` | The consumer group. A consumer of another group refuses the handler. |
/// | `crate = path` | The path of `keylane_consumer`, if the crate has another name. |
#[proc_macro_attribute]
pub fn message_handler(
    attribute: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    beside(item.into(), |item| message::expand(attribute.into(), item)).into()
}

/// The unchanged item, followed by the generated code or the errors.
fn beside(item: TokenStream, expand: impl FnOnce(TokenStream) -> syn::Result<TokenStream>) -> TokenStream {
    let added = expand(item.clone()).unwrap_or_else(|error| {
        let mut added = error.into_compile_error();
        added.extend(call::refused(item.clone()));
        added
    });
    let mut tokens = item;
    tokens.extend(added);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> TokenStream {
        text.parse().unwrap()
    }

    #[test]
    fn a_renamed_library_is_named_everywhere() {
        let check = |added: TokenStream| {
            let added = added.to_string();
            assert!(added.contains("my :: outbox"), "{added}");
            assert!(!added.contains("keylane"), "{added}");
        };
        let handler = |options: &str, function: &str| {
            let attribute = tokens(&format!("id = \"a\", crate = my::outbox, {options}"));
            check(handler::expand(attribute, tokens(function)).unwrap());
        };
        handler(
            "retry(exponential), timeout = \"1s\", on_failure = \"block\"",
            "async fn f(e: E, d: &Delivery, s: State<T>) -> R {}",
        );
        handler("every", "pub async fn f(r: &Record) -> R {}");
        handler("batch = 2", "async fn f(e: Vec<E>, d: &[&Delivery], s: State<T>) -> Vec<R> {}");
        handler("transactional", "async fn f(e: E, tx: &mut C) -> R {}");
        let fallback = tokens("async fn f(e: E, f: &Failure, s: State<T>) -> R {}");
        check(fallback::expand(tokens("of = \"a\", crate = my::outbox"), fallback).unwrap());
        let event = "#[outbox(record_type = \"e\", key = \"{id}\", crate = my::outbox)] struct E { id: u8 }";
        check(event::expand(tokens(event)).unwrap());
    }
}
