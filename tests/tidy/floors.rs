//! Down only: a file imports lower floors, its own folder, and the edges listed here.

use crate::{files, report, without_tests};

/// Each module with its floor.
const FLOORS: &[(&str, u8)] = &[
    ("partition", 0),
    ("record", 0),
    ("instance", 0),
    ("telemetry", 0),
    ("clock", 0),
    ("codec", 0),
    ("duration", 0),
    ("encoding", 0),
    ("name", 0),
    ("naming", 0),
    ("unwind", 0),
    ("setters", 0),
    ("statement", 0),
    ("rules", 1),
    ("targets", 1),
    ("vitals", 1),
    ("store", 2),
    ("handler", 2),
    ("database", 2),
    ("ownership", 2),
    ("wake", 1),
    ("commit_wake", 1),
    ("notifications", 3),
    ("health", 3),
    ("ticker", 3),
    ("membership", 3),
    ("store::sql", 3),
    ("store::memory", 3),
    ("memory", 3),
    ("cluster", 4),
    ("delivery", 4),
    ("config", 5),
    ("schedule", 5),
    ("sql", 5),
    ("admin", 5),
    ("builder", 5),
    ("claiming", 5),
    ("parts", 5),
    ("outbox", 5),
    ("patience", 5),
    ("readiness", 5),
    ("running", 5),
    ("runtime", 5),
    ("inner", 6),
    ("lib", 6),
];

/// Edges within one floor, each with its reason. A new one is argued in the commit that adds it.
const SIDEWAYS: &[(&str, &str, &str)] = &[
    ("codec", "name", "a media type is a `Name`"),
    ("codec", "record", "the codec encodes and decodes the events that `record` declares"),
    ("codec", "encoding", "the codec carries out the encoding that an event has chosen"),
    ("record", "encoding", "an event names its encoding"),
    ("record", "partition", "a record lies in a partition"),
    ("record", "instance", "a delivery has the generation of its partition"),
    ("record", "name", "keys, handlers and types are `Name`s"),
    ("instance", "partition", "a view lists the claim of each partition"),
    ("telemetry", "clock", "the log limits its lines by the clock"),
    ("telemetry", "record", "signals name records and lanes"),
    ("telemetry", "partition", "signals name partitions"),
    ("telemetry", "instance", "signals name instances"),
    ("telemetry", "name", "signals name handlers"),
    ("telemetry", "unwind", "the panic of an observer is caught"),
    ("vitals", "targets", "the waits for targets are signs of health"),
    ("store", "handler", "the store runs transactional handlers in its transactions"),
    ("handler", "store", "a handler can write dead letters to their table"),
    ("handler", "database", "a transactional handler names its connection"),
    ("database", "handler", "a database converts transactional handlers to its form"),
    ("database", "store", "a database creates its store"),
    ("memory", "store::memory", "the public module shows the store in memory"),
    ("admin", "config", "a purge needs the settings of retention"),
    ("builder", "config", "the builder checks the settings"),
    ("builder", "outbox", "the builder builds the outbox"),
    ("builder", "schedule", "the builder makes the half that schedules"),
    ("builder", "parts", "the builder makes the parts of the workers"),
    ("parts", "config", "the workers have the settings"),
    ("parts", "schedule", "workers and producers share the list of handlers"),
    ("parts", "running", "the means to stop the workers are made with the parts"),
    ("outbox", "admin", "the outbox hands out its administration"),
    ("outbox", "config", "the outbox shows its settings"),
    ("outbox", "parts", "the outbox holds the parts until `start`"),
    ("outbox", "schedule", "the outbox schedules"),
    ("outbox", "running", "`start` returns the running workers"),
    ("outbox", "claiming", "`start` begins the runtime of claimed mode"),
    ("outbox", "readiness", "`start` checks the tables first"),
    ("claiming", "parts", "the runtime of claimed mode works with the parts"),
    ("claiming", "patience", "it pauses while the database is unreachable"),
    ("claiming", "readiness", "it checks the tables first"),
    ("claiming", "running", "it returns the running workers"),
    ("readiness", "parts", "the checks read the parts"),
    ("readiness", "patience", "the checks pause while the database is unreachable"),
    ("runtime", "readiness", "it checks the tables first"),
    ("outbox", "runtime", "`start` begins the runtime of partitioned mode"),
    ("sql", "config", "the statements depend on the order level"),
    ("sql", "outbox", "the statements are a call of the outbox"),
    ("sql", "schedule", "the statements are those of `schedule`"),
    ("runtime", "parts", "the runtime of partitioned mode works with the parts"),
    ("runtime", "patience", "it pauses while the database is unreachable"),
    ("runtime", "running", "it returns the running workers"),
    ("schedule", "config", "`schedule` keeps the limits of its settings"),
];

#[test]
fn imports_go_down_only() {
    let mut problems = Vec::new();
    for (file, text) in files("src", "rs") {
        let from = module_of(&file);
        for to in imports(without_tests(&text)) {
            let Some(problem) = edge_problem(&from, &to) else { continue };
            problems.push(format!("{file}: {from} imports {to}: {problem}"));
        }
    }
    problems.dedup();
    report(problems);
}

#[test]
fn every_edge_within_a_floor_is_still_needed() {
    let mut edges = Vec::new();
    for (file, text) in files("src", "rs") {
        let from = module_of(&file);
        edges.extend(imports(without_tests(&text)).into_iter().map(|to| (from.clone(), to)));
    }
    let is_used = |from: &str, to: &str| edges.iter().any(|(one, other)| one == from && other == to);
    let unused = SIDEWAYS.iter().filter(|(from, to, _)| !is_used(from, to));
    report(
        unused.map(|(from, to, _)| format!("{from} imports {to} no more: take it off the list")).collect(),
    );
}

/// The page of the architecture names each module on its floor. The last floor is the root of the crate.
#[test]
fn the_page_of_the_architecture_has_the_floors() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/architecture.md")).unwrap();
    let mut problems = Vec::new();
    for (module, floor) in FLOORS.iter().filter(|(_, floor)| *floor < 6) {
        let row = page.lines().find(|line| line.starts_with(&format!("| {floor} "))).unwrap_or_default();
        let cell = row.split('|').nth(2).unwrap_or_default();
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        let path = module.replace("::", "/");
        let is_it = |name: &&str| name.trim_end_matches(['/', '*']).trim_end_matches("/mod") == path;
        if !names.iter().any(is_it) {
            problems.push(format!("docs/architecture.md does not name `{path}` on floor {floor}: {row}"));
        }
    }
    report(problems);
}

fn edge_problem(from: &str, to: &str) -> Option<&'static str> {
    let (Some(above), Some(below)) = (floor(from), floor(to)) else {
        return Some("a module without a floor; give it one in tests/tidy/floors.rs");
    };
    let own_folder = from == to || from.starts_with(&format!("{to}::"));
    let listed = SIDEWAYS.iter().any(|(above, below, _)| (*above, *below) == (from, to));
    match above.cmp(&below) {
        _ if own_folder || listed => None,
        std::cmp::Ordering::Greater => None,
        std::cmp::Ordering::Equal => Some("sideways, and the edge is not listed"),
        std::cmp::Ordering::Less => Some("upwards"),
    }
}

fn floor(module: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

/// `src/store/sql/link.rs` is `store::sql`, `src/delivery/run.rs` is `delivery`.
fn module_of(file: &str) -> String {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["store", inner @ ("sql" | "memory"), ..] => format!("store::{inner}"),
        [first, ..] => (*first).to_owned(),
        [] => String::new(),
    }
}

/// The modules that a text names after `crate::`.
fn imports(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // Macros of the crate reach it by `$crate`; `keylane_crate::` and the like are other words.
        if code[..at].ends_with(|c: char| c == '$' || c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(first_segments(group)),
            None => found.push(segment(rest)),
        }
    }
    let known = |name: &String| name.starts_with(|c: char| c.is_lowercase());
    found.into_iter().filter(known).collect()
}

/// `store::sql::x` is `store::sql`, `store::FenceRow` is `store`.
fn segment(path: &str) -> String {
    let word =
        |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned();
    let first = word(path);
    let second = path.strip_prefix(&format!("{first}::")).map(word).unwrap_or_default();
    match (first.as_str(), second.as_str()) {
        ("store", "sql" | "memory") => format!("store::{second}"),
        _ => first,
    }
}

/// The first segments of a `{…}` group, up to its closing brace.
fn first_segments(group: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                let item = group[start..at].trim();
                if !item.is_empty() {
                    found.push(segment(item));
                }
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

#[test]
fn the_scanner_sees_what_it_should() {
    let text = "use crate::{\n    clock::Clock,\n    store::{FenceRow, sql::X},\n};\nuse crate::store::sql::link;\n// crate::no\n";
    assert_eq!(imports(text), ["clock", "store", "store::sql"]);
    assert_eq!(edge_problem("rules", "delivery"), Some("upwards"));
    assert_eq!(edge_problem("cluster", "delivery"), Some("sideways, and the edge is not listed"));
    assert_eq!(edge_problem("delivery", "store::sql"), None, "lower floors are open");
}

#[test]
fn the_wings_see_neither_backends_nor_the_front() {
    let mut problems = Vec::new();
    for wing in ["cluster", "delivery"] {
        // The fixtures of the unit tests are no part of a wing.
        let of_wing = files(&format!("src/{wing}"), "rs").into_iter();
        for (file, text) in of_wing.filter(|(file, _)| !file.ends_with("/fixtures.rs")) {
            let bad = [
                "store::sql",
                "store::memory",
                "memory",
                "config",
                "inner",
                "parts",
                "outbox",
                "runtime",
                "builder",
                "schedule",
            ];
            for to in imports(without_tests(&text)).iter().filter(|to| bad.contains(&to.as_str())) {
                problems.push(format!("{file}: a wing imports {to}"));
            }
            if without_tests(&text).contains("sqlx") {
                problems.push(format!("{file}: a wing knows of sqlx"));
            }
        }
    }
    report(problems);
}
