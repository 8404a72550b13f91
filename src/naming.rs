//! Whether the server may keep named statements of the user's connections.
//!
//! A pool whose `statement_cache_capacity` is 0 uses a pooler that loses named statements. sqlx names
//! statements nevertheless, and a connection does not show the options of its pool. The caller that begins
//! the work therefore sets the answer for all statements within.

tokio::task_local! {
    static UNNAMED: ();
}

/// Runs work whose statements are named if `named` is set.
pub(crate) async fn with_names<T>(named: bool, work: impl Future<Output = T>) -> T {
    match named {
        true => work.await,
        false => UNNAMED.scope((), work).await,
    }
}

/// Whether statements of the current work may be named.
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    expect(dead_code, reason = "no database has statements")
)]
pub(crate) fn are_given() -> bool {
    UNNAMED.try_with(|()| ()).is_err()
}
