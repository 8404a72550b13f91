//! What the Keylane crates with tables of their own share. A service uses those crates, not this one. The interface of
//! this crate may change with each version.
//!
//! A statement is written once, as a template. [`Tables`] has the names that the templates leave open,
//! [`Dialect::render`] writes the text for one database, and [`SqlDatabase`] runs it:
//!
//! ```
//! # #[cfg(feature = "mysql")]
//! # fn main() -> Result<(), keylane_sql::BadName> {
//! use keylane_sql::{Placement, SqlDatabase};
//!
//! let tables = Placement::of("shop").schema("billing").tables()?;
//! let sql = sqlx::MySql::DIALECT.render("DELETE FROM {shop}cart WHERE used_at < {ago:$1} LIMIT $2", &tables);
//! assert_eq!(
//!     sql,
//!     "DELETE FROM billing.shop_cart WHERE used_at < UTC_TIMESTAMP(6) - INTERVAL (? * 1000) MICROSECOND LIMIT ?"
//! );
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "mysql"))]
//! # fn main() {}
//! ```
//!
//! No value of a user is ever part of a text: values are parameters, and names are checked.

#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_macros, reason = "without a database, nothing runs")
)]

mod database;
mod dialect;
mod error;
mod lent;
mod schema;
mod tables;
mod value;

pub use database::{Answer, SqlDatabase, by_family};
pub use dialect::{Dialect, Family};
pub use error::SqlError;
pub use lent::Lent;
pub use schema::Schema;
pub use tables::{BadName, Placement, Tables};
pub use value::{Executed, Kind, Row, Value};
