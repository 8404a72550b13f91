//! Replicas, orderly ends, crashes, and new routes: nothing is lost, and each key stays in order.

use std::time::Duration;

use tokio::{io::AsyncReadExt, net::TcpListener, time::timeout};

use super::{
    away::BROKER,
    broker::{arrived, count, is_in_order, topic},
    process::{Relay, Settings},
    stage::{Producer, endpoint_route, quick_settings, settings},
};
use crate::keylane::on_postgres;

#[tokio::test]
async fn replicas_share_rows_that_plain_sql_has_written_before_and_after_their_start() {
    let _shared = BROKER.read().await;
    on_postgres("relay_replicas", async |url| {
        let topic = topic().await;
        let file = Settings::new("replicas", &settings(url, &[("order.placed", &topic)]));
        let said = file.printed(&["migrate"]).await;
        assert!(said.contains("producers find the routes of the relay"), "{said}");
        let mut producer = Producer::connect(url).await;
        producer.schedule("order.placed", 20, 0, 10).await;

        let mut first = file.start().await;
        let mut second = file.start().await;
        first.says("PartitionsReleased").await;
        second.says("PartitionsGranted").await;
        producer.schedule("order.placed", 20, 10, 40).await;
        let content = arrived(&topic, 800).await;
        is_in_order(&content, 20, 40);
        assert_eq!(count(&content), 800, "nothing is repeated without a fault");
        for relay in [first, second] {
            relay.signal("INT").await;
            assert_eq!(relay.ended().await, Some(0));
        }
    })
    .await;
}

#[tokio::test]
async fn rows_before_the_handler_is_listed_are_refused() {
    on_postgres("relay_early", async |url| {
        let file = Settings::new("early", "");
        file.printed(&["migrate", "--database-url", url]).await;
        let refused = Producer::connect(url).await.try_schedule("order.placed", 1, 0).await.unwrap_err();
        assert!(refused.to_string().contains("no handler is listed for the record type \"order.placed\""));
    })
    .await;
}

#[tokio::test]
async fn an_orderly_end_loses_and_repeats_nothing() {
    let _shared = BROKER.read().await;
    on_postgres("relay_term", async |url| {
        let topic = topic().await;
        let file = Settings::new("term", &settings(url, &[("order.placed", &topic)]));
        file.printed(&["migrate"]).await;
        let relay = file.start().await;
        let mut producer = Producer::connect(url).await;
        producer.schedule("order.placed", 20, 0, 50).await;
        arrived(&topic, 1).await;
        relay.signal("TERM").await;
        producer.schedule("order.placed", 20, 50, 60).await;
        assert_eq!(relay.ended().await, Some(0));
        // It has handed over, so no instance waits until it counts as dead.
        assert_eq!(producer.cluster().await, (vec!["STOPPED".to_owned()], 0));

        let next = file.start().await;
        let content = arrived(&topic, 1200).await;
        is_in_order(&content, 20, 60);
        assert_eq!(count(&content), 1200);
        next.signal("TERM").await;
        assert_eq!(next.ended().await, Some(0));
    })
    .await;
}

#[tokio::test]
async fn a_killed_relay_loses_nothing() {
    let _shared = BROKER.read().await;
    on_postgres("relay_kill", async |url| {
        let topic = topic().await;
        let file = Settings::new("kill", &quick_settings(url, &[("order.placed", &topic)]));
        file.printed(&["migrate"]).await;
        let relay = file.start().await;
        let mut producer = Producer::connect(url).await;
        producer.schedule("order.placed", 20, 0, 60).await;
        arrived(&topic, 1).await;
        relay.signal("KILL").await;
        assert_eq!(relay.ended().await, None);
        producer.schedule("order.placed", 20, 60, 80).await;

        let next = file.start().await;
        is_in_order(&arrived(&topic, 1600).await, 20, 80);
        next.signal("TERM").await;
        assert_eq!(next.ended().await, Some(0));
    })
    .await;
}

#[tokio::test]
async fn routes_are_read_again_without_a_gap_and_a_bad_file_changes_nothing() {
    let _shared = BROKER.read().await;
    on_postgres("relay_hup", async |url| {
        let (orders, refunds) = (topic().await, topic().await);
        let old = settings(url, &[("order.placed", &orders)]);
        let file = Settings::new("hup", &old);
        file.printed(&["migrate"]).await;
        let mut relay = file.start().await;
        let mut producer = Producer::connect(url).await;
        producer.schedule("order.placed", 10, 0, 30).await;

        let new = settings(url, &[("order.placed", &orders), ("refund.paid", &refunds)]);
        file.write(&new);
        relay.signal("HUP").await;
        producer.schedule("order.placed", 10, 30, 60).await;
        relay.says("the relay delivers").await;
        producer.schedule("refund.paid", 10, 0, 5).await;
        is_in_order(&arrived(&refunds, 50).await, 10, 5);

        file.write(&new.replace("brokers", "brokrs"));
        relay.signal("HUP").await;
        let said = relay.says("the new settings are refused").await;
        assert_eq!(said["problem"], "the key relay.kafka.brokrs is unknown: did you mean brokers?");
        // These tables do not exist, so the old workers are still needed.
        file.write(&format!("table_prefix = 'other_'\n{new}"));
        relay.signal("HUP").await;
        let said = relay.says("the new workers cannot start").await;
        assert!(said["problem"].as_str().unwrap().contains("tables are missing"), "{said}");
        producer.schedule("order.placed", 10, 60, 70).await;
        let content = arrived(&orders, 700).await;
        is_in_order(&content, 10, 70);
        assert_eq!(count(&content), 700, "a handover repeats nothing");
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
        assert_eq!(producer.cluster().await, (vec!["STOPPED".to_owned(), "STOPPED".to_owned()], 0));
    })
    .await;
}

#[tokio::test]
async fn other_brokers_are_taken_up_also_while_they_are_away() {
    let _shared = BROKER.read().await;
    on_postgres("relay_brokers", async |url| {
        let topic = topic().await;
        let real = settings(url, &[("order.placed", &topic)]);
        let real = real.replace("[relay.kafka]", "[relay.kafka]\npatience = '2s'");
        // Nobody listens there.
        let nobody = real.replace(&super::broker::address(), "127.0.0.1:1");
        let file = Settings::new("brokers", &real);
        file.printed(&["migrate"]).await;
        let mut relay = file.start().await;
        let mut producer = Producer::connect(url).await;
        producer.schedule("order.placed", 10, 0, 20).await;
        arrived(&topic, 200).await;

        file.write(&nobody);
        relay.signal("HUP").await;
        relay.says("the relay delivers").await;
        producer.schedule("order.placed", 10, 20, 40).await;
        relay.says("the handler's target is unavailable").await;
        file.write(&real);
        relay.signal("HUP").await;
        relay.says("the relay delivers").await;
        producer.schedule("order.placed", 10, 40, 50).await;
        let content = arrived(&topic, 500).await;
        is_in_order(&content, 10, 50);
        assert_eq!(count(&content), 500, "what was with the absent brokers is sent once");
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    })
    .await;
}

/// A relay with a call under way, to an endpoint that takes the request and never answers.
async fn relay_with_a_call(url: &str, name: &str, cluster: &str) -> (Relay, impl Sized + use<>) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let route = endpoint_route("order.placed", &format!("http://{}/", silent.local_addr().unwrap()));
    let file = Settings::new(name, &(cluster.to_owned() + &settings(url, &[]) + &route));
    file.printed(&["migrate"]).await;
    let relay = file.start().await;
    Producer::connect(url).await.schedule("order.placed", 1, 0, 1).await;
    let request = async {
        let (mut stream, _) = silent.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream
    };
    (relay, timeout(Duration::from_secs(30), request).await.unwrap())
}

#[tokio::test]
async fn a_second_signal_ends_the_relay_at_once() {
    on_postgres("relay_twice", async |url| {
        let (mut relay, _request) = relay_with_a_call(url, "twice", "").await;
        relay.signal("TERM").await;
        relay.says("the relay stops").await;
        relay.signal("TERM").await;
        let ended = timeout(Duration::from_secs(5), relay.ended()).await;
        assert_eq!(ended.expect("at once"), Some(143));
    })
    .await;
}

#[tokio::test]
async fn an_end_before_all_is_done_has_a_code_of_its_own() {
    on_postgres("relay_forced", async |url| {
        let short = "[cluster]\ngraceful_shutdown_timeout = '1s'\n";
        let (mut relay, _request) = relay_with_a_call(url, "forced", short).await;
        relay.signal("TERM").await;
        let said = relay.says("the relay has ended before all was done").await;
        assert_eq!(said["cancelled"], 1, "{said}");
        let ended = timeout(Duration::from_secs(10), relay.ended()).await;
        assert_eq!(ended.expect("before the patience of the call is over"), Some(1));
    })
    .await;
}
