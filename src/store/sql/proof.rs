//! The proof that an address keeps the session of a connection, made once for all connections of a process.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::driver::Driver;
use crate::store::{SchemaError, StoreError};

/// The result of the test, shared by the connections of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proof(Arc<OnceCell<()>>);

impl Proof {
    /// Tests the address, unless the result is known already.
    ///
    /// # Errors
    /// An error of the server, or [`SchemaError::Pooler`] within [`sqlx::Error::Configuration`].
    pub(super) async fn of<D: Driver>(&self, pool: &D::Pool) -> Result<(), sqlx::Error> {
        let find = async || match D::find_pooler(pool).await? {
            Some(pooler) => Err(sqlx::Error::Configuration(Box::new(pooler))),
            None => Ok(()),
        };
        self.0.get_or_try_init(find).await.copied()
    }

    pub(super) fn is_given(&self) -> bool {
        self.0.initialized()
    }
}

/// Unwraps the error of the schema that an error of the store carries.
pub(super) fn as_schema_error(mut error: StoreError) -> SchemaError {
    match error.cause.downcast_mut() {
        Some(sqlx::Error::Configuration(cause)) => match cause.downcast_ref() {
            Some(SchemaError::Pooler { mode }) => SchemaError::Pooler { mode },
            Some(SchemaError::OnConnect { place, problem }) => {
                SchemaError::OnConnect { place: *place, problem: problem.clone() }
            }
            _ => error.into(),
        },
        _ => error.into(),
    }
}
