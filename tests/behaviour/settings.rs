//! Settings: defaults, texts, and all problems at once with their numbers.

use std::time::Duration;

use keylane::{Backoff, BuildError, Config, OnFailure, OrderLevel, Outbox, RetryPolicy, memory::MemoryPool};

/// The field of a duration in the settings.
type Setting = fn(&mut Config) -> &mut Duration;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The problems of the default settings after a change.
fn problems(change: impl FnOnce(&mut Config)) -> Vec<String> {
    let mut config = Config::default();
    change(&mut config);
    config.validate().map_or_else(|error| error.problems, |()| Vec::new())
}

fn refused(text: &str) -> String {
    toml::from_str::<Config>(text).unwrap_err().to_string()
}

#[test]
fn the_defaults_are_good() {
    assert!(problems(|_| ()).is_empty());
    assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
}

#[test]
fn settings_are_written_as_text_and_read_back() {
    let config: Config = toml::from_str(
        r#"
        table_prefix = "billing_"
        [schedule]
        order = "strict"
        [delivery]
        poll_interval = "1m 30s"
        on_failure = "continue"
        [cluster]
        heartbeat_interval = "500ms"
        instance_name = "billing-1"
        [retry]
        backoff = { linear = { initial = "1s", increment = "2s" } }
        max_retries = 5
        never_on = ["refused"]
        [retention]
        completed = "archive"
        "#,
    )
    .unwrap();
    assert_eq!(config.delivery.poll_interval, s(90));
    assert_eq!(config.delivery.on_failure, Some(OnFailure::Continue));
    assert_eq!(config.schedule.order, OrderLevel::Strict);
    assert_eq!(config.cluster.heartbeat_interval, Duration::from_millis(500));
    assert_eq!(config.retry.backoff, Backoff::Linear { initial: s(1), increment: s(2) });
    config.validate().unwrap();
    let text = toml::to_string(&config).unwrap();
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), config);
}

#[test]
fn an_unknown_key_is_refused_by_its_name() {
    for (text, name) in [
        ("table_prefx = 'x'", "table_prefx"),
        ("[delivery]\npoll_intervall = '1s'", "poll_intervall"),
        ("[cluster]\nheartbeat = '1s'", "heartbeat"),
        ("[schedule]\nordering = 'strict'", "ordering"),
        ("[retention]\nkeep_for = '1s'", "keep_for"),
        ("[database]\ntimeout = '1s'", "timeout"),
        ("[retry]\nretries = 3", "retries"),
        ("[retry]\nbackoff = { fixed = { delay = '1s', jitter = 1 } }", "jitter"),
        ("[polling]\ninterval = '1s'", "polling"),
    ] {
        let error = refused(text);
        let told = ["unknown field", "unexpected keys"].iter().any(|words| error.contains(words));
        assert!(told && error.contains(name), "{error}");
    }
}

#[test]
fn values_of_a_wrong_form_are_refused() {
    assert!(refused("[delivery]\npoll_interval = 5").contains("poll_interval"));
    assert!(refused("[delivery]\npoll_interval = 'soon'").contains("poll_interval"));
    assert!(refused("[delivery]\nbatch_size = -1").contains("batch_size"));
    assert!(refused("[schedule]\norder = 'total'").contains("`causal`"));
}

#[test]
fn all_problems_are_told_at_once_with_their_numbers() {
    let problems = problems(|config| {
        config.table_prefix = "Outbox-".to_owned();
        config.delivery.batch_size = 0;
        config.delivery.max_in_flight = 200_000;
        config.delivery.poll_interval = Duration::ZERO;
        config.cluster.rebalance_interval = s(4);
        config.cluster.stale_instance_timeout = s(8);
        config.cluster.handover_timeout = s(20);
        config.cluster.instance_name = Some(String::new());
        config.retry.jitter = -0.5;
    });
    let expected = [
        "table_prefix \"Outbox-\" is not valid",
        "delivery.poll_interval is 0s",
        "delivery.batch_size is 0, but must be from 1 to 10000",
        "delivery.max_in_flight is 200000, but must be from 1 to 100000",
        "cluster.instance_name has 0 bytes, but must have 1 to 255",
        "retry.jitter is -0.5, but must be a share from 0 to 1",
        "cluster.stale_instance_timeout is 8s",
        "cluster.handover_timeout is 20s",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem:?} instead of {expected:?}");
    }
}

#[test]
fn a_problem_says_what_to_do() {
    let heartbeats = problems(|config| config.cluster.heartbeat_interval = s(20));
    assert_eq!(
        heartbeats,
        [
            "cluster.stale_instance_timeout is 30s: less its margin it is shorter than two heartbeats of 20s, so \
          one lost beat would stop delivery; make it three heartbeats"
        ]
    );
    let handover = problems(|config| config.delivery.handler_timeout = s(300));
    assert_eq!(
        handover,
        ["cluster.handover_timeout is 60s, but must be at least delivery.handler_timeout + \
          database.call_timeout (305s): a slow handler would get its instance evicted"]
    );
    let call = problems(|config| config.database.call_timeout = s(30));
    assert_eq!(
        call,
        ["database.call_timeout is 30s, but must be shorter than cluster.stale_instance_timeout (30s)"]
    );
    let batch = problems(|config| config.delivery.max_in_flight = 500);
    assert_eq!(batch, ["delivery.max_in_flight is 500, but must be at least delivery.batch_size (1000)"]);
    let purge = problems(|config| config.cluster.purge_instances_after = s(60));
    assert_eq!(purge.len(), 1);
    assert!(purge[0].contains("60s") && purge[0].contains("ten times"), "{purge:?}");
}

#[test]
fn no_duration_that_paces_something_is_zero() {
    let zeros = problems(|config| {
        config.schedule.route_refresh = Duration::ZERO;
        config.delivery.poll_interval = Duration::ZERO;
        config.delivery.handler_timeout = Duration::ZERO;
        config.cluster.heartbeat_interval = Duration::ZERO;
        config.cluster.stale_instance_timeout = Duration::ZERO;
        config.cluster.rebalance_interval = Duration::ZERO;
        config.retention.purge_interval = Duration::ZERO;
        config.database.call_timeout = Duration::ZERO;
        config.retry.max_delay = Duration::ZERO;
    });
    for name in [
        "schedule.route_refresh",
        "delivery.poll_interval",
        "delivery.handler_timeout",
        "cluster.heartbeat_interval",
        "cluster.stale_instance_timeout",
        "cluster.rebalance_interval",
        "retention.purge_interval",
        "database.call_timeout",
        "retry.max_delay",
    ] {
        let told = zeros.iter().filter(|problem| problem.starts_with(&format!("{name} is 0s"))).count();
        assert_eq!(told, 1, "{name}: {zeros:#?}");
    }
}

#[test]
fn names_that_could_carry_sql_are_refused() {
    for name in ["", "Outbox_", "a b", "a;drop table x", "a\"b", "1st_", "\u{fc}ber", "a.b", "a'--", "x'\0"] {
        let told = problems(|config| {
            config.table_prefix = name.to_owned();
            config.schema = Some(name.to_owned());
        });
        assert!(told[0].starts_with("table_prefix"), "{name:?}: {told:?}");
        let told = problems(|config| config.schema = Some(name.to_owned()));
        assert!(told[0].starts_with(&format!("schema {name:?} is not valid")), "{name:?}: {told:?}");
    }
    assert!(problems(|config| config.table_prefix = "x".repeat(33))[0].contains("at most 32"));
    assert!(problems(|config| config.schema = Some("x".repeat(41)))[0].contains("at most 40"));
}

/// The largest number is often written to mean "for ever".
#[test]
fn durations_without_end_are_refused_and_overflow_nothing() {
    let set: [(&str, Setting); 12] = [
        ("schedule.route_refresh", |config| &mut config.schedule.route_refresh),
        ("delivery.poll_interval", |config| &mut config.delivery.poll_interval),
        ("delivery.handler_timeout", |config| &mut config.delivery.handler_timeout),
        ("cluster.heartbeat_interval", |config| &mut config.cluster.heartbeat_interval),
        ("cluster.stale_instance_timeout", |config| &mut config.cluster.stale_instance_timeout),
        ("cluster.rebalance_interval", |config| &mut config.cluster.rebalance_interval),
        ("cluster.graceful_shutdown_timeout", |config| &mut config.cluster.graceful_shutdown_timeout),
        ("cluster.handover_timeout", |config| &mut config.cluster.handover_timeout),
        ("cluster.purge_instances_after", |config| &mut config.cluster.purge_instances_after),
        ("retention.purge_interval", |config| &mut config.retention.purge_interval),
        ("database.call_timeout", |config| &mut config.database.call_timeout),
        ("retry.max_delay", |config| &mut config.retry.max_delay),
    ];
    for (name, field) in set {
        for long in [Duration::MAX, s(u64::MAX / 2)] {
            let told = problems(|config| *field(config) = long);
            let named = told.iter().any(|problem| problem.starts_with(&format!("{name} is ")));
            assert!(named && told.iter().any(|problem| problem.contains("ten years")), "{name}: {told:#?}");
        }
    }
}

#[tokio::test]
async fn settings_that_are_not_good_build_nothing() {
    let config = Config::default().retry(RetryPolicy::default().jitter(7.0));
    let Err(error) = Outbox::builder(MemoryPool::new()).config(config).build().await else {
        panic!("it was built");
    };
    assert!(matches!(error, BuildError::Config(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "configuration has 1 problem(s): retry.jitter is 7, but must be a share from 0 to 1"
    );
}
