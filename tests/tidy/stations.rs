//! The delivery wing is stations, and a dispatcher for each mode that knows those of the mode: the essay in
//! `src/delivery/mod.rs` says so, and this proves it.

use std::collections::BTreeMap;

use crate::{files, report, without_tests};

const STATIONS: &[&str] = &["fetch", "lanes", "execute", "settle", "claims"];
/// The dispatcher of each mode, with the stations that it knows.
const DISPATCHERS: &[(&str, &[&str])] =
    &[("dispatcher.rs", &["fetch", "lanes", "execute", "settle"]), ("claimer.rs", &["claims", "execute"])];
/// Types that carry arguments or results, so that their fields do not change after they are made.
const CARRIERS: &[(&str, &str)] = &[
    ("Answer", "the facts of an answered fetch"),
    ("Held", "a claimed record, which a new claim replaces as a whole"),
    ("ExecContext", "what all attempts of an instance share"),
    ("ExecutorSetup", "the arguments of a constructor"),
    ("FetchBudget", "the result of the budget"),
    ("FetchRequest", "the arguments of one fetch, which owns them"),
    ("FetchResult", "the result of one fetch"),
    ("Name", "a borrowed key of the table of lanes"),
    ("PartRecord", "a record of one transaction, built for that transaction"),
    ("Refused", "a refused write and its next time, which a new try replaces as a whole"),
    ("Wanted", "the arguments of one decision"),
    ("Written", "the result of one write"),
];

/// The files of the wing without their tests, and the station of each.
fn wing() -> Vec<(String, Option<&'static str>, String)> {
    let station = |file: &str| {
        let folder = file.trim_start_matches("src/delivery/").split('/').next().unwrap_or_default();
        STATIONS.iter().find(|station| **station == folder).copied()
    };
    let product = files("src/delivery", "rs").into_iter();
    let product = product.filter(|(file, _)| {
        !["/station/", "/tests/", "/tests.rs", "/fixtures.rs"].iter().any(|of| file.contains(of))
    });
    product.map(|(file, text)| (file.clone(), station(&file), without_tests(&text).to_owned())).collect()
}

/// The code of a text without its comments.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn names_station(text: &str, station: &str) -> bool {
    let code = code(text);
    code.match_indices(&format!("{station}::")).any(|(at, _)| {
        let before = &code[..at];
        // A path of the wing: not a part of another word, nor of another module of that name.
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            && (!before.ends_with("::") || before.ends_with("delivery::") || before.ends_with("super::"))
    })
}

#[test]
fn the_dispatchers_alone_know_the_stations() {
    let mut problems = Vec::new();
    let known = |file: &str| {
        let name = file.trim_start_matches("src/delivery/");
        DISPATCHERS.iter().find(|(dispatcher, _)| *dispatcher == name).map(|(_, known)| *known)
    };
    for (file, own, text) in wing() {
        for station in STATIONS.iter().filter(|station| Some(**station) != own) {
            match (known(&file).is_some_and(|known| known.contains(station)), names_station(&text, station)) {
                (false, true) => problems.push(format!("{file} names the station {station}")),
                (true, false) => {
                    problems.push(format!("{file} does not name {station}: does this test still see it?"));
                }
                _ => {}
            }
        }
    }
    report(problems);
}

/// The fields in a text: the struct, the field, and whether a comment stands before it.
fn fields(text: &str) -> Vec<(String, String, bool)> {
    let mut found = Vec::new();
    let mut within: Option<String> = None;
    let mut documented = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some((_, rest)) = line.split_once("struct ").filter(|(before, _)| !before.contains("//")) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            within = line.ends_with('{').then_some(name);
        } else if line == "}" {
            within = None;
        } else if let Some(name) = &within {
            let is_field = line.starts_with("    ") && !line.starts_with("     ") && trimmed.contains(": ");
            if is_field && !trimmed.starts_with("//") {
                found.push((name.clone(), trimmed.to_owned(), documented));
            }
        }
        documented = trimmed.starts_with("///");
    }
    found
}

#[test]
fn the_state_of_a_station_is_its_own() {
    let mut problems = Vec::new();
    for (file, station, text) in wing() {
        for (name, field, documented) in fields(&text) {
            let is_state =
                ["Planner", "Lanes", "Executor", "SettleQueue", "Settler", "Claims"].contains(&&*name);
            if station.is_some() && is_state && field.starts_with("pub") {
                problems.push(format!("{file}: {name} shows its field {field:?}"));
            }
            let carries = CARRIERS.iter().any(|(carrier, _)| *carrier == name);
            if !documented && !carries && station.is_some() {
                problems.push(format!(
                    "{file}: nothing says who changes the field {field:?} of {name}, and when"
                ));
            }
        }
    }
    report(problems);
}

#[test]
fn every_carrier_is_still_there() {
    let wing = wing();
    let stands = |name: &str| wing.iter().any(|(.., text)| text.contains(&format!("struct {name}")));
    let gone = CARRIERS.iter().filter(|(name, _)| !stands(name));
    report(gone.map(|(name, reason)| format!("{name} is gone ({reason}): take it off the list")).collect());
}

#[test]
fn the_impls_of_a_type_stand_in_one_file() {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, _, text) in wing() {
        for line in text.lines().filter(|line| line.starts_with("impl")) {
            let target = line.rsplit(" for ").next().unwrap_or(line).trim_start_matches("impl");
            let target = target.trim_start_matches("<'a>").trim_start_matches("<T>").trim_start();
            let name: String = target.chars().take_while(|c| c.is_alphanumeric()).collect();
            let of = homes.entry(name).or_default();
            if !of.contains(&file) {
                of.push(file.clone());
            }
        }
    }
    let split = homes.into_iter().filter(|(name, of)| of.len() > 1 && !name.is_empty());
    report(split.map(|(name, of)| format!("the impls of {name} stand in {}", of.join(", "))).collect());
}

#[test]
fn the_users_code_is_called_in_one_place() {
    let callers = wing().into_iter().filter(|(.., text)| code(text).contains("guarded("));
    let callers: Vec<String> = callers.map(|(file, ..)| file).collect();
    assert_eq!(callers, ["src/delivery/execute/call.rs"]);
}

#[test]
fn the_stations_have_neither_async_nor_clock_but_at_their_edges() {
    // The executor, the settler and the writer are tasks, and the query calls the store.
    let edges = ["execute/", "settle/settler.rs", "claims/writer.rs", "fetch/query.rs"];
    let mut problems = Vec::new();
    for (file, _, text) in wing().into_iter().filter(|(_, station, _)| station.is_some()) {
        if edges.iter().any(|edge| file.trim_start_matches("src/delivery/").starts_with(edge)) {
            continue;
        }
        for word in ["async ", ".await", "Instant::now", "tokio::spawn", "dyn Store"] {
            if code(&text).contains(word) {
                problems.push(format!("{file}: {word:?}"));
            }
        }
    }
    report(problems);
}
