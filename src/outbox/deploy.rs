//! The calls of a deploy before its first worker runs: tables, rights, handlers.

use std::ops::RangeInclusive;

use crate::{
    database::Database,
    outbox::Outbox,
    store::{Rights, SCHEMA_VERSIONS, SchemaError},
};

impl<DB: Database> Outbox<DB> {
    /// Creates the tables or upgrades them to this build's version. Several processes may migrate at once.
    /// Tables that a DBA has created from [`migration_script`](Self::migration_script) are accepted, whatever
    /// their version. Tables of a newer build stay unchanged.
    ///
    /// ```
    #[doc = include_str!("../doc/outbox.txt")]
    /// outbox.migrate().await?; // when the service starts, or as a step of a deploy
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SchemaError`]. Each migration is done as a whole or not at all; on MySQL it may be half done, and
    /// running it again goes on.
    pub async fn migrate(&self) -> Result<(), SchemaError> {
        self.inner.store.migrate().await
    }

    /// The versions of the schema that this build works with, the oldest and the newest. The migrations of
    /// this build make the version before the newest. Each build works with the schema of the next build: a
    /// deploy may migrate first, and a rollback over one version needs no change of the tables.
    pub const SCHEMA_VERSIONS: RangeInclusive<i64> = SCHEMA_VERSIONS;

    /// The statements of [`migrate`](Self::migrate) for tables of version `from`, for a DBA to run by hand.
    /// Version 0 means no tables. No connection is opened, so a pool made with `connect_lazy` is enough. For
    /// MariaDB and MySQL, the statements are for their command-line clients: `DELIMITER` lines stand around
    /// procedures, which a driver does not know.
    ///
    /// ```
    #[doc = include_str!("../doc/outbox.txt")]
    /// println!("{}", outbox.migration_script(0)); // the statements that make all tables
    /// # Ok(())
    /// # }
    /// ```
    pub fn migration_script(&self, from: i64) -> String {
        self.inner.store.script(from)
    }

    /// The statements that give a database user the rights of a role, for a DBA to run. `to` is not quoted:
    /// `app` or `'app'@'10.0.%'`. No connection is opened.
    ///
    /// ```
    #[doc = include_str!("../doc/outbox.txt")]
    /// use keylane::admin::Rights;
    ///
    /// let script = outbox.grant_script(Rights::Producer, "shop");
    /// println!("{script}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn grant_script(&self, rights: Rights, to: &str) -> String {
        self.inner.store.grants(rights, to)
    }

    /// Checks what [`start`](Self::start) checks before it joins: the server, that the tables fit this build,
    /// and that the database accepts writes. Changes nothing. If the database is unreachable, returns an
    /// error at once.
    ///
    /// ```
    #[doc = include_str!("../doc/outbox.txt")]
    /// outbox.check().await?; // before a deploy goes on
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SchemaError`]: what keeps the workers from starting.
    pub async fn check(&self) -> Result<(), SchemaError> {
        self.inner.store.check().await
    }

    /// Publishes the handlers of this outbox for producers, as [`start`](Self::start) does, without starting
    /// to deliver. Events can then be scheduled before the first worker runs, and wait for it.
    ///
    /// ```
    #[doc = include_str!("../doc/outbox.txt")]
    /// outbox.migrate().await?;
    /// outbox.publish_handlers().await?; // as a step of a deploy, before the producers
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SchemaError`]. The handlers are listed all at once or not at all.
    pub async fn publish_handlers(&self) -> Result<(), SchemaError> {
        self.inner.store.check().await?;
        let routes: Vec<_> = self.inner.registry.routes().into_iter().collect();
        Ok(self.inner.store.publish_routes(&routes).await?)
    }
}
