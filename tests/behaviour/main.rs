//! The library through its front door, as a user sees it: on PostgreSQL, MariaDB, MySQL, SQLite and
//! in memory, under names such as `postgres::nothing_overtakes_what_fails_once`.
//!
//! The servers are those of `dev/services`; their addresses come from the environment. To add a
//! case, write it in the module of its theme and name it in a list below; what is about one database
//! or none is a `#[tokio::test]` in its module.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a case fails by panicking")]

mod delivering;
mod ledger;
mod ordering;
mod recorder;
mod routing;
mod stage;
#[allow(dead_code, unused_imports, reason = "shared with the conformance suite, which needs more of it")]
#[path = "../conformance/target.rs"]
mod target;
mod user;

/// One test for each case, on a fresh stage that is taken away if the case passes.
macro_rules! stamp {
    ($target:ident; $($theme:ident { $($case:ident)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let Some(stage) = crate::stage::Stage::<crate::target::$target>::open().await else { return };
            crate::$theme::$case(&stage).await;
            stage.erase().await;
        }
    )*)*};
}

macro_rules! everywhere {
    ($target:ident) => {
        stamp! { $target;
            delivering {
                an_event_is_delivered_once_with_all_that_is_known_of_it
                a_rollback_delivers_nothing
                a_transaction_of_the_outbox_commits_and_wakes
                work_that_fails_is_rolled_back
                thousands_scheduled_at_once_are_delivered_in_order
                an_empty_list_schedules_nothing
                two_handlers_of_a_type_have_a_lane_each
                a_generic_handler_takes_every_type
                a_generic_handler_takes_the_types_of_its_list
                a_raw_event_is_delivered_as_it_is
            }
            routing {
                a_process_without_handlers_schedules_for_another
                the_first_event_goes_to_the_handlers_of_others_too
                a_list_that_is_too_old_is_read_again
                a_retired_handler_gets_nothing_more
                handlers_of_the_macros_are_called
            }
            ordering {
                nothing_overtakes_what_fails_once
                order_holds_across_restarts
                instances_that_join_and_leave_lose_and_repeat_nothing
                a_key_takes_up_where_another_instance_has_stopped
                a_slow_key_does_not_starve_the_others
            }
        }
    };
}

mod postgres {
    everywhere!(PostgresTarget);
}

mod mariadb {
    everywhere!(MariaDbTarget);
}

mod mysql {
    everywhere!(MySqlTarget);
}

mod sqlite {
    everywhere!(SqliteTarget);
}

mod memory {
    everywhere!(MemoryTarget);
}
