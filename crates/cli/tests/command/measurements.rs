//! What `keylane bench` measures beside the drain: each does its work and prints its figures.

use std::fs;

use super::{
    keylane::{File, figure, figures, on_mariadb, on_postgres, url},
    relay::away::BROKER,
};

#[tokio::test]
async fn waiting_handlers_and_a_hot_key() {
    on_postgres("handlers", async |url| {
        let waiting = figures(url, &["handlers", "--records", "500", "--handler-delay", "2"]);
        let ratio = figure(&waiting, "library / ideal", "rate");
        assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
        assert!(figure(&waiting, "library / sleeps", "rate") > 0.0);

        let hot = figures(url, &["handlers", "--records", "500", "--hot", "100", "--handler-delay", "1"]);
        assert!(figure(&hot, "beside / alone", "rate") > 0.0);
        assert!(figure(&hot, "hot key", "rate") > 0.0);
    })
    .await;
}

#[tokio::test]
async fn several_instances() {
    let words = ["cluster", "--records", "2000", "--keys", "500", "--instances", "1,3"];
    on_postgres("cluster", async |url| {
        let lines = figures(url, &words);
        assert!(figure(&lines, "3 / 1", "rate") > 0.0);
        assert_eq!(figure(&lines, "3", "deadlocks"), 0.0);
        assert!(figure(&lines, "3", "lock waits over 100 ms") >= 0.0);
    })
    .await;
    let file = File::new("cluster");
    assert!(figure(&figures(&file.url(), &words), "3 / 1", "rate") > 0.0);
}

#[tokio::test]
async fn claims_beside_loops_written_by_hand() {
    let words = ["claimed", "--records", "2000", "--keys", "500", "--instances", "1,3"];
    let has_ratios = |lines: &[serde_json::Value]| {
        for count in [1, 3] {
            assert!(figure(lines, &format!("library / loops, {count}"), "rate") > 0.0);
        }
        assert!(figure(lines, "partitioned / library, 1", "rate") > 0.0);
    };
    on_postgres("claimed", async |url| has_ratios(&figures(url, &words))).await;
    on_mariadb("claimed", async |url| has_ratios(&figures(url, &words))).await;
    has_ratios(&figures(&File::new("claimed").url(), &words));
}

#[tokio::test]
async fn every_kind_of_backlog() {
    let words = ["backlog", "--records", "5000", "--drained", "500", "--held", "200", "--keys", "100"];
    let file = File::new("backlog");
    on_postgres("backlog", async |url| {
        let (postgres, sqlite) = (figures(url, &words), figures(&file.url(), &words));
        assert!(figure(&postgres, "open writer / plain", "rate") > 0.0);
        for lines in [postgres, sqlite] {
            for case in ["pending / plain", "others' / plain", "held / plain", "kept / keeping"] {
                assert!(figure(&lines, case, "rate") > 0.0, "{case}");
            }
            assert!(figure(&lines, "stale statistics / pending", "rate") > 0.0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_steady_flow_and_its_course() {
    let file = File::new("steady");
    let plot = file.0.join("steady.svg");
    on_postgres("steady", async |url| {
        let words = ["steady", "--rate", "500", "--seconds", "2", "--plot", plot.to_str().unwrap()];
        let lines = figures(url, &words);
        let arrivals = figure(&lines, "all", "arrivals");
        assert!(arrivals > 0.0 && arrivals < 510.0, "{arrivals}");
        // On a busy machine a tenth may be over before the first event comes. What comes late is in the last one.
        let [p50, p99] = ["p50", "p99"].map(|name| figure(&lines, "tenth 10", name));
        assert!(0.0 <= p50 && p50 <= p99, "{p50}, {p99}");
        assert!(figure(&lines, "tenth 10", "table and indexes") > 0.0);
        let most = (2.0 * 500.0 + 1.0) / 500.0;
        assert!((0.0..=most).contains(&figure(&lines, "last", "backlog")));
    })
    .await;
    assert!(fs::read_to_string(plot).unwrap().contains("p99 of each second"));
}

#[tokio::test]
async fn a_lock_from_hand_to_hand() {
    let words = ["lock", "--waiters", "3", "--handovers", "60", "--idle-seconds", "1"];
    let has_ratios = |lines: &[serde_json::Value], references: &[&str]| {
        for reference in references {
            assert!(figure(lines, &format!("clients / {reference}, 3 waiters"), "rate") > 0.0);
        }
        let turns = figure(lines, "clients, 3 waiters", "turns");
        assert!(turns > 0.0 && turns <= 1.0, "{turns}");
        assert!(figure(lines, "waiters that wait", "statements") >= 0.0);
    };
    on_postgres("lock", async |url| {
        has_ratios(&figures(url, &words), &["pg_advisory_lock", "row lock"]);
    })
    .await;
    on_mariadb("lock", async |url| has_ratios(&figures(url, &words), &["GET_LOCK", "row lock"])).await;
    has_ratios(&figures(&File::new("lock").url(), &words), &["BEGIN IMMEDIATE"]);
}

#[tokio::test]
async fn the_memory_of_an_instance() {
    on_postgres("memory", async |url| {
        let lines = figures(url, &["memory", "--records", "2000", "--keys", "100"]);
        let [before, most] =
            ["resident before", "most resident"].map(|name| figure(&lines, "instance", name));
        assert!(1.0 < before && before <= most && most < 500.0, "{before}, {most}");
    })
    .await;
}

#[tokio::test]
async fn a_relay_to_kafka_and_its_memory() {
    let _shared = BROKER.read().await;
    let brokers = url("KEYLANE_TEST_KAFKA");
    let words = ["kafka", "--brokers", &brokers, "--records", "2000"];
    on_postgres("kafka", async |url| {
        let rates = figures(url, &[&words[..], &["--keys", "100,1"]].concat());
        for keys in ["100 keys", "1 keys"] {
            assert!(figure(&rates, &format!("relay / slower, {keys}"), "rate") > 0.0);
        }
        let memory = figures(url, &[&words[..], &["--memory", "--seconds", "1"]].concat());
        // The texts of its 16,000 messages alone are 7 MiB.
        let queue = figure(&memory, "queue", "resident");
        assert!(queue > 7.0, "{queue}");
        for subject in ["relay", "broker away"] {
            let [most, beside] =
                ["most resident", "beside the queue"].map(|name| figure(&memory, subject, name));
            assert!((most - beside - queue).abs() < 0.001 && most > 0.0, "{memory:#?}");
        }
        let others = figures(url, &[&words[..], &["--others"]].concat());
        assert!(figure(&others, "brokers away / handler", "rate") > 0.0);
    })
    .await;
}

#[tokio::test]
async fn an_inbox_beside_inserts_by_hand_with_and_without_kafka() {
    let _shared = BROKER.read().await;
    let brokers = url("KEYLANE_TEST_KAFKA");
    let words = ["inbox", "--messages", "500", "--connections", "2", "--batch", "50"];
    on_postgres("inbox", async |url| {
        for lines in
            [figures(url, &words), figures(url, &[&words[..], &["--kafka", "--brokers", &brokers]].concat())]
        {
            for pair in ["inbox / by hand", "inbox in batches / inbox"] {
                assert!(figure(&lines, pair, "rate") > 0.0, "{lines:#?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_cluster_in_memory() {
    let lines = figures(&File::new("scale").url(), &["scale", "--instances", "300"]);
    assert_eq!(figure(&lines, "one starts", "until settled"), 2.0);
    assert_eq!(figure(&lines, "any change", "until settled"), 3.0);
    assert!(figure(&lines, "each instance", "assign") > 0.0);
}
