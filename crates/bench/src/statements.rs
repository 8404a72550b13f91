//! Counts the statements that this process sends, by the log of sqlx. The count of a server has the statements of
//! others, too: those of a vacuum in the background are more than those of an idle instance.

use std::{
    fmt::Debug,
    sync::{
        Once,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::{Interest, set_global_default},
};

/// The target of the log of sqlx.
const TARGET: &str = "sqlx::query";
/// What polls read.
const RECORDS: &str = "keylane_bench_record";

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
static POLLS: AtomicU64 = AtomicU64::new(0);

/// Counts until it is dropped. There is one at a time.
pub(super) struct Count(());

impl Count {
    pub(super) fn start() -> Self {
        static INSTALL: Once = Once::new();
        // This program has no other subscriber to replace.
        INSTALL.call_once(|| drop(set_global_default(Counter)));
        [&COUNT, &POLLS].iter().for_each(|count| count.store(0, SeqCst));
        COUNTING.store(true, SeqCst);
        Self(())
    }

    /// The number of statements so far, and of those that have read records.
    pub(super) fn so_far(&self) -> (u64, u64) {
        (COUNT.load(SeqCst), POLLS.load(SeqCst))
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        COUNTING.store(false, SeqCst);
    }
}

struct Counter;

impl Subscriber for Counter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == TARGET { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    /// If nothing counts, sqlx need not write its log.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET && COUNTING.load(SeqCst)
    }

    fn event(&self, event: &Event<'_>) {
        COUNT.fetch_add(1, SeqCst);
        let mut text = Text { reads_records: false };
        event.record(&mut text);
        POLLS.fetch_add(u64::from(text.reads_records), SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of a statement, wherever sqlx has put it.
struct Text {
    reads_records: bool,
}

impl Visit for Text {
    fn record_str(&mut self, _: &Field, value: &str) {
        self.reads_records |= value.contains(RECORDS);
    }

    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.reads_records |= format!("{value:?}").contains(RECORDS);
    }
}

#[cfg(test)]
mod tests {
    use keylane::sqlx::{Connection, SqliteConnection, raw_sql};

    use super::Count;

    #[tokio::test]
    async fn each_statement_counts_once_while_it_is_counted() {
        let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let mut ask = async |sql: &'static str| {
            raw_sql(sql).execute(&mut conn).await.unwrap();
        };
        ask("CREATE TABLE keylane_bench_record (id INTEGER)").await;
        let count = Count::start();
        ask("SELECT 1").await;
        ask("SELECT COUNT(*) FROM keylane_bench_record WHERE id > 1").await;
        ask("SELECT 1").await;
        assert_eq!(count.so_far(), (3, 1));
        drop(count);
        ask("SELECT 1").await;
        assert_eq!(Count::start().so_far(), (0, 0));
    }
}
