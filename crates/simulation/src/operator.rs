//! A person who repairs failed records, and who finds out in the end whether all is done.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use keylane::{
    Outbox,
    admin::{Admin, FailedRecord, Filter, Status},
    memory::Memory,
};
use tokio::time::sleep;

use crate::node::Process;

/// Repairs at times; after the faults, repairs until nothing is left.
pub(crate) async fn operate(process: Arc<Process>, outbox: Outbox<Memory>, mut dice: Rng) {
    let admin = outbox.admin();
    loop {
        let pause = if process.world.is_settling() { 300..301 } else { 500..4_000 };
        sleep(Duration::from_millis(dice.u64(pause))).await;
        let quiet = process.world.is_quiet();
        let failed = admin.failed(&Filter::all(), 0, 100).await.unwrap_or_default();
        if !failed.is_empty() && dice.u8(..10) == 0 {
            repair_all(&process, &admin, &failed).await;
        }
        for record in failed {
            repair(&process, &admin, &record, dice.u8(..10)).await;
        }
        if quiet && let Ok(counts) = admin.counts().await {
            let open = counts.records.iter().filter(|(status, _)| *status != Status::Completed);
            if open.count() == 0 && counts.stopped_lanes.is_empty() {
                process.world.all_done();
            }
        }
    }
}

async fn repair(process: &Process, admin: &Admin, record: &FailedRecord, chance: u8) {
    process.world.repaired(record.event_id, &record.lane.handler);
    let id = record.id;
    // The result of the call does not matter: the history has the writes of the database.
    let _ = match chance {
        0 => admin.discard(id).await,
        1 => admin.replace_payload(id, record.payload.clone()).await,
        _ => admin.retry(id).await,
    };
}

async fn repair_all(process: &Process, admin: &Admin, failed: &[FailedRecord]) {
    for record in failed {
        process.world.repaired(record.event_id, &record.lane.handler);
    }
    let _ = admin.retry_all(&Filter::all(), 0).await;
}
