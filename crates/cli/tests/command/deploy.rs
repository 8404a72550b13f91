//! The files in `deploy/`, by what can check them here: the command itself, a parser, systemd.

use std::{
    collections::BTreeMap,
    env, fs,
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use keylane::Config;
use yaml_rust2::{Yaml, YamlLoader};

use crate::keylane::File;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// The manifests by their kind.
fn manifests() -> BTreeMap<String, Yaml> {
    let all = YamlLoader::load_from_str(&text("kubernetes/relay.yaml")).unwrap();
    all.into_iter().map(|manifest| (manifest["kind"].as_str().unwrap().to_owned(), manifest)).collect()
}

fn container(manifest: &Yaml) -> &Yaml {
    &manifest["spec"]["template"]["spec"]["containers"][0]
}

/// How long a stop takes at most with the settings of a file: a stop gives up on a database that is away after two
/// calls.
fn longest_stop(settings: &str) -> Duration {
    let mut table: toml::Table = toml::from_str(settings).unwrap();
    table.remove("relay");
    let config: Config = table.try_into().unwrap();
    config.cluster.graceful_shutdown_timeout + config.database.call_timeout * 2
}

/// `keylane relay --check` with everything away.
fn check(settings: &str) -> String {
    let folder = File::new("deploy");
    let file = folder.0.join("keylane.toml");
    // No server answers, and the check does not wait for one.
    fs::write(&file, settings.replace("kafka:9092", "127.0.0.1:1")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylane"));
    command.arg("--config").arg(file).args(["relay", "--check"]).env_remove("DATABASE_URL");
    let secrets = [
        ("RELAY_DATABASE_URL", "postgres://relay@127.0.0.1:1/shop"),
        ("KAFKA_BROKERS", "127.0.0.1:1"),
        ("KAFKA_PASSWORD", "hunter2"),
    ];
    let Output { stdout, .. } = command.envs(secrets).output().unwrap();
    String::from_utf8(stdout).unwrap()
}

#[test]
fn the_command_takes_the_settings() {
    let of_manifest = manifests()["ConfigMap"]["data"]["keylane.toml"].as_str().unwrap().to_owned();
    let mut all = vec![of_manifest];
    // Without the feature for TLS, the client of Kafka does not know these properties.
    if cfg!(feature = "kafka-ssl") {
        all.push(text("keylane.toml"));
    }
    for settings in all {
        let said = check(&settings);
        for subject in ["settings", "routes"] {
            assert!(said.contains(&format!("ok    {subject}")), "{said}");
        }
    }
}

#[test]
fn supervisors_wait_longer_than_a_stop_takes() {
    let manifests = manifests();
    let grace = manifests["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_i64();
    let grace = Duration::from_secs(grace.unwrap().try_into().unwrap());
    let settings = manifests["ConfigMap"]["data"]["keylane.toml"].as_str().unwrap();
    assert!(grace > longest_stop(settings), "{grace:?}");

    let unit = text("keylane-relay.service");
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    let stop = Duration::from_secs(stop.parse().unwrap());
    assert!(stop > longest_stop(&text("keylane.toml")), "{stop:?}");
}

#[test]
fn the_manifests_belong_together() {
    let manifests = manifests();
    let (deployment, config) = (&manifests["Deployment"], &manifests["ConfigMap"]);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert!(labels.as_hash().is_some_and(|labels| !labels.is_empty()));
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], labels);
    let kept = manifests["PodDisruptionBudget"]["spec"]["minAvailable"].as_i64().unwrap();
    assert!(deployment["spec"]["replicas"].as_i64().unwrap() > kept, "else no node can be drained");

    let relay = container(deployment);
    let settings: toml::Table = toml::from_str(config["data"]["keylane.toml"].as_str().unwrap()).unwrap();
    let health = settings["relay"]["health"].as_str().unwrap();
    let port = relay["ports"][0]["containerPort"].as_i64().unwrap();
    assert!(health.starts_with("0.0.0.0:") && health.ends_with(&format!(":{port}")), "{health}");
    for (probe, path) in [("livenessProbe", "/health/live"), ("readinessProbe", "/health/ready")] {
        let asked = &relay[probe]["httpGet"];
        assert_eq!(asked["path"].as_str(), Some(path));
        assert_eq!(asked["port"], relay["ports"][0]["name"]);
    }
    for manifest in [deployment, &manifests["Job"]] {
        let (container, volumes) = (container(manifest), &manifest["spec"]["template"]["spec"]["volumes"]);
        assert_eq!(volumes[0]["configMap"]["name"], config["metadata"]["name"]);
        assert_eq!(container["envFrom"][0]["secretRef"]["name"], manifests["Secret"]["metadata"]["name"]);
        let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
        assert_eq!(container["args"][2].as_str(), Some(&*format!("{mounted}/keylane.toml")));
    }
    // What the image runs without arguments is what the manifest runs.
    let words = relay["args"].as_vec().unwrap().iter().map(|word| format!("{:?}", word.as_str().unwrap()));
    let run = format!("CMD [{}]", words.collect::<Vec<_>>().join(", "));
    assert!(text("Containerfile").lines().any(|line| line == run), "{run}");
}

#[test]
fn systemd_takes_the_unit() {
    // A skip must be requested, because nobody reads the output of a test that passes.
    if let Ok(reason) = env::var("KEYLANE_TEST_SYSTEMD_SKIP") {
        eprintln!("systemd is skipped: {reason}");
        return;
    }
    let folder = File::new("unit");
    let unit = folder.0.join("keylane-relay.service");
    // The test searches for the program.
    let text = text("keylane-relay.service").replace("/usr/local/bin/keylane", env!("CARGO_BIN_EXE_keylane"));
    fs::write(&unit, text).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&unit).output();
    let verified =
        verified.expect("systemd-analyze does not run; set KEYLANE_TEST_SYSTEMD_SKIP=REASON to do without");
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("keylane-relay")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
}
