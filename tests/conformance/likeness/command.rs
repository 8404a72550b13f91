//! The random commands. A number that names a record, a worker or a lane is taken modulo their number when
//! the command runs, so that a command still has a meaning if earlier ones are left out.

use proptest::prelude::*;

/// The most transactions of users at once.
pub(super) const TRANSACTIONS: usize = 2;
/// The most live workers at once.
pub(super) const WORKERS: usize = 2;

/// An event of a user.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) key: usize,
    pub(super) handler: usize,
    pub(super) due: DueTime,
    pub(super) dedup_key: Option<usize>,
}

/// Times are past by a moment or an hour ahead, so that no clock decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DueTime {
    Now,
    AtOnce,
    InAnHour,
}

/// The outcome of a record or of a lane.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Complete,
    CompleteAndResume,
    Resume,
    Release,
    StopRelease { by: usize },
    Retry { later: bool, stop: bool, counted: bool },
    Fail { block: bool, counted: bool },
    Unroutable,
    Hold { behind: usize },
}

/// The fate of a settle's reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Arrives,
    IsLost,
    /// The settle does not reach the database.
    RequestIsLost,
}

#[derive(Clone, Debug)]
pub(super) enum Repairing {
    Retry,
    Replace,
    Discard,
}

#[derive(Clone, Debug)]
pub(super) enum Command {
    Schedule {
        transaction: usize,
        events: Vec<Event>,
    },
    Cancel {
        transaction: usize,
        record: usize,
        by_dedup_key: bool,
    },
    End {
        transaction: usize,
        commit: bool,
    },
    FetchByPartition {
        keys: Vec<usize>,
        limit: usize,
        skip: Vec<usize>,
        handlers: usize,
    },
    Scan {
        skip: Vec<usize>,
        handlers: usize,
    },
    FetchDue {
        skip: Vec<usize>,
        handlers: usize,
    },
    FindHead {
        key: usize,
    },
    Settle {
        worker: usize,
        outcomes: Vec<(usize, bool, Outcome)>,
        reply: Reply,
    },
    ClaimRecords {
        worker: usize,
        source: usize,
        limit: usize,
        lasts: bool,
        handlers: usize,
    },
    RenewClaims {
        worker: usize,
        records: Vec<usize>,
        lasts: bool,
    },
    SettleClaims {
        worker: usize,
        outcomes: Vec<(usize, bool, Outcome)>,
    },
    TrackCall {
        worker: usize,
        record: usize,
    },
    EndTracking {
        record: usize,
    },
    Calm {
        worker: usize,
    },
    /// All failed records, if none is named.
    Repair {
        records: Vec<usize>,
        how: Repairing,
    },
    Join {
        worker: usize,
    },
    Beat {
        worker: usize,
    },
    Evict {
        worker: usize,
        beat: Option<bool>,
    },
    Leave {
        worker: usize,
    },
    Drain {
        worker: usize,
    },
    Claim {
        worker: usize,
        keys: Vec<usize>,
        stale: bool,
    },
    Release {
        worker: usize,
        keys: Vec<usize>,
        stale: bool,
    },
    Purge {
        instances: bool,
    },
    Publish {
        key: usize,
        handler: usize,
    },
    Retire {
        handler: usize,
    },
    CopyToDeadLetters {
        record: usize,
    },
    TakeDeadLetters {
        records: Vec<usize>,
        schedule: bool,
    },
}

fn number() -> impl Strategy<Value = usize> {
    0..64_usize
}

fn numbers(most: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(number(), 0..most)
}

fn event() -> impl Strategy<Value = Event> {
    let due = prop_oneof![4 => Just(DueTime::Now), 1 => Just(DueTime::AtOnce), 2 => Just(DueTime::InAnHour)];
    (number(), number(), due, prop::option::weighted(0.2, number()))
        .prop_map(|(key, handler, due, dedup_key)| Event { key, handler, due, dedup_key })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Complete),
        2 => Just(Outcome::CompleteAndResume),
        1 => Just(Outcome::Resume),
        1 => Just(Outcome::Release),
        1 => number().prop_map(|by| Outcome::StopRelease { by }),
        4 => (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(later, stop, counted)| Outcome::Retry { later, stop, counted }),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(block, counted)| Outcome::Fail { block, counted }),
        1 => Just(Outcome::Unroutable),
        4 => number().prop_map(|behind| Outcome::Hold { behind }),
    ]
}

fn delivery() -> impl Strategy<Value = Command> {
    let reply =
        prop_oneof![6 => Just(Reply::Arrives), 1 => Just(Reply::IsLost), 1 => Just(Reply::RequestIsLost)];
    let outcomes = prop::collection::vec((number(), prop::bool::weighted(0.1), outcome()), 1..5);
    let fetch = (numbers(3), 1..6_usize, numbers(3), number());
    prop_oneof![
        3 => fetch.prop_map(|(keys, limit, skip, handlers)| Command::FetchByPartition { keys, limit, skip, handlers }),
        2 => (numbers(3), number()).prop_map(|(skip, handlers)| Command::Scan { skip, handlers }),
        2 => (numbers(3), number()).prop_map(|(skip, handlers)| Command::FetchDue { skip, handlers }),
        1 => number().prop_map(|key| Command::FindHead { key }),
        14 => (number(), outcomes, reply)
            .prop_map(|(worker, outcomes, reply)| Command::Settle { worker, outcomes, reply }),
        1 => (number(), number()).prop_map(|(worker, record)| Command::TrackCall { worker, record }),
        1 => number().prop_map(|record| Command::EndTracking { record }),
        1 => number().prop_map(|worker| Command::Calm { worker }),
    ]
}

fn membership() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => number().prop_map(|worker| Command::Join { worker }),
        1 => number().prop_map(|worker| Command::Beat { worker }),
        2 => (number(), prop::option::of(prop::bool::weighted(0.3)))
            .prop_map(|(worker, beat)| Command::Evict { worker, beat }),
        1 => number().prop_map(|worker| Command::Leave { worker }),
        1 => number().prop_map(|worker| Command::Drain { worker }),
        3 => (number(), numbers(4), prop::bool::weighted(0.2))
            .prop_map(|(worker, keys, stale)| Command::Claim { worker, keys, stale }),
        1 => (number(), numbers(4), prop::bool::weighted(0.2))
            .prop_map(|(worker, keys, stale)| Command::Release { worker, keys, stale }),
        1 => any::<bool>().prop_map(|instances| Command::Purge { instances }),
    ]
}

fn people() -> impl Strategy<Value = Command> {
    let how = prop_oneof![Just(Repairing::Retry), Just(Repairing::Replace), Just(Repairing::Discard)];
    prop_oneof![
        4 => (numbers(3), how).prop_map(|(records, how)| Command::Repair { records, how }),
        1 => (number(), number()).prop_map(|(key, handler)| Command::Publish { key, handler }),
        1 => number().prop_map(|handler| Command::Retire { handler }),
        1 => number().prop_map(|record| Command::CopyToDeadLetters { record }),
        1 => (numbers(4), any::<bool>())
            .prop_map(|(records, schedule)| Command::TakeDeadLetters { records, schedule }),
    ]
}

fn users() -> impl Strategy<Value = Command> {
    let events = prop::collection::vec(event(), 1..4);
    prop_oneof![
        4 => (number(), events).prop_map(|(transaction, events)| Command::Schedule { transaction, events }),
        1 => (number(), number(), any::<bool>())
            .prop_map(|(transaction, record, by_dedup_key)| Command::Cancel { transaction, record, by_dedup_key }),
        4 => (number(), prop::bool::weighted(0.8)).prop_map(|(transaction, commit)| Command::End { transaction, commit }),
    ]
}

/// Any command of partitioned mode.
pub(super) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![9 => users(), 14 => delivery(), 4 => membership(), 5 => people()]
}

/// Any command of claimed mode.
pub(super) fn claiming() -> impl Strategy<Value = Command> {
    let outcomes = prop::collection::vec((number(), prop::bool::weighted(0.1), outcome()), 1..5);
    let repair = (numbers(3), any::<bool>()).prop_map(|(records, discards)| {
        let how = if discards { Repairing::Discard } else { Repairing::Retry };
        Command::Repair { records, how }
    });
    prop_oneof![
        9 => users(),
        8 => (number(), number(), 1..6_usize, any::<bool>(), number()).prop_map(
            |(worker, source, limit, lasts, handlers)| Command::ClaimRecords { worker, source, limit, lasts, handlers }
        ),
        2 => (number(), numbers(4), any::<bool>())
            .prop_map(|(worker, records, lasts)| Command::RenewClaims { worker, records, lasts }),
        8 => (number(), outcomes).prop_map(|(worker, outcomes)| Command::SettleClaims { worker, outcomes }),
        2 => repair,
        1 => any::<bool>().prop_map(|instances| Command::Purge { instances }),
    ]
}
