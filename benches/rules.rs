//! The cost of the decisions per record, per fetch and per tick.
//!
//! `cargo bench --bench rules`: processor time only, no database. `keylane bench` measures the whole.

#![allow(missing_docs)]

use std::collections::BTreeSet;

use divan::{Bencher, black_box};
use keylane::{
    RetryPolicy,
    admin::{Generation, InstanceId},
    inner::Claim,
    partition::{PARTITION_COUNT, Partition, PartitionSet},
    rules::assignment::assign,
    rules::retry::Fault,
    rules::{
        horizon::{Head, Horizon},
        reading::{Readings, Statement},
        witnesses::Snapshot,
    },
};
use uuid::Uuid;

fn main() {
    divan::main();
}

/// The partition of a key: once for each record scheduled and once for each fetched.
#[divan::bench(args = [8, 36, 255])]
fn hash(bencher: Bencher<'_, '_>, bytes: usize) {
    let key = "k".repeat(bytes);
    bencher.bench(|| Partition::of(black_box(&key)));
}

/// The assignment of a cluster with one new instance: once per tick.
#[divan::bench(args = [3, 10, 100, 1000])]
fn assignment(bencher: Bencher<'_, '_>, instances: usize) {
    let instance = |number: usize| InstanceId::from(Uuid::from_u128(number as u128 + 1));
    let active: BTreeSet<InstanceId> = (0..=instances).map(instance).collect();
    let claims: [Claim; PARTITION_COUNT] = std::array::from_fn(|partition| Claim {
        owner: Some(instance(partition % instances)),
        generation: Generation::default(),
    });
    bencher.bench(|| assign(black_box(&active), black_box(&claims)));
}

/// The delay before another attempt: once for each that failed.
#[divan::bench]
fn retry_delay(bencher: Bencher<'_, '_>) {
    let policy = RetryPolicy::exponential().max_retries(9).jitter(0.1);
    bencher.bench(|| black_box(&policy).delay(black_box(5), Fault::default(), black_box(0.3)));
}

/// The low watermark, which decides at which id a fetch begins: asked and moved once per fetch.
#[divan::bench]
fn reading(bencher: Bencher<'_, '_>) {
    let mut readings = Readings::default();
    let every = PartitionSet::ALL;
    let horizon = |last_id| {
        let snapshot = Some(Snapshot { end: last_id, open: vec![900] });
        Horizon { last_id, snapshot, ..Horizon::default() }
    };
    let mut first = readings.begin(every, every, false);
    while let Statement::FindHead(_) = first.next() {
        first.head_found(&Head { first: None, horizon: horizon(1_000), number: Some(1) });
    }
    readings.end(&first);
    bencher.with_inputs(|| readings.clone()).bench_values(|mut readings| {
        let mut reading = readings.begin(every, PartitionSet::EMPTY, false);
        if let Statement::ScanById { .. } = reading.next() {
            black_box(reading.scanned(1_000, (0, None), &horizon(2_000)));
        }
        readings.end(&reading);
        readings
    });
}

/// An event of about 200 bytes out of its payload: once for each delivery.
#[divan::bench]
fn decode(bencher: Bencher<'_, '_>) {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Event {
        key: u64,
        text: String,
    }
    let event = Event { key: 7, text: "x".repeat(180) };
    let payload = serde_json::to_vec(&event).unwrap_or_default();
    bencher.bench(|| serde_json::from_slice::<Event>(black_box(&payload)));
}
