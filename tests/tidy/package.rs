//! What is published: each crate has its licences and its README, and nothing that its users do not need.

use std::{fs, path::Path, process::Command};

use crate::{files, report};

/// The most bytes of all files of a crate, unpacked.
const LIMIT: u64 = 1_700_000;

/// Each published crate and its folder.
const CRATES: &[(&str, &str)] = &[
    ("keylane", ""),
    ("keylane-macros", "crates/macros"),
    ("keylane-message", "crates/message"),
    ("keylane-kafka", "crates/sink-kafka"),
    ("keylane-sql", "crates/sql"),
    ("keylane-inbox", "crates/inbox"),
    ("keylane-lock", "crates/lock"),
    ("keylane-web", "crates/web"),
    ("keylane-consumer", "crates/consumer-kafka"),
    ("keylane-webhook", "crates/sink-webhook"),
];

/// The files that `cargo package` would put into a crate.
fn packed(name: &str) -> Vec<String> {
    let list = ["package", "--list", "--offline", "--allow-dirty", "--package", name];
    let done =
        Command::new(env!("CARGO")).args(list).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn crates_carry_their_licences_and_little_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut problems = Vec::new();
    for (name, folder) in CRATES {
        let files = packed(name);
        for needed in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"] {
            if !files.iter().any(|file| file == needed) {
                problems.push(format!("{name} lacks {needed}"));
            }
        }
        let unneeded = ["tests/", "examples/", "benches/", "crates/", "dev/", "docs/", ".ci/", ".github/"];
        for file in &files {
            if unneeded.iter().any(|folder| file.starts_with(folder)) || file.ends_with(".csv") {
                problems.push(format!("{name} carries {file}"));
            }
        }
        // Cargo writes a few files itself, which are not in the folder.
        let size = |file: &String| fs::metadata(root.join(folder).join(file)).map_or(0, |found| found.len());
        let bytes: u64 = files.iter().map(size).sum();
        if bytes > LIMIT || bytes == 0 {
            problems.push(format!("{name} has {bytes} bytes, the limit is {LIMIT}"));
        }
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            if fs::read(root.join(licence)).ok() != fs::read(root.join(folder).join(licence)).ok() {
                problems.push(format!("{name} has another {licence} than the repository"));
            }
        }
    }
    report(problems);
}

#[test]
fn a_crate_says_where_it_is_from() {
    let manifest = |folder: &str| {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("Cargo.toml"));
        toml::from_str::<toml::Value>(&text.unwrap()).unwrap()
    };
    for (name, folder) in CRATES {
        for key in ["repository", "documentation", "readme", "license", "description"] {
            assert!(manifest(folder)["package"].get(key).is_some(), "{name} lacks {key}");
        }
    }
    let version = manifest("")["workspace"]["package"]["version"].as_str().unwrap().to_owned();
    let minor = version.rsplit_once('.').unwrap().0.to_owned();
    let security = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("SECURITY.md")).unwrap();
    assert!(security.contains(&format!("({minor})")), "SECURITY.md does not name version {minor}");
}

#[test]
fn no_test_stands_where_cargo_looks_for_none() {
    let mut problems = Vec::new();
    for (name, text) in files("crates", "toml") {
        let Some(folder) = name.strip_suffix("/Cargo.toml") else { continue };
        let manifest: toml::Value = toml::from_str(&text).unwrap();
        let is_off = |target: Option<&toml::Value>, key: &str| {
            target.and_then(|target| target.get(key)) == Some(&toml::Value::Boolean(false))
        };
        let main = manifest.get("bin").and_then(|bins| bins.get(0));
        for (file, text) in files(&format!("{folder}/src"), "rs") {
            let target = if file.ends_with("/main.rs") { main } else { manifest.get("lib") };
            if is_off(target, "test") && text.contains("test]") {
                problems.push(format!("{file} has a test, and {name} says test = false"));
            }
            if is_off(manifest.get("lib"), "doctest") && text.contains("/ ```") {
                problems.push(format!("{file} has an example, and {name} says doctest = false"));
            }
        }
    }
    report(problems);
}

#[test]
fn the_command_reaches_servers_that_want_tls_or_passwords() {
    let command = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/cli/Cargo.toml");
    let manifest: toml::Value = toml::from_str(&fs::read_to_string(command).unwrap()).unwrap();
    assert!(names(&manifest["features"]["default"]).contains(&"tls"), "TLS must be asked for");
    let mut has = names(&manifest["dependencies"]["keylane"]["features"]);
    has.extend(names(&manifest["features"]["tls"]).iter().filter_map(|name| name.strip_prefix("keylane/")));
    for feature in ["postgres", "mysql", "sqlite", "tls-rustls", "mysql-rsa"] {
        assert!(has.contains(&feature), "the command lacks {feature}");
    }
}

fn names(list: &toml::Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(toml::Value::as_str).collect()
}
