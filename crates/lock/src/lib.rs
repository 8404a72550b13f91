//! A fair lock on a resource, in your database: one holder at a time, in the order of arrival.
//!
//! Each request waits in a queue. The first of the queue holds the lock until the holder releases it, or until its
//! lease ends. Each holder has a **fencing token**, higher than that of all holders before.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use keylane_lock::LockClient;
//!
//! let locks = LockClient::new(pool.clone());
//! locks.migrate().await?;
//! let guard = locks.lock("invoice-7").await?;
//! // The condition refuses a holder that was frozen for longer than its lease.
//! sqlx::query("UPDATE invoice SET sent = true, fence = $1 WHERE id = 7 AND fence <= $1")
//!     .bind(guard.token())
//!     .execute(&pool)
//!     .await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | the lock lasts | call |
//! | --- | --- |
//! | until it is released | [`LockClient::lock`]; [`LockClient::request`] for an owner that may enter again, a timeout, or `try_lock` |
//! | until a transaction of your own ends | [`LockClient::lock_in`] |
//!
//! What is promised on which database, what it costs, and all errors: `docs/lock.md` in the repository.

#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, reason = "some signals are those of one database")
)]

mod client;
mod clock;
mod database;
mod error;
mod guard;
mod place;
mod renewal;
mod request;
mod rules;
mod shared;
mod signals;
mod statements;
mod templates;
mod ticket;
mod transaction;
mod trust;

/// The page of the repository, so that its code is compiled.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/lock.md")]
pub struct Page;

pub use client::{LockClient, LockClientBuilder, Queued};
pub use database::LockDatabase;
pub use error::LockError;
pub use guard::LockGuard;
pub use keylane_sql::{BadName, SqlError};
pub use request::LockRequest;
