//! An inbox: a table that remembers which messages a service has consumed, so that each message has its effect
//! **once**, however often the broker delivers it.
//!
//! A message is known by its event id and the consumer group. The inbox needs no outbox and no broker client.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use keylane_inbox::{Inbox, Once};
//!
//! let inbox = Inbox::new(pool);
//! inbox.migrate().await?;
//! // The effect and the row of the message commit together.
//! let paid = inbox
//!     .run("0198c2f6-event", "billing", async |tx| {
//!         sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 7").execute(tx).await
//!     })
//!     .await?;
//! assert!(matches!(paid, Once::Done(_)));
//! # Ok(())
//! # }
//! ```
//!
//! | the effect is | call |
//! | --- | --- |
//! | in the database of the inbox | [`Inbox::run`]; [`Inbox::run_batch`] for many messages |
//! | the same, in a transaction of your own | [`Inbox::once`], [`Inbox::once_batch`] |
//! | elsewhere | [`Inbox::process`], or [`Inbox::claim`] by hand |
//!
//! What is promised on which database, the states and all errors: `docs/consuming.md` in the repository.

mod batch;
mod claim;
mod core;
mod error;
mod inbox;
mod once;
mod overview;
mod purge;
mod statements;
mod take;
mod templates;

pub use batch::Batch;
pub use claim::{Claim, ClaimError, ProcessError};
pub use error::{InboxError, OnceError};
pub use inbox::{Inbox, InboxBuilder, InboxDatabase};
pub use keylane_sql::{BadName, SqlError};
pub use once::Once;
pub use overview::GroupOverview;
