//! What people look at: numbers of records, keys that stand still, records that have failed.

pub use crate::{
    instance::{Generation, InstanceId, InstanceState},
    record::{Lane, Status, StopReason},
    store::{Counts, FailedRecord, Rights, StoppedLane},
};
