//! The goals: a figure of a measurement, and its bound.

use std::fmt;

/// A figure with a bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    pub(super) name: &'static str,
    /// [`Database::NAME`](keylane::database::Database::NAME) of the database that it is for.
    pub(super) database: &'static str,
    pub(super) measurement: &'static Measurement,
    /// The figure by its subject and name.
    pub(super) subject: &'static str,
    pub(super) figure: &'static str,
    pub(super) bound: Bound,
}

/// A measurement, as it is written after `keylane bench`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measurement {
    pub(super) words: &'static str,
    /// The same with little to do.
    pub(super) quick: &'static str,
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

const POSTGRES: &str = "PostgreSQL";
const MYSQL: &str = "MySQL";
const SQLITE: &str = "SQLite";

const DRAIN: Measurement = Measurement { words: "drain", quick: "drain --records 20000" };
const TRANSACTIONAL: Measurement = Measurement {
    words: "drain --handler-form transactional-batch",
    quick: "drain --handler-form transactional-batch --records 2000",
};
const CLUSTER: Measurement = Measurement { words: "cluster", quick: "cluster --records 20000" };
const HANDLERS: Measurement = Measurement { words: "handlers", quick: "handlers --records 20000" };
const HOT: Measurement =
    Measurement { words: "handlers --hot", quick: "handlers --records 20000 --hot 10000" };
const SCHEDULE: Measurement = Measurement { words: "schedule", quick: "schedule --seconds 0.5" };
const LATENCY: Measurement = Measurement { words: "latency", quick: "latency --seconds 1" };
const ELSEWHERE: Measurement = Measurement {
    words: "latency --other-process --rates 20,100,1000",
    quick: "latency --other-process --rates 20,100,1000 --seconds 1",
};
const BACKLOG: Measurement =
    Measurement { words: "backlog", quick: "backlog --records 100000 --drained 20000 --held 10000" };
const WRITERS: Measurement =
    Measurement { words: "writers", quick: "writers --records 100000 --settled 100000" };
const WRITERS_KEEP: Measurement =
    Measurement { words: "writers --keep", quick: "writers --keep --records 100000 --settled 100000" };
const STEADY: Measurement = Measurement { words: "steady", quick: "steady --seconds 10" };
const IDLE: Measurement = Measurement { words: "idle", quick: "idle --seconds 5" };
const IDLE_64: Measurement =
    Measurement { words: "idle --instances 64", quick: "idle --instances 64 --seconds 5" };
const TAKEOVER: Measurement = Measurement { words: "takeover --defaults", quick: "takeover" };
const MEMORY: Measurement = Measurement { words: "memory", quick: "memory --records 100000" };
const INBOX: Measurement = Measurement { words: "inbox", quick: "inbox --messages 2000" };
const LOCK: Measurement =
    Measurement { words: "lock", quick: "lock --waiters 16 --handovers 640 --idle-seconds 5" };
const CLAIMED: Measurement = Measurement { words: "claimed", quick: "claimed --records 20000" };
#[cfg(feature = "kafka")]
const KAFKA: Measurement = Measurement { words: "kafka", quick: "kafka --records 20000" };
#[cfg(feature = "kafka")]
const TO_CONSUMER: Measurement =
    Measurement { words: "kafka --rate 20", quick: "kafka --rate 20 --seconds 2" };
#[cfg(feature = "kafka")]
const RELAY_MEMORY: Measurement = Measurement {
    words: "kafka --memory --records 1000000",
    quick: "kafka --memory --records 20000 --seconds 2",
};
#[cfg(feature = "kafka")]
const CONSUMER: Measurement = Measurement { words: "inbox --kafka", quick: "inbox --kafka --messages 2000" };
const SCALE: Measurement = Measurement { words: "scale", quick: "scale" };

const fn goal(
    name: &'static str,
    measurement: &'static Measurement,
    subject: &'static str,
    figure: &'static str,
    bound: Bound,
) -> Goal {
    Goal { name, database: POSTGRES, measurement, subject, figure, bound }
}

impl Goal {
    const fn on(self, database: &'static str) -> Self {
        Self { database, ..self }
    }
}

pub(super) const GOALS: &[Goal] = &[
    goal("drain-loop", &DRAIN, "library / loop", "rate", AtLeast(1.0)),
    goal("drain-best", &DRAIN, "library / best", "rate", AtLeast(0.75)),
    goal("drain-naive1", &DRAIN, "library / naive1", "rate", AtLeast(30.0)),
    goal("drain-naive8", &DRAIN, "library / naive8", "rate", AtLeast(15.0)),
    goal("server-cpu", &DRAIN, "library / best", "server processor", AtMost(1.3)),
    goal("client-cpu", &DRAIN, "library / best", "client processor", AtMost(2.0)),
    goal("transactional", &TRANSACTIONAL, "library / loop", "rate", AtLeast(0.6)),
    goal("instances", &CLUSTER, "8 / 1", "rate", AtLeast(0.9)),
    goal("instances-deadlocks", &CLUSTER, "8", "deadlocks", AtMost(0.0)),
    goal("instances-lock-waits", &CLUSTER, "8", "lock waits over 100 ms", AtMost(0.0)),
    goal("slow-handlers", &HANDLERS, "library / sleeps", "rate", AtLeast(0.9)),
    goal("hot-key-others", &HOT, "beside / alone", "rate", AtLeast(0.8)),
    goal("hot-key", &HOT, "hot key", "rate", AtLeast(10_000.0)),
    goal("schedule", &SCHEDULE, "library / by hand, 1 connection", "rate", AtLeast(0.95)),
    goal("schedule-8", &SCHEDULE, "library / by hand, 8 connections", "rate", AtLeast(0.95)),
    goal("schedule-all", &SCHEDULE, "library / by hand, 1000 a transaction", "rate", AtLeast(0.8)),
    goal("latency-100-p50", &LATENCY, "library at 100/s", "p50", AtMost(1.0)),
    goal("latency-100-p99", &LATENCY, "library at 100/s", "p99", AtMost(10.0)),
    goal("latency-2000-p50", &LATENCY, "library at 2000/s", "p50", AtMost(1.0)),
    goal("latency-2000-p99", &LATENCY, "library at 2000/s", "p99", AtMost(10.0)),
    goal("notified-100-p50", &LATENCY, "notified at 100/s", "p50", AtMost(10.0)),
    goal("notified-2000-p50", &LATENCY, "notified at 2000/s", "p50", AtMost(10.0)),
    goal("other-process-20-p50", &ELSEWHERE, "other process at 20/s", "p50", AtMost(3.0)),
    goal("other-process-100-p50", &ELSEWHERE, "other process at 100/s", "p50", AtMost(3.0)),
    goal("backlog-pending", &BACKLOG, "pending / plain", "rate", AtLeast(0.5)),
    goal("backlog-pending-cpu", &BACKLOG, "pending / plain", "server processor", AtMost(2.0)),
    goal("backlog-statistics", &BACKLOG, "stale statistics / pending", "rate", AtLeast(0.667)),
    goal("backlog-statistics-cpu", &BACKLOG, "stale statistics / pending", "server processor", AtMost(1.5)),
    goal("backlog-others", &BACKLOG, "others' / plain", "rate", AtLeast(0.5)),
    goal("backlog-others-cpu", &BACKLOG, "others' / plain", "server processor", AtMost(2.0)),
    goal("backlog-held", &BACKLOG, "held / plain", "rate", AtLeast(0.5)),
    goal("backlog-held-cpu", &BACKLOG, "held / plain", "server processor", AtMost(2.0)),
    goal("backlog-releasing", &BACKLOG, "releasing / plain", "rate", AtLeast(0.9)),
    goal("backlog-kept", &BACKLOG, "kept / keeping", "rate", AtLeast(0.5)),
    goal("backlog-kept-cpu", &BACKLOG, "kept / keeping", "server processor", AtMost(2.0)),
    goal("writers-long", &WRITERS, "long transaction / plain", "rate", AtLeast(0.8)),
    goal("writers-long-end", &WRITERS, "long transaction", "until the last is handled", AtMost(1_000.0)),
    goal("writers-many", &WRITERS, "50 writers / plain", "rate", AtLeast(0.8)),
    goal("writers-small", &WRITERS, "200 commits/s / plain", "rate", AtLeast(0.8)),
    goal("writers-long-keep", &WRITERS_KEEP, "long transaction / plain", "rate", AtLeast(0.8)),
    goal("writers-many-keep", &WRITERS_KEEP, "50 writers / plain", "rate", AtLeast(0.8)),
    goal("steady", &STEADY, "last / first", "p99", AtMost(1.5)),
    goal("steady-size", &STEADY, "last / seventh", "table and indexes", AtMost(1.1)),
    goal("steady-backlog", &STEADY, "last", "backlog", AtMost(1.0)),
    goal("idle", &IDLE, "library", "processor", AtMost(0.5)),
    goal("idle-statements", &IDLE, "library", "statements beyond polls", AtMost(12.0)),
    goal("idle-64", &IDLE_64, "library", "processor", AtMost(5.0)),
    goal("idle-64-connections", &IDLE_64, "library", "connections", AtMost(3.0)),
    goal("start", &TAKEOVER, "start", "first record", AtMost(1_000.0)),
    goal("handover", &TAKEOVER, "handover", "all taken over", AtMost(2_000.0)),
    goal("takeover", &TAKEOVER, "crash / bound", "all taken over", AtMost(1.0)),
    goal("memory", &MEMORY, "instance", "most resident", AtMost(100.0)),
    goal("inbox", &INBOX, "inbox / by hand", "rate", AtLeast(0.6)),
    goal("inbox-batch", &INBOX, "inbox in batches / inbox", "rate", AtLeast(3.0)),
    goal("claimed", &CLAIMED, "library / loops, 1", "rate", AtLeast(0.9)),
    goal("claimed-8", &CLAIMED, "library / loops, 8", "rate", AtLeast(0.9)),
    goal("lock", &LOCK, "clients / row lock, 16 waiters", "rate", AtLeast(0.33)),
    goal("lock-turns", &LOCK, "clients, 16 waiters", "turns", AtLeast(0.9)),
    goal("lock-idle", &LOCK, "waiters that wait", "statements", AtMost(12.0)),
    #[cfg(feature = "kafka")]
    goal("kafka", &KAFKA, "relay / slower, 10000 keys", "rate", AtLeast(0.7)),
    #[cfg(feature = "kafka")]
    goal("kafka-consumer-p50", &TO_CONSUMER, "consumer at 20/s", "p50", AtMost(10.0)),
    #[cfg(feature = "kafka")]
    goal("kafka-consumer-p99", &TO_CONSUMER, "consumer at 20/s", "p99", AtMost(50.0)),
    #[cfg(feature = "kafka")]
    goal("relay-memory", &RELAY_MEMORY, "relay", "beside the queue", AtMost(32.0)),
    #[cfg(feature = "kafka")]
    goal("relay-memory-away", &RELAY_MEMORY, "broker away", "beside the queue", AtMost(32.0)),
    #[cfg(feature = "kafka")]
    goal("inbox-kafka", &CONSUMER, "inbox / by hand", "rate", AtLeast(0.6)),
    #[cfg(feature = "kafka")]
    goal("inbox-kafka-batch", &CONSUMER, "inbox in batches / inbox", "rate", AtLeast(3.0)),
    goal("scale-assign", &SCALE, "each instance", "assign", AtMost(5.0)),
    goal("scale-ticks", &SCALE, "any change", "until settled", AtMost(3.0)),
    goal("drain-mariadb", &DRAIN, "library / loop", "rate", AtLeast(0.7)).on(MYSQL),
    goal("writers-long-mariadb", &WRITERS, "long transaction / plain", "rate", AtLeast(0.8)).on(MYSQL),
    goal("lock-idle-mariadb", &LOCK, "waiters that wait", "statements", AtMost(12.0)).on(MYSQL),
    goal("drain-sqlite", &DRAIN, "library / loop", "rate", AtLeast(0.7)).on(SQLITE),
    goal("other-process-mariadb", &ELSEWHERE, "other process at 100/s", "p50", AtMost(10.0)).on(MYSQL),
    goal("other-process-sqlite", &ELSEWHERE, "other process at 100/s", "p50", AtMost(10.0)).on(SQLITE),
];

/// The goal of `bench check`, for every database and for busy machines. With fewer records, the start of the instance
/// would count too much.
pub(super) const CHECK: Goal = goal(
    "drain-loop",
    &Measurement { words: "drain", quick: "drain --records 100000 --loop-only" },
    "library / loop",
    "rate",
    AtLeast(0.4),
);

impl Bound {
    pub(super) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}
