//! Typed handlers: arguments in any order, and every kind of error.

use keylane::{ClassifiedError, Delivery, HandlerError, OutboxEvent, State, handlers, outbox_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "flight.departed", key = "aircraft-{tail}")]
struct FlightDeparted {
    tail: String,
}

#[derive(Clone)]
struct Books;

#[derive(Debug, thiserror::Error)]
#[error("the books are closed")]
struct BooksError;

impl ClassifiedError for BooksError {
    fn class(&self) -> Option<&'static str> {
        Some("closed")
    }
}

#[outbox_handler(id = "bookkeeper")]
async fn keep_books(
    event: FlightDeparted,
    delivery: &Delivery,
    State(books): State<Books>,
) -> Result<(), BooksError> {
    let _: (String, u32, Books) = (event.tail, delivery.attempt, books);
    Err(BooksError)
}

#[outbox_handler(id = "alone")]
async fn alone(_: FlightDeparted) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "plain-error")]
async fn plain_error(mut event: FlightDeparted, limit: State<usize>) -> std::io::Result<()> {
    event.tail.truncate(limit.0);
    tokio_like().await?;
    Ok(())
}

/// Documented, with a lint attribute, several states and paths instead of imports.
#[outbox_handler(id = "crowded")]
#[allow(clippy::unused_async)]
async fn crowded(
    _: self::FlightDeparted,
    State(first): State<u8>,
    delivery: &keylane::Delivery,
    second: keylane::State<(u8, String)>,
    keylane::State(third): keylane::handler::State<Vec<u8>>,
) -> Result<(), Box<BooksError>> {
    let _ = (first, delivery, second, third);
    Ok(())
}

async fn tokio_like() -> std::io::Result<()> {
    Ok(())
}

#[test]
fn are_accepted() {
    let _ = handlers![keep_books, alone, plain_error, crowded];
    // The functions are still there to be called.
    let event = FlightDeparted { tail: "D-AIUR".to_owned() };
    let future = plain_error(event, State(2));
    drop(future);
}
