//! What `keylane bench` measures of services and instances that live: plausible figures of each.

use std::fs;

use super::keylane::{File, bench, figure, figures, on_postgres};

/// Half of the usual time between two polls, in milliseconds.
const HALF_A_POLL: f64 = 1_000.0;

#[tokio::test]
async fn scheduling_beside_the_same_inserts_by_hand() {
    let words = ["schedule", "--seconds", "0.2", "--keys", "100"];
    let file = File::new("schedule");
    on_postgres("schedule", async |url| {
        let lines = figures(url, &words);
        for setting in ["1 connection", "8 connections"] {
            for pair in ["library / by hand", "library / business", "by hand / business"] {
                let ratio = figure(&lines, &format!("{pair}, {setting}"), "rate");
                // A run of 0.2 s on a busy machine says no more.
                assert!(ratio > 0.0 && ratio.is_finite(), "{pair}: {ratio}");
            }
            assert!(figure(&lines, &format!("library, {setting}"), "rate") > 0.0);
        }
        assert!(figure(&lines, "library / by hand, 1000 a transaction", "rate") > 0.0);
    })
    .await;
    let lines = figures(&file.url(), &[&words[..], &["--relaxed"]].concat());
    assert!(figure(&lines, "library / by hand, 1 connection", "rate") > 0.0);
    assert!(figure(&lines, "library / by hand, 1000 a transaction", "rate") > 0.0);
}

#[tokio::test]
async fn waits_of_events_that_arrive_by_the_clock() {
    let file = File::new("latency");
    let plot = file.0.join("latency.svg");
    let words = ["latency", "--rates", "50,200", "--seconds", "0.5", "--plot", plot.to_str().unwrap()];
    on_postgres("latency", async |url| {
        for url in [url, &file.url()] {
            let lines = figures(url, &words);
            for rate in ["50/s", "200/s"] {
                let of = |way: &str, name| figure(&lines, &format!("{way} at {rate}"), name);
                let quantiles = ["p50", "p90", "p99", "max"].map(|name| of("library", name));
                assert!(quantiles.is_sorted(), "{quantiles:?}");
                assert!(of("library", "p50") < HALF_A_POLL, "who is told does not wait for a poll");
                if url.starts_with("postgres") {
                    assert!(of("notified", "p50") < HALF_A_POLL, "nor does who is notified");
                }
                assert!(of("library / polling", "p50") > 0.0, "polls follow the traffic, too");
                assert!(of("library", "arrivals") > 1.0);
            }
            let drawn = fs::read_to_string(&plot).unwrap();
            assert!(drawn.starts_with("<svg") && drawn.contains("polling at 50/s"), "{drawn}");
        }
    })
    .await;
}

#[tokio::test]
async fn waits_of_events_of_another_process() {
    let file = File::new("elsewhere");
    on_postgres("elsewhere", async |url| {
        for url in [url, &file.url()] {
            let lines = figures(url, &["latency", "--other-process", "--rates", "50", "--seconds", "1"]);
            let of = |name| figure(&lines, "other process at 50/s", name);
            let quantiles = ["p50", "p90", "p99", "max"].map(of);
            assert!(quantiles.is_sorted() && of("arrivals") > 1.0, "{quantiles:?}");
            assert!(quantiles[0] < HALF_A_POLL, "{quantiles:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_instance_with_nothing_to_do() {
    on_postgres("idle", async |url| {
        let lines = figures(url, &["idle", "--seconds", "5"]);
        let connections = figure(&lines, "library", "connections");
        assert!((1.0..=4.0).contains(&connections), "{connections}");
        assert_eq!(figure(&lines, "loop", "connections"), 1.0);
        let [all, beyond] =
            ["statements", "statements beyond polls"].map(|name| figure(&lines, "library", name));
        assert!(beyond < all, "what is due and what is pending, every two seconds: {beyond} of {all}");
    })
    .await;
}

#[test]
fn several_instances_with_nothing_to_do() {
    let file = File::new("idle");
    let lines = figures(&file.url(), &["idle", "--seconds", "1", "--instances", "2"]);
    let processor = figure(&lines, "library", "processor");
    assert!(processor > 0.0 && processor < 50.0, "{processor}");
}

#[tokio::test]
async fn starts_handovers_and_crashes() {
    let file = File::new("takeover");
    on_postgres("takeover", async |url| {
        for url in [url, &file.url()] {
            let lines = figures(url, &["takeover"]);
            for (subject, name) in
                [("start", "first record"), ("handover", "all taken over"), ("calm", "longest wait")]
            {
                let millis = figure(&lines, subject, name);
                assert!((0.0..20_000.0).contains(&millis), "{subject}: {millis}");
            }
            // There is no lower limit: on a busy machine the last beat may be seconds older than the kill.
            let crash = figure(&lines, "crash", "all taken over");
            assert!((0.0..2.0 * figure(&lines, "bound", "all taken over")).contains(&crash), "{crash}");
            assert!(figure(&lines, "crash", "first record") > 0.0);
        }
    })
    .await;
}

#[test]
fn a_rate_that_is_none_is_refused() {
    for rate in ["0", "-1", "inf", "many"] {
        let output = bench(&File::new("rate").url(), &["latency", &format!("--rates={rate}")]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && err.contains("a rate is a positive number"), "{err}");
    }
}
