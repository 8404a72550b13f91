//! What the probes of a supervisor see.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{process::Settings, stage::settings};
use crate::keylane::on_postgres;

/// The status and the body of an answer.
async fn ask(address: SocketAddr, request: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: relay\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn probes_see_a_relay_that_waits_for_its_database_and_one_that_delivers() {
    // No server listens there.
    let file = Settings::new("waiting", &settings("postgres://nobody@127.0.0.1:1/none", &[("a", "a")]));
    let mut relay = file.spawn();
    let address = relay.says("the relay begins").await["health"].as_str().unwrap().parse().unwrap();
    assert_eq!(ask(address, "GET /health/live").await.0, 200);
    assert_eq!(ask(address, "GET /health/ready").await.0, 503);
    let (status, health) = ask(address, "GET /health").await;
    assert_eq!((status, &health["state"]), (200, &Value::from("starting")));
    relay.signal("TERM").await;
    assert_eq!(relay.ended().await, Some(0), "also while it waits for its database");

    on_postgres("relay_health", async |url| {
        let file = Settings::new("health", &settings(url, &[("a", "a")]));
        file.printed(&["migrate"]).await;
        let mut relay = file.spawn();
        let address = relay.says("the relay begins").await["health"].as_str().unwrap().parse().unwrap();
        let instance = relay.says("the relay delivers").await["instance"].clone();
        relay.says("PartitionsGranted").await;
        // Ready, once its first fetch has ended.
        let ready = async || {
            while ask(address, "GET /health/ready").await.0 != 200 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ready()).await.unwrap();
        for path in ["live", "ready"] {
            let (status, health) = ask(address, &format!("GET /health/{path}")).await;
            assert_eq!((status, &health[path]), (200, &Value::Bool(true)), "{path}");
        }
        let (status, health) = ask(address, "GET /health").await;
        assert_eq!((status, &health["instance"]), (200, &instance), "{health}");
        assert_eq!(ask(address, "GET /metrics").await.0, 404);
        assert_eq!(ask(address, "POST /health").await.0, 405);
        relay.signal("TERM").await;
        assert_eq!(relay.ended().await, Some(0));
    })
    .await;
}

#[tokio::test]
async fn a_relay_without_tables_says_so_and_ends() {
    on_postgres("relay_bare", async |url| {
        let done = Settings::new("bare", &settings(url, &[("a", "a")])).run(&["relay"]).await;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(said.contains("the outbox tables are missing"), "{said}");
        assert_eq!(done.status.code(), Some(1));
    })
    .await;
}
