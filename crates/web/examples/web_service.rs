//! A service with all guards: an order and its event in one transaction, repeats, a burst, and one trace id from the
//! request to the handler of the event.
//!
//! `eval "$(dev/services env)" && cargo run --package keylane-web --features redis --example web_service`, with the
//! address of a Redis in `KEYLANE_TEST_REDIS_URL`. The database is a SQLite file.

#![allow(clippy::print_stdout)]

use std::{error::Error, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::{Json, Router, extract::State as Shared, routing::post};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use keylane::{
    Delivery, Outbox, OutboxEvent, State, handlers, outbox_handler,
    sqlx::{self, Sqlite, SqlitePool, sqlite::SqliteConnectOptions},
};
use keylane_web::{
    EnvelopeLayer, GuardBody, IdempotencyLayer, Limit, RateLimitLayer, Redis, Refusal, ResultEnvelope,
    TraceIdLayer, code,
};
use serde::{Deserialize, Serialize};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedSender, error::SendError, unbounded_channel},
};
use tower::ServiceBuilder;

#[derive(Clone, Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "customer-{customer}")]
struct OrderPlaced {
    id: i64,
    customer: String,
}

#[derive(Deserialize)]
struct Order {
    customer: String,
}

struct Shop {
    pool: SqlitePool,
    outbox: Outbox<Sqlite>,
}

impl Shop {
    /// The order and its event: both or none. The event has the trace of the request.
    async fn place(&self, customer: String) -> Result<OrderPlaced, Box<dyn Error + Send + Sync>> {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let row = sqlx::query_scalar("INSERT INTO customer_order (customer) VALUES ($1) RETURNING id");
        let id = row.bind(&customer).fetch_one(&mut *tx).await?;
        let placed = OrderPlaced { id, customer };
        self.outbox.schedule(&mut tx, &placed).await?;
        tx.commit().await?;
        self.outbox.wake();
        Ok(placed)
    }
}

type Answer = Result<(StatusCode, Json<ResultEnvelope<OrderPlaced>>), Response<GuardBody>>;

async fn place_order(Shared(shop): Shared<Arc<Shop>>, Json(order): Json<Order>) -> Answer {
    if order.customer.is_empty() {
        let message = "the customer is missing: name one";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, code::CLIENT, message).response());
    }
    match shop.place(order.customer).await {
        Ok(placed) => Ok((StatusCode::CREATED, Json(ResultEnvelope::ok(placed)))),
        Err(_) => {
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, code::SERVICE, "not placed").response())
        }
    }
}

/// What consumes the event: here a handler in the same process.
#[outbox_handler(id = "mailer")]
async fn confirm(
    order: OrderPlaced,
    delivery: &Delivery,
    State(mails): State<UnboundedSender<String>>,
) -> Result<(), SendError<String>> {
    let trace = delivery.trace_id().unwrap_or("none");
    mails.send(format!("order {} of {}, trace {trace}", order.id, order.customer))
}

/// The service: guards outermost first, then the routes.
async fn service(shop: Arc<Shop>, redis: Redis) -> Result<Router, Box<dyn Error>> {
    // Names of this run, so that a second run finds nothing of the first one.
    let run = std::process::id();
    let limit = Limit::per_minute(6).burst(6);
    let limit = RateLimitLayer::builder(format!("example-{run}"), limit).store(redis.clone()).build()?;
    let once = IdempotencyLayer::builder(redis, format!("example-{run}"));
    let once = once.required().keep(Duration::from_secs(60)).build()?;
    let guards =
        ServiceBuilder::new().layer(TraceIdLayer::new()).layer(EnvelopeLayer::new()).layer(limit).layer(once);
    Ok(Router::new().route("/orders", post(place_order)).layer(guards).with_state(shop))
}

/// A request over a connection of its own, as a client would send it.
async fn order(address: SocketAddr, key: &str, trace: &str, customer: &str) -> Result<(), Box<dyn Error>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post("/orders")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-idempotency-key", key)
        .header("x-trace-id", trace)
        .body(Full::new(Bytes::from(format!(r#"{{"customer":"{customer}"}}"#))))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let text = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
    // A refusal may say how long to wait, which differs from run to run.
    let text = match head.status.is_success() {
        true => text,
        false => serde_json::from_str::<ResultEnvelope<()>>(&text)
            .map(|refused| format!("{}, {}", refused.code, refused.trace_id.unwrap_or_default()))?,
    };
    let replayed = if head.headers.contains_key("idempotent-replayed") { " (replayed)" } else { "" };
    println!("{key} for {customer:?}: {}{replayed} {text}", head.status.as_u16());
    connection.abort();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let redis = std::env::var("KEYLANE_TEST_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let file = std::env::temp_dir().join(format!("keylane-web-service-{}.db", std::process::id()));
    let shown = show(&file, Redis::open(&redis).await?).await;
    std::fs::remove_file(&file)?;
    shown
}

async fn show(file: &Path, redis: Redis) -> Result<(), Box<dyn Error>> {
    let pool =
        SqlitePool::connect_with(SqliteConnectOptions::new().filename(file).create_if_missing(true)).await?;
    let table = "CREATE TABLE customer_order (id INTEGER PRIMARY KEY, customer TEXT NOT NULL)";
    sqlx::query(table).execute(&pool).await?;
    let (mails, mut mailed) = unbounded_channel::<String>();
    let outbox = Outbox::builder(pool.clone())
        .default_headers(keylane_web::event_headers)
        .state(mails)
        .handlers(handlers![confirm])
        .build()
        .await?;
    outbox.migrate().await?;
    let running = outbox.start().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = service(Arc::new(Shop { pool: pool.clone(), outbox }), redis).await?;
    let server = tokio::spawn(axum::serve(listener, app).into_future());

    println!("an order, its repeat, and another one under the same key:");
    order(address, "key-1", "trace-1", "ann").await?;
    order(address, "key-1", "trace-2", "ann").await?;
    order(address, "key-1", "trace-3", "bob").await?;
    println!("a bad one frees its key, and then comes right:");
    order(address, "key-2", "trace-4", "").await?;
    order(address, "key-2", "trace-5", "bob").await?;
    println!("six requests a minute, and one more:");
    order(address, "key-3", "trace-6", "cid").await?;
    order(address, "key-4", "trace-7", "dan").await?;

    println!("the handler of the events has seen:");
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(mailed.recv().await.ok_or("no mail")?);
    }
    // Events of different customers run side by side.
    seen.sort();
    seen.iter().for_each(|mail| println!("{mail}"));
    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM customer_order").fetch_one(&pool).await?;
    println!("orders in the database: {orders}");
    running.shutdown().await;
    server.abort();
    // The last connection takes the other files of SQLite away.
    pool.close().await;
    Ok(())
}
