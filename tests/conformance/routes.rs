//! Which handler takes which record type.

use keylane::handler::Route;

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
