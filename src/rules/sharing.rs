//! How handlers share the calls and the memory of an instance.
//!
//! A call cannot be taken back. So a handler that stands still keeps what its calls have, and would keep all if it
//! could get all. Here the next call of a handler depends on what is still free: the more the handler has, the more
//! must be free. What one handler leaves is shared by the others in the same way. (This is the *dynamic threshold* of
//! Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.)

use super::pacing::FetchLimits;

/// A handler may have so many calls under way for each call that is free, except the last one.
const CALLS_PER_FREE: usize = 3;
/// For each place of the memory that the runs of a handler take, so many must be in no run.
const FREE_PER_PLACE: usize = 2;
/// A run takes at most one of this many parts of what its handler may still take, so that a handler which waits
/// much has many keys under way, and each run few records.
const RUNS_AHEAD: usize = 64;

/// Whether a handler with this many calls under way may begin another one, if `free` calls may begin in all.
///
/// One handler gets at most about three quarters of all calls, the next one three quarters of the rest. The last free
/// call is for a handler that has none under way.
///
/// ```
/// use keylane::rules::sharing::may_call;
///
/// assert!(may_call(190, 66) && !may_call(192, 64), "of 256 calls, 64 are left to other handlers");
/// assert!(may_call(0, 64), "one of them begins its first call");
/// assert!(may_call(0, 1) && !may_call(1, 1));
/// ```
pub fn may_call(running: usize, free: usize) -> bool {
    free > 0 && (running == 0 || running < CALLS_PER_FREE.saturating_mul(free - 1))
}

/// The bytes of one place of the memory, of which there are `max_in_flight`.
pub fn bytes_per_place(limits: FetchLimits) -> usize {
    (limits.max_in_flight_bytes / limits.max_in_flight.max(1)).max(1)
}

/// How many places of the memory a record takes: one, or as many as its payload has the bytes of.
///
/// ```
/// use keylane::rules::{pacing::FetchLimits, sharing::{bytes_per_place, places}};
///
/// let limits = FetchLimits { batch_size: 1000, max_in_flight: 4000, max_in_flight_bytes: 64 << 20 };
/// assert_eq!([100, 16 << 10, 1 << 20].map(|payload| places(payload, bytes_per_place(limits))), [1, 1, 63]);
/// ```
pub fn places(payload: usize, bytes_per_place: usize) -> usize {
    // Nearly all records take this way: a division per record is not cheap.
    if payload <= bytes_per_place { 1 } else { payload.div_ceil(bytes_per_place.max(1)) }
}

/// The most records that the next run of a handler may take, 0 if the handler has its share.
///
/// `held` places of the memory are in the runs of the handler, and `free` are in no run. One handler gets a third of
/// the memory for its runs, the next one a third of the rest. A handler without a run gets at least one record.
///
/// ```
/// use keylane::rules::sharing::run_records;
///
/// assert_eq!(run_records(0, 4000), 32);
/// assert_eq!(run_records(1300, 2700), 1, "few are left: each for another key");
/// assert_eq!(run_records(1334, 2666), 0);
/// ```
pub fn run_records(held: usize, free: usize) -> usize {
    let left = (free / FREE_PER_PLACE).saturating_sub(held);
    left.div_ceil(RUNS_AHEAD).max(usize::from(held == 0))
}
