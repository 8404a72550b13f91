//! The scheduling half of an outbox: checks events, resolves their handlers and writes records.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use uuid::{ContextV7, Timestamp, Uuid};

use super::{RawEvent, Routes, ScheduleError, ScheduleOptions, Scheduled};
use crate::{
    config::{OrderLevel, ScheduleConfig},
    database::Database,
    handler::is_valid_name,
    name::Name,
    naming::with_names,
    partition::Partition,
    record::{Cancel, Due, Headers, KEY_LIMIT_BYTES, NAME_LIMIT_BYTES, Named, NewRecord},
    store::Store,
};

/// The most distinct keys that one call may lock at the strict order level.
const STRICT_KEYS: usize = 4_096;

/// New event ids of one call: uuids v7 that rise, by one look at the clock.
struct EventIds {
    counter: ContextV7,
    since_1970: Duration,
}

impl EventIds {
    fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { counter: ContextV7::new(), since_1970 }
    }

    fn draw(&self) -> Uuid {
        let (seconds, nanos) = (self.since_1970.as_secs(), self.since_1970.subsec_nanos());
        Uuid::new_v7(Timestamp::from_unix(&self.counter, seconds, nanos))
    }
}

/// What gives each event the headers of the task that schedules it.
pub(crate) type DefaultHeaders = Arc<dyn Fn() -> Headers + Send + Sync>;

/// The scheduling half of an outbox.
pub(crate) struct Scheduler<DB: Database> {
    pub(crate) producer: DB::Producer,
    pub(crate) config: ScheduleConfig,
    pub(crate) default_headers: Option<DefaultHeaders>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) store: Arc<dyn Store>,
    /// Whether the server may keep named statements of the pool's connections.
    pub(crate) named: bool,
}

impl<DB: Database> Scheduler<DB> {
    /// Checks the events, resolves their handlers and inserts their records in the given order.
    pub(crate) async fn schedule(
        &self,
        conn: &mut DB::Connection,
        events: Vec<RawEvent>,
        options: &ScheduleOptions,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        let options = &*self.with_default_headers(options);
        self.check(&events, options)?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        if self.config.require_transaction && !DB::in_transaction(conn).await? {
            return Err(ScheduleError::NoTransaction);
        }
        let (mut scheduled, records) = self.resolve(events, options).await?;
        let write = self.write(conn, &records, options.dedup_key.as_deref());
        if !with_names(self.named, write).await? {
            scheduled.iter_mut().for_each(|done| (done.records, done.duplicate) = (0, true));
        }
        Ok(scheduled)
    }

    /// Checks an event and resolves its handlers. Returns the records that [`schedule`](Self::schedule) would
    /// insert.
    pub(crate) async fn records_of(
        &self,
        event: RawEvent,
        options: &ScheduleOptions,
    ) -> Result<Vec<NewRecord>, ScheduleError> {
        let events = vec![event];
        let options = &*self.with_default_headers(options);
        self.check(&events, options)?;
        Ok(self.resolve(events, options).await?.1)
    }

    /// Adds the default headers. The options' own headers of the same names stay.
    fn with_default_headers<'o>(&self, options: &'o ScheduleOptions) -> Cow<'o, ScheduleOptions> {
        let mut headers = self.default_headers.as_ref().map(|headers| headers()).unwrap_or_default();
        if headers.is_empty() {
            return Cow::Borrowed(options);
        }
        headers.extend(options.headers.clone());
        Cow::Owned(ScheduleOptions { headers, ..options.clone() })
    }

    /// One record per event and handler.
    async fn resolve(
        &self,
        events: Vec<RawEvent>,
        options: &ScheduleOptions,
    ) -> Result<(Vec<Scheduled>, Vec<NewRecord>), ScheduleError> {
        self.routes.keep_fresh(&*self.store, self.config.route_refresh).await?;
        let mut scheduled = Vec::with_capacity(events.len());
        let mut records = Vec::with_capacity(events.len());
        let ids = EventIds::new();
        let (mut record_type, mut handlers) = (Name::default(), Arc::default());
        for event in events {
            // Most events of a call are of the type of the event before.
            if event.record_type != record_type {
                handlers = self.handlers_of(&event.record_type).await?;
                record_type = event.record_type.clone();
            }
            let event_id = options.event_id.unwrap_or_else(|| ids.draw());
            scheduled.push(Scheduled { event_id, records: handlers.len(), duplicate: false });
            add_records(&mut records, event, event_id, &handlers, options);
        }
        Ok((scheduled, records))
    }

    /// Inserts the dedup key, locks keys if the order is strict, and inserts the records. If the dedup key
    /// exists, writes nothing and returns false.
    async fn write(
        &self,
        conn: &mut DB::Connection,
        records: &[NewRecord],
        dedup_key: Option<&str>,
    ) -> Result<bool, ScheduleError> {
        if let Some(dedup_key) = dedup_key
            && !DB::insert_dedup_key(conn, &self.producer, dedup_key).await?
        {
            return Ok(false);
        }
        if self.config.order == OrderLevel::Strict {
            let keys: BTreeSet<&str> = records.iter().map(|record| record.key.as_str()).collect();
            if keys.len() > STRICT_KEYS {
                return Err(ScheduleError::TooManyKeys { keys: keys.len() });
            }
            let keys: Vec<&str> = keys.into_iter().collect();
            DB::lock_keys(conn, &self.producer, &keys).await?;
        }
        DB::insert(conn, &self.producer, records).await?;
        Ok(true)
    }

    /// Cancels records that are not due yet. Returns their number.
    pub(crate) async fn cancel(
        &self,
        conn: &mut DB::Connection,
        key: &str,
        named: Named,
    ) -> Result<u64, ScheduleError> {
        check_key(key)?;
        if self.config.require_transaction && !DB::in_transaction(conn).await? {
            return Err(ScheduleError::NoTransaction);
        }
        let cancel = Cancel { partition: Partition::of(key), key: key.to_owned(), named };
        Ok(with_names(self.named, DB::cancel(conn, &self.producer, &cancel)).await?)
    }

    /// Checks all that needs no database.
    fn check(&self, events: &[RawEvent], options: &ScheduleOptions) -> Result<(), ScheduleError> {
        let bytes: usize = options.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let limit = self.config.max_header_bytes;
        if bytes > limit {
            return Err(ScheduleError::HeadersTooLarge { bytes, limit });
        }
        options.dedup_key.as_deref().map_or(Ok(()), check_dedup_key)?;
        events.iter().try_for_each(|event| self.check_event(event))
    }

    fn check_event(&self, event: &RawEvent) -> Result<(), ScheduleError> {
        let RawEvent { record_type, key, content_type, payload } = event;
        check_key(key)?;
        if !is_valid_name(record_type) {
            return Err(ScheduleError::RecordType { record_type: record_type.to_string() });
        }
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if !(1..=NAME_LIMIT_BYTES).contains(&content_type.len()) || !content_type.bytes().all(printable) {
            return Err(ScheduleError::ContentType { content_type: content_type.to_string() });
        }
        let limit = self.config.max_payload_bytes;
        if payload.len() > limit {
            return Err(ScheduleError::PayloadTooLarge { bytes: payload.len(), limit });
        }
        Ok(())
    }

    /// The handlers of a type by the list in memory. If the list has none, reads the table.
    async fn handlers_of(&self, record_type: &str) -> Result<Arc<[Name]>, ScheduleError> {
        let mut handlers = self.routes.of(record_type);
        if handlers.is_empty() {
            // The read does not use the connection of the user: a read before the insert would make SQLite
            // refuse the insert if another process wrote meanwhile, and MySQL would read the state at the
            // start of the transaction.
            self.routes.refresh(&*self.store).await?;
            handlers = self.routes.of(record_type);
        }
        match handlers.is_empty() {
            true => Err(ScheduleError::NoHandler { record_type: record_type.to_owned() }),
            false => Ok(handlers),
        }
    }
}

fn check_key(key: &str) -> Result<(), ScheduleError> {
    match (key.len(), key.bytes().position(|byte| byte == 0)) {
        (0, _) => Err(ScheduleError::EmptyKey),
        (length, _) if length > KEY_LIMIT_BYTES => Err(ScheduleError::KeyTooLong { length }),
        (_, Some(position)) => Err(ScheduleError::NulInKey { position }),
        _ => Ok(()),
    }
}

/// Adds one record per handler. Most events have one handler, and the record takes the event's contents.
fn add_records(
    records: &mut Vec<NewRecord>,
    event: RawEvent,
    event_id: Uuid,
    handlers: &[Name],
    options: &ScheduleOptions,
) {
    let RawEvent { record_type, key, content_type, payload } = event;
    let Some((last, others)) = handlers.split_last() else { return };
    let (partition, headers) = (Partition::of(&key), options.headers.clone());
    let (due, deadline) = (options.due, options.deadline);
    let dedup_key = options.dedup_key.clone().filter(|_| due != Due::Now);
    let handler = last.clone();
    let record = NewRecord {
        event_id,
        partition,
        key,
        handler,
        record_type,
        content_type,
        payload,
        headers,
        due,
        deadline,
        dedup_key,
    };
    records.extend(others.iter().map(|handler| NewRecord { handler: handler.clone(), ..record.clone() }));
    records.push(record);
}

fn check_dedup_key(dedup_key: &str) -> Result<(), ScheduleError> {
    let length = dedup_key.len();
    match (1..=KEY_LIMIT_BYTES).contains(&length) && !dedup_key.contains('\0') {
        true => Ok(()),
        false => Err(ScheduleError::DedupKey { length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_ids_of_a_call_differ_and_rise() {
        let ids = EventIds::new();
        let drawn: Vec<Uuid> = (0..10_000).map(|_| ids.draw()).collect();
        assert!(drawn.is_sorted_by(|before, after| before < after));
        assert!(drawn.iter().all(|id| id.get_version_num() == 7));
        assert_ne!(EventIds::new().draw(), drawn[0]);
    }
}
