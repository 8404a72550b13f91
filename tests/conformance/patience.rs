//! A read of a fetch that takes longer than the limit of a call.

use std::{sync::Arc, time::Duration};

use keylane::{Completed, inner::StoreSettings, partition::PartitionSet};

use crate::{
    outbox::{Outbox, promptly},
    target::Server,
};

/// Walking over dead rows of a table can take longer than the limit of a call, at each attempt. The lock
/// simulates such a walk: it is released when a read has waited longer than the limit.
pub(crate) async fn a_read_without_an_answer_is_given_more_time_the_next_time<T: Server>(outbox: &Outbox<T>) {
    let id = outbox.schedule_keys(&["order-1"]).await[0];
    let mut call_timeout = Duration::from_millis(300);
    let store_with = |call_timeout| {
        outbox.store_with(StoreSettings { call_timeout, ..outbox.settings(Completed::Delete) })
    };
    let mut store = store_with(call_timeout);
    let mut holder = outbox.begin().await;
    T::execute(&mut holder, outbox.sql(T::LOCK_RECORDS)).await.unwrap();
    let mut refused = 0;
    let head = loop {
        let asked = Arc::clone(&store);
        let reading = asked.find_head(PartitionSet::ALL, &[]);
        tokio::pin!(reading);
        if let Ok(early) = tokio::time::timeout(call_timeout.mul_f64(1.5), &mut reading).await {
            early.expect_err("the table is locked");
            refused += 1;
            if refused % 20 == 0 {
                // On a busy machine, even the new connection may take longer than a call may.
                call_timeout *= 4;
                store = store_with(call_timeout);
            }
            assert!(refused < 50, "it is given no more time");
            continue;
        }
        T::execute(&mut holder, outbox.sql(T::UNLOCK_RECORDS)).await.unwrap();
        // A busy machine may be late with the release.
        break match promptly(reading).await {
            Ok(head) => head,
            Err(_) => promptly(store.find_head(PartitionSet::ALL, &[])).await.unwrap(),
        };
    };
    assert_eq!(head.first, Some(id));
    assert!(refused > 0, "the first read waits no longer than a call may");
}
