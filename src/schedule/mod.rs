//! Scheduling: from an event to rows in the user's own transaction.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use uuid::Uuid;

mod routes;

pub(crate) use routes::Routes;

use crate::{
    codec,
    config::{OrderLevel, ScheduleConfig},
    database::Database,
    handler::is_valid_name,
    naming::with_names,
    partition::Partition,
    record::{Due, Headers, KEY_LIMIT_BYTES, NAME_LIMIT_BYTES, NewRecord, OutboxEvent, TRACE_ID_HEADER},
    store::{Store, StoreError, Tables},
};

/// Distinct keys that one call may lock in the strict order level.
const STRICT_KEYS: usize = 4_096;

/// What was scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled {
    /// The identity of the event.
    pub event_id: Uuid,
    /// Records written: one for each handler of the type. 0 for a duplicate.
    pub records: usize,
    /// The dedup key was seen before; nothing was written.
    pub duplicate: bool,
}

/// Why an event was not scheduled. Nothing was written, and the user's transaction is as usable as
/// the database leaves it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The key is empty.
    #[error("record key is empty: give what must stay in order, such as order-42")]
    EmptyKey,
    /// The key is too long.
    #[error("record key has {length} bytes, the limit is 255: shorten it or hash its tail")]
    KeyTooLong {
        /// In bytes of UTF-8.
        length: usize,
    },
    /// The key has a NUL in it.
    #[error(
        "record key has a NUL character at byte {position}, which databases cannot store in text: take it out"
    )]
    NulInKey {
        /// 0 is the first byte.
        position: usize,
    },
    /// The record type is no valid name.
    #[error(
        "record type {record_type:?} is not valid: it needs 1 to 128 bytes of letters, digits and . _ - : /"
    )]
    RecordType {
        /// As given.
        record_type: String,
    },
    /// The content type is empty, too long or not plain.
    #[error(
        "content type {content_type:?} is not valid: it needs 1 to 128 bytes of printable ASCII, such as application/json"
    )]
    ContentType {
        /// As given.
        content_type: String,
    },
    /// The payload is too large.
    #[error(
        "payload has {bytes} bytes, the limit is {limit} (schedule.max_payload_bytes): store it elsewhere and send its address, or raise the limit"
    )]
    PayloadTooLarge {
        /// In bytes, encoded.
        bytes: usize,
        /// The setting.
        limit: usize,
    },
    /// The headers are too large.
    #[error("headers have {bytes} bytes, the limit is {limit} (schedule.max_header_bytes)")]
    HeadersTooLarge {
        /// Names and values together.
        bytes: usize,
        /// The setting.
        limit: usize,
    },
    /// The dedup key is empty, too long or has a NUL.
    #[error("dedup key has {length} bytes; it needs 1 to 255 without NUL")]
    DedupKey {
        /// In bytes.
        length: usize,
    },
    /// Nobody has declared a handler for the type.
    #[error(
        "no handler takes record type {record_type:?}: register one and start it once, so that outbox_handler lists it; nothing was scheduled"
    )]
    NoHandler {
        /// The type.
        record_type: String,
    },
    /// The connection is in no transaction.
    #[error(
        "the connection is in no transaction, so the event would be kept even if the work it tells of is not: begin one (pool.begin()) and schedule on it, use Outbox::transaction, or set schedule.require_transaction to false"
    )]
    NoTransaction,
    /// Too many distinct keys for the strict order level.
    #[error(
        "{keys} distinct keys in one call, the limit is 4096 with schedule.order = \"strict\": split the call"
    )]
    TooManyKeys {
        /// Distinct keys.
        keys: usize,
    },
    /// The event could not be encoded.
    #[error("event could not be encoded as JSON: {0}")]
    Encode(serde_json::Error),
    /// The database refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<serde_json::Error> for ScheduleError {
    fn from(error: serde_json::Error) -> Self {
        Self::Encode(error)
    }
}

/// What can be said about an event besides its payload.
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// let options = ScheduleOptions::new()
///     .header("tenant", "north")
///     .trace_id("4bf92f35")
///     .dedup_key("request-17") // a second call with it writes nothing
///     .event_id(uuid::Uuid::now_v7()) // which an inbox knows it by
///     .after(Duration::from_secs(60)); // or .at(time)
/// let order = OrderPlaced { id: 42 };
/// let scheduled = outbox.transaction(async |tx| outbox.schedule_with(tx, &order, options).await).await?;
/// assert!(!scheduled.duplicate);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScheduleOptions {
    headers: Headers,
    due: Due,
    event_id: Option<Uuid>,
    dedup_key: Option<String>,
}

impl ScheduleOptions {
    /// No headers, due at once, a new event id, no dedup key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the trace id: the header `trace_id`.
    #[must_use]
    pub fn trace_id(self, trace_id: impl Into<String>) -> Self {
        self.header(TRACE_ID_HEADER, trace_id)
    }

    /// Sets the identity of the event instead of a new uuid v7.
    #[must_use]
    pub fn event_id(mut self, event_id: Uuid) -> Self {
        self.event_id = Some(event_id);
        self
    }

    /// Delivers this long after the insert, by the database's clock. A delayed record does not hold
    /// back its key: later records go first until it is due, then it goes before those still pending.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Delivers not before this time, by the database's clock; see [`after`](Self::after).
    #[must_use]
    pub fn at(mut self, time: SystemTime) -> Self {
        self.due = Due::At(time);
        self
    }

    /// Schedules only if this key was not scheduled before, within `retention.dedup_for`.
    #[must_use]
    pub fn dedup_key(mut self, dedup_key: impl Into<String>) -> Self {
        self.dedup_key = Some(dedup_key.into());
        self
    }
}

/// An event already encoded, for types that this process has no Rust type of.
///
/// ```
/// use keylane::RawEvent;
///
/// let event = RawEvent::new("order.placed", "order-42", r#"{"id":42}"#);
/// let picture = RawEvent::new("photo.taken", "photo-7", vec![0x89, 0x50]).content_type("image/png");
/// assert_eq!((&*event.content_type, &*picture.content_type), ("application/json", "image/png"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RawEvent {
    /// What it is.
    pub record_type: String,
    /// What orders it.
    pub key: String,
    /// The media type of the payload; typed handlers decode `application/json`.
    pub content_type: String,
    /// The encoded event.
    pub payload: Vec<u8>,
}

impl RawEvent {
    /// An event of this type and key, whose payload is JSON.
    pub fn new(record_type: impl Into<String>, key: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        let (record_type, key, payload) = (record_type.into(), key.into(), payload.into());
        Self { record_type, key, content_type: codec::JSON.to_owned(), payload }
    }

    /// Sets another media type of the payload.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    pub(crate) fn encode<E: OutboxEvent>(event: &E) -> Result<Self, ScheduleError> {
        Ok(Self {
            record_type: E::RECORD_TYPE.to_owned(),
            key: event.key().into_owned(),
            content_type: codec::content_type::<E>(),
            payload: codec::encode(event)?,
        })
    }
}

/// The scheduling half of an outbox.
pub(crate) struct Scheduler {
    pub(crate) tables: Tables,
    pub(crate) config: ScheduleConfig,
    pub(crate) routes: Arc<Routes>,
    pub(crate) store: Arc<dyn Store>,
    /// Whether statements on connections of the pool may have names on the server.
    pub(crate) named: bool,
}

impl Scheduler {
    /// Checks the events, resolves their handlers and inserts their records, in the order given.
    pub(crate) async fn schedule<DB: Database>(
        &self,
        conn: &mut DB::Connection,
        events: Vec<RawEvent>,
        options: &ScheduleOptions,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        let header_bytes: usize = options.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if header_bytes > self.config.max_header_bytes {
            let limit = self.config.max_header_bytes;
            return Err(ScheduleError::HeadersTooLarge { bytes: header_bytes, limit });
        }
        events.iter().try_for_each(|event| self.check(event))?;
        let mut scheduled = Vec::with_capacity(events.len());
        let mut records = Vec::with_capacity(events.len());
        if events.is_empty() {
            return Ok(scheduled);
        }
        if self.config.require_transaction && !DB::in_transaction(conn).await? {
            return Err(ScheduleError::NoTransaction);
        }
        self.routes.keep_fresh(&*self.store, self.config.route_refresh).await?;
        for event in events {
            let handlers = self.handlers_of(&event.record_type).await?;
            let event_id = options.event_id.unwrap_or_else(Uuid::now_v7);
            scheduled.push(Scheduled { event_id, records: handlers.len(), duplicate: false });
            add_records(&mut records, event, event_id, &handlers, options);
        }
        let write = self.write::<DB>(conn, &records, options.dedup_key.as_deref());
        if !with_names(self.named, write).await? {
            scheduled.iter_mut().for_each(|done| (done.records, done.duplicate) = (0, true));
        }
        Ok(scheduled)
    }

    /// False if the dedup key was there: nothing is written.
    async fn write<DB: Database>(
        &self,
        conn: &mut DB::Connection,
        records: &[NewRecord],
        dedup_key: Option<&str>,
    ) -> Result<bool, ScheduleError> {
        if let Some(dedup_key) = dedup_key
            && !note::<DB>(conn, &self.tables, dedup_key).await?
        {
            return Ok(false);
        }
        if self.config.order == OrderLevel::Strict {
            let keys: BTreeSet<&str> = records.iter().map(|record| record.key.as_str()).collect();
            if keys.len() > STRICT_KEYS {
                return Err(ScheduleError::TooManyKeys { keys: keys.len() });
            }
            let keys: Vec<&str> = keys.into_iter().collect();
            DB::lock_keys(conn, &self.tables, &keys).await?;
        }
        DB::insert(conn, &self.tables, records).await?;
        Ok(true)
    }

    fn check(&self, event: &RawEvent) -> Result<(), ScheduleError> {
        let RawEvent { record_type, key, content_type, payload } = event;
        check_key(key)?;
        if !is_valid_name(record_type) {
            return Err(ScheduleError::RecordType { record_type: record_type.clone() });
        }
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if !(1..=NAME_LIMIT_BYTES).contains(&content_type.len()) || !content_type.bytes().all(printable) {
            return Err(ScheduleError::ContentType { content_type: content_type.clone() });
        }
        let limit = self.config.max_payload_bytes;
        if payload.len() > limit {
            return Err(ScheduleError::PayloadTooLarge { bytes: payload.len(), limit });
        }
        Ok(())
    }

    /// Who takes a type: by the list in memory, and if that knows nobody, by the table itself.
    async fn handlers_of(&self, record_type: &str) -> Result<Arc<[String]>, ScheduleError> {
        let mut handlers = self.routes.of(record_type);
        if handlers.is_empty() {
            // Not on the user's connection: reading there first would make SQLite refuse the insert
            // if anybody wrote meanwhile, and MySQL would read as of the start of the transaction.
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

/// Adds a record for each handler. Most events have one handler and become its record.
fn add_records(
    records: &mut Vec<NewRecord>,
    event: RawEvent,
    event_id: Uuid,
    handlers: &[String],
    options: &ScheduleOptions,
) {
    let RawEvent { record_type, key, content_type, payload } = event;
    let Some((last, others)) = handlers.split_last() else { return };
    let (partition, headers, due) = (Partition::of(&key), options.headers.clone(), options.due);
    let handler = last.clone();
    let record =
        NewRecord { event_id, partition, key, handler, record_type, content_type, payload, headers, due };
    records.extend(others.iter().map(|handler| NewRecord { handler: handler.clone(), ..record.clone() }));
    records.push(record);
}

async fn note<DB: Database>(
    conn: &mut DB::Connection,
    tables: &Tables,
    dedup_key: &str,
) -> Result<bool, ScheduleError> {
    let length = dedup_key.len();
    if !(1..=KEY_LIMIT_BYTES).contains(&length) || dedup_key.contains('\0') {
        return Err(ScheduleError::DedupKey { length });
    }
    Ok(DB::note_dedup_key(conn, tables, dedup_key).await?)
}
