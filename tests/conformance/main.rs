//! One suite for all stores: each case runs on PostgreSQL, MariaDB, MySQL, SQLite and in memory,
//! under a name such as `postgres::fence_refuses_an_evicted_instance`.
//!
//! The servers are those of `dev/services`; their addresses come from the environment. To add a
//! case, write it in the module of its theme and name it in one of the lists.
//!
//! | list | not on | because |
//! | --- | --- | --- |
//! | [`everywhere`] | – | – |
//! | [`several_writers`] | SQLite | one writer at a time: a second transaction that writes waits for the first |
//! | [`by_sql`] | memory | it has no schema that could be missing, old or damaged |
//! | [`on_servers`] | SQLite | as above: the two transactions of the case cannot both be open |
//! | | memory | a settle is one critical section: there is no open settle to wait for, no deadlock, and no commit in two phases |
//! | [`on_a_file`] | all but SQLite | about the one file and its one writer |
//! | [`from_sql`] | SQLite | it has a documented statement, and no functions of its own |
//! | | memory | it has no SQL |
//! | [`by_numbers`] | all but PostgreSQL | numbers of transactions that SQL can draw and ask for |
//! | [`likeness`] | memory | all others are compared with it |
//! | [`late_below`] | all but MariaDB and MySQL | the others need no fetch below: by numbers, or by one writer; and lock no rows for keys |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a case fails by panicking")]

#[macro_use]
mod lists;
#[macro_use]
mod lists_of_some;

mod below;
mod cancelling;
mod claim_locks;
mod claimed;
mod claims;
mod content;
mod contention;
mod crashes;
mod dead_letters;
mod dedup;
mod expiring;
mod fence;
mod fetcher;
mod fetching;
mod from_sql;
mod interleaving;
mod lanes;
mod likeness;
mod lost_reply;
mod membership;
mod numbers;
mod open_writers;
mod order;
mod outbox;
mod overview;
mod passing;
mod patience;
mod plans;
mod purging;
mod releasing;
mod repairing;
mod routes;
mod scanning;
mod schema;
mod settling;
mod statements;
mod strict;
mod target;
mod time;
mod transactional;
mod unroutable;
mod workload;

mod postgres {
    everywhere!(PostgresTarget);
    several_writers!(PostgresTarget);
    by_sql!(PostgresTarget);
    likeness!(PostgresTarget);
    on_servers!(PostgresTarget);
    from_sql!(PostgresTarget);
    by_numbers!(PostgresTarget);
}

mod mariadb {
    everywhere!(MariaDbTarget);
    several_writers!(MariaDbTarget);
    by_sql!(MariaDbTarget);
    likeness!(MariaDbTarget);
    on_servers!(MariaDbTarget);
    from_sql!(MariaDbTarget);
    late_below!(MariaDbTarget);
}

mod mysql {
    everywhere!(MySqlTarget);
    several_writers!(MySqlTarget);
    by_sql!(MySqlTarget);
    likeness!(MySqlTarget);
    on_servers!(MySqlTarget);
    from_sql!(MySqlTarget);
    late_below!(MySqlTarget);
}

mod sqlite {
    everywhere!(SqliteTarget);
    by_sql!(SqliteTarget);
    likeness!(SqliteTarget);
    on_a_file!(SqliteTarget);
}

mod memory {
    everywhere!(MemoryTarget);
    several_writers!(MemoryTarget);
}
