//! No modules import each other, neither siblings nor a folder and its files, nor on a way through others. What two
//! modules need stands in a file below both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{files, report, without_tests};

/// Circles that are allowed, each with its reason.
const CIRCLES: &[(&str, &str, &str)] = &[(
    "database",
    "handler::calls",
    "a database runs handlers in its transactions, and the form of such a handler names the connection",
)];

/// A module with its imports and its re-exports.
struct Module {
    imports: Vec<Vec<String>>,
    passes_on: Vec<Vec<String>>,
}

type Modules = BTreeMap<Vec<String>, Module>;

type Edges = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

#[test]
fn no_module_imports_itself_on_any_way() {
    let sources = files("src", "rs");
    let modules: Modules = sources.iter().map(|(file, text)| (path_of(file), read(text))).collect();
    let mut edges: Edges = modules
        .iter()
        .map(|(path, module)| (path.clone(), targets(path, &module.imports, &modules)))
        .collect();
    let path = |name: &str| name.split("::").map(str::to_owned).collect::<Vec<_>>();
    let mut problems = Vec::new();
    for (a, b, _) in CIRCLES {
        let is_back = edges[&path(b)].contains(&path(a));
        if !edges.get_mut(&path(a)).is_some_and(|below| below.remove(&path(b))) || !is_back {
            problems.push(format!("{a} and {b} are no circle any more: take them off the list"));
        }
    }
    for circle in circles(&edges) {
        problems.push(format!("{} import each other", circle.join(", ")));
    }
    report(problems);
}

/// The shortest circle through each module, each circle once.
fn circles(edges: &Edges) -> BTreeSet<Vec<String>> {
    let shortest = |start: &Vec<String>| {
        let (mut ways, mut known) = (VecDeque::from([vec![start]]), BTreeSet::new());
        while let Some(way) = ways.pop_front() {
            for next in edges.get(way[way.len() - 1]).into_iter().flatten() {
                if next == start {
                    let mut circle: Vec<String> = way.iter().map(|module| module.join("::")).collect();
                    circle.sort_unstable();
                    return Some(circle);
                }
                if known.insert(next) {
                    ways.push_back(way.iter().copied().chain([next]).collect());
                }
            }
        }
        None
    };
    edges.keys().filter_map(shortest).collect()
}

/// `src/store/sql/link.rs` is `[store, sql, link]`, `src/store/mod.rs` is `[store]`.
fn path_of(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

fn read(text: &str) -> Module {
    let mut module = Module { imports: Vec::new(), passes_on: Vec::new() };
    let mut code = String::new();
    let mut lines = without_tests(text).lines().filter(|line| !line.trim_start().starts_with("//"));
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        let is_public = start.starts_with("pub use ") || start.starts_with("pub(crate) use ");
        let Some((_, first)) = start.split_once("use ").filter(|_| is_public || start.starts_with("use "))
        else {
            code.push_str(line);
            code.push('\n');
            continue;
        };
        let mut tree = first.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().unwrap_or(";"));
        }
        let tree = tree.split(';').next().unwrap_or_default();
        spread(tree, &[], if is_public { &mut module.passes_on } else { &mut module.imports });
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            if code[..at].ends_with(|c| is_word(c) || c == '$' || c == ':') {
                continue;
            }
            let end = code[at..].find(|c| !is_word(c) && c != ':').map_or(code.len(), |end| at + end);
            module.imports.push(code[at..end].split("::").map(str::to_owned).collect());
        }
    }
    module
}

/// Each path of a `use` tree.
fn spread(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let (head, group) = match tree.split_once('{') {
        Some((head, rest)) => (head, rest.rsplit_once('}').map(|(group, _)| group)),
        None => (tree.split(" as ").next().unwrap_or_default(), None),
    };
    let mut path = before.to_vec();
    path.extend(head.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    let Some(group) = group else { return found.push(path) };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[start..at].trim().is_empty() {
                    spread(&group[start..at], &path, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The modules that define the names at these paths, found through the modules that re-export the names.
fn targets(from: &[String], paths: &[Vec<String>], modules: &Modules) -> BTreeSet<Vec<String>> {
    let found = paths.iter().filter_map(|path| {
        let full = full(from, path, modules)?;
        let (module, rest) = longest(&full, modules)?;
        let passed = rest.first().and_then(|name| {
            let origin = modules[&module].passes_on.iter().find(|path| path.last() == Some(name))?;
            Some(longest(&self::full(&module, origin, modules)?, modules)?.0)
        });
        Some(passed.unwrap_or(module))
    });
    found.filter(|to| !to.is_empty() && to.as_slice() != from).collect()
}

/// The path from the root of the crate, if the path leads into the crate.
fn full(from: &[String], path: &[String], modules: &Modules) -> Option<Vec<String>> {
    let mut base = from.to_vec();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        child => {
            base.push(child.to_owned());
            modules.get(&base)?;
            rest = &rest[1..];
        }
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

fn longest(path: &[String], modules: &Modules) -> Option<(Vec<String>, Vec<String>)> {
    let length = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    Some((path[..length].to_vec(), path[length..].to_vec()))
}

#[test]
fn the_scanner_sees_through_what_is_passed_on() {
    let sources = [
        ("src/a/mod.rs", "mod b;\npub use b::{B, C};\nuse crate::d::D;\n"),
        ("src/a/b.rs", "use super::C;\nfn f() -> crate::a::Own {}\n"),
        ("src/d.rs", "use crate::{\n    a::{B, b::X as Y},\n};\n// use crate::no;\n"),
    ];
    let modules: Modules = sources.iter().map(|(file, text)| (path_of(file), read(text))).collect();
    let seen = |name: &str| {
        let path: Vec<String> = name.split("::").map(str::to_owned).collect();
        let found = targets(&path, &modules[&path].imports, &modules);
        found.into_iter().map(|path| path.join("::")).collect::<Vec<_>>()
    };
    assert_eq!(seen("a"), ["d"]);
    assert_eq!(seen("a::b"), ["a"], "what a module has of its own is imported from it");
    assert_eq!(seen("d"), ["a::b"]);
}

#[test]
fn a_circle_through_three_modules_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let edge = |(from, to): &(&str, &str)| (module(from), BTreeSet::from([module(to)]));
    let found = |edges: &[(&str, &str)]| circles(&edges.iter().map(edge).collect());
    assert_eq!(found(&[("a", "b"), ("b", "c")]), BTreeSet::new());
    let circle = BTreeSet::from([["a", "b", "c"].map(str::to_owned).to_vec()]);
    assert_eq!(found(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]), circle);
}
