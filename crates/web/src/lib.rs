//! Guards for a web service, as [tower](https://docs.rs/tower) layers for axum and other frameworks on tower.
//!
//! | layer | what it does |
//! | --- | --- |
//! | [`TraceIdLayer`] | one trace id per request: taken or made, in the log, in the response, with scheduled events |
//! | [`EnvelopeLayer`] | one form for all errors: `{"code", "message", "traceId", "data"}` or Problem+JSON |
//! | [`RateLimitLayer`] | a token bucket per name, user or address, in Redis or in memory |
//! | [`IdempotencyLayer`] | one execution per `X-Idempotency-Key`, and its answer for each repeat, in Redis or in your database |
//!
//! Each works alone. Together they stand in this order, outermost first:
//!
//! ```no_run
//! # #[cfg(feature = "redis")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Json, Router, routing::post};
//! use keylane_web::{
//!     EnvelopeLayer, IdempotencyLayer, Limit, RateLimitLayer, Redis, ResultEnvelope, TraceIdLayer,
//! };
//! use tower::ServiceBuilder;
//!
//! let redis = Redis::open("redis://127.0.0.1/").await?;
//! let limit = RateLimitLayer::builder("api", Limit::per_second(200)).store(redis.clone()).build()?;
//! let once = IdempotencyLayer::builder(redis, "orders").build()?;
//! let guards =
//!     ServiceBuilder::new().layer(TraceIdLayer::new()).layer(EnvelopeLayer::new()).layer(limit).layer(once);
//! let app: Router = Router::new()
//!     .route("/orders", post(async || Json(ResultEnvelope::ok("placed"))))
//!     .layer(guards);
//! # Ok(())
//! # }
//! ```
//!
//! What each promises on which store, all settings, limits and errors: `docs/web.md` in the repository.

#![cfg_attr(not(feature = "redis"), allow(dead_code, reason = "some rules are those of what a store has"))]

mod body;
mod envelope;
mod error;
mod idempotency;
mod rate;
#[cfg(feature = "redis")]
mod redis;
mod refusal;
mod service;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod sql;
mod subject;
mod trace;

/// The page of the repository, so that its code is compiled.
#[cfg(all(doctest, feature = "redis", feature = "postgres"))]
#[doc = include_str!("../../../docs/web.md")]
pub struct Page;

pub use body::{BoxError, GuardBody};
pub use envelope::{EnvelopeLayer, EnvelopeService, ResultEnvelope};
pub use error::{SettingError, StoreError};
pub use idempotency::{
    Answer, Begun, Claim, IDEMPOTENCY_KEY_HEADER, IdempotencyBuilder, IdempotencyLayer, IdempotencyService,
    IdempotencyStore, REPLAYED_HEADER,
};
pub use rate::{
    BadNetwork, Bucket, BucketStore, Limit, RateLimitBuilder, RateLimitLayer, RateLimitService, Taken,
    TrustedProxies, WhenAway,
};
#[cfg(feature = "redis")]
pub use redis::Redis;
pub use refusal::{ErrorForm, Refusal, code};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use sql::{SqlStore, SqlStoreBuilder};
pub use trace::{TRACE_ID_HEADER, Trace, TraceIdLayer, TraceIdService, event_headers};

/// The client of Redis that [`Redis::with`] takes connections of.
#[cfg(feature = "redis")]
pub use ::redis as redis_client;
