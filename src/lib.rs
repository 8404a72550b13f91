//! x
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod handler;
pub mod memory;
pub mod rules;
#[doc(hidden)]
pub mod store;

mod builder;
mod clock;
mod cluster;
mod codec;
mod config;
mod database;
mod delivery;
mod instance;
mod outbox;
mod ownership;
mod partition;
mod record;
mod runtime;
mod schedule;
mod telemetry;
mod wake;

pub use builder::{BuildError, OutboxBuilder};
pub use cluster::ClusterConfig;
pub use codec::DecodeError;
pub use config::{Config, ConfigError, DatabaseConfig, OrderLevel, RetentionConfig, ScheduleConfig};
pub use database::{Database, HasDatabase, Pool};
pub use delivery::{DeliveryConfig, OnFailed};
pub use handler::{
    BatchHandler, BatchResults, ClassifiedError, Failure, FailureKind, FallbackHandler,
    GenericFallbackHandler, GenericHandler, Handler, HandlerError, Registration, RegistryError, State, Takes,
    TransactionalHandler,
};
pub use instance::{Claim, ClusterView, Generation, InstanceId, InstanceState, Member};
pub use outbox::{Outbox, TransactionError};
pub use partition::{PARTITION_COUNT, PARTITION_HASH, Partition, PartitionSet};
pub use record::{
    AfterFailure, Change, Delivery, Due, Headers, Lane, NewRecord, OutboxEvent, Record, RecordId, Settlement,
    Status, Stop, StopReason,
};
pub use rules::retry::{Backoff, RetryPolicy};
pub use runtime::{Running, ShutdownReport, StartError};
pub use schedule::{RawEvent, ScheduleError, ScheduleOptions, Scheduled};
pub use sqlx;
pub use store::{
    BadName, Completed, Counts, ErrorClass, FailedRecord, OpenError, SchemaError, StoppedLane, StoreError,
    Tables,
};
pub use telemetry::{LogObserver, Observer, Signal};

#[cfg(feature = "macros")]
pub use keylane_macros::{OutboxEvent, outbox_fallback_handler, outbox_handler};

/// The registrations of handlers declared by `#[outbox_handler]` and `#[outbox_fallback_handler]`.
#[macro_export]
macro_rules! handlers {
    ($($handler:path),* $(,)?) => {
        [$(<$handler as $crate::handler::Declare>::declare()),*]
    };
}
