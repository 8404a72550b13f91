//! The routes: handlers and their record types.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use keylane::handler::Route;
use tokio::time::Instant;

use crate::{outbox::Outbox, target::Target};

fn route(record_type: &str, handler: &str) -> Route {
    Route { record_type: record_type.to_owned(), handler: handler.to_owned() }
}

pub(crate) async fn routes_can_be_published_again<T: Target>(outbox: &Outbox<T>) {
    let routes =
        [route("order.paid", "mail"), route("order.placed", "billing"), route("order.placed", "mail")];
    for _ in 0..2 {
        outbox.store.publish_routes(&routes).await.unwrap();
    }
    let mut found = outbox.store.routes().await.unwrap();
    found.sort_unstable();
    assert_eq!(found, routes);
}

pub(crate) async fn routes_can_be_published_by_two_at_once<T: Target>(outbox: &Outbox<T>) {
    let routes: Vec<Route> = (0..10).map(|n| route("order.placed", &format!("handler-{n}"))).collect();
    let second_store = outbox.store_that(keylane::Completed::Delete);
    let (one, other) =
        tokio::join!(outbox.store.publish_routes(&routes), second_store.publish_routes(&routes));
    one.unwrap();
    other.unwrap();
    assert_eq!(outbox.store.routes().await.unwrap().len(), 10);
}

pub(crate) async fn a_retired_handler_is_taken_out_of_every_type<T: Target>(outbox: &Outbox<T>) {
    let routes = [route("order.placed", "mail"), route("order.paid", "mail"), route("order.paid", "ledger")];
    outbox.store.publish_routes(&routes).await.unwrap();
    assert!(outbox.store.retire_handler("mail").await.unwrap());
    assert!(!outbox.store.retire_handler("mail").await.unwrap());
    assert_eq!(outbox.store.routes().await.unwrap(), routes[2..]);
}

pub(crate) async fn a_list_is_published_as_a_whole<T: Target>(outbox: &Outbox<T>) {
    let of = |build: usize| -> Vec<Route> {
        (0..20).map(|n| route("order.placed", &format!("build-{build}-{n}"))).collect()
    };
    let (reader, done) = (outbox.store_that(keylane::Completed::Delete), AtomicBool::new(false));
    let publish = async {
        for build in 0..10 {
            outbox.store.publish_routes(&of(build)).await.unwrap();
        }
        done.store(true, SeqCst);
    };
    let read = async {
        while !done.load(SeqCst) {
            let seen = reader.routes().await.unwrap().len();
            assert_eq!(seen % 20, 0, "{seen} handlers are no whole number of lists");
        }
    };
    tokio::join!(publish, read);
    assert_eq!(outbox.store.routes().await.unwrap().len(), 200);
}

pub(crate) async fn a_thousand_routes_are_published_at_once<T: Target>(outbox: &Outbox<T>) {
    let routes: Vec<Route> = (0..1_000).map(|n| route("order.placed", &format!("handler-{n}"))).collect();
    for _ in 0..2 {
        let since = Instant::now();
        outbox.store.publish_routes(&routes).await.unwrap();
        // One by one, the writes took several seconds.
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    }
    assert_eq!(outbox.store.routes().await.unwrap().len(), 1_000);
}
