//! Whether statements on the user's connections may have names on the server.
//!
//! A pool whose `statement_cache_capacity` is 0 goes through a pooler that forgets them. sqlx names
//! statements all the same, and does not tell of a connection what the options of its pool were. So the
//! caller who begins the work says it for all statements within.

tokio::task_local! {
    static UNNAMED: ();
}

/// Runs work whose statements have names on the server, or have none.
pub(crate) async fn with_names<T>(named: bool, work: impl Future<Output = T>) -> T {
    match named {
        true => work.await,
        false => UNNAMED.scope((), work).await,
    }
}

/// Whether statements of the work that runs here may have names.
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    expect(dead_code, reason = "no database has statements")
)]
pub(crate) fn are_given() -> bool {
    UNNAMED.try_with(|()| ()).is_err()
}
