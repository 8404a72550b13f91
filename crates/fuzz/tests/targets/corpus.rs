//! The seeds of a target: a file for each.

use std::{fs, path::Path};

/// The largest seed, in bytes: seeds are for people, too.
const LARGEST: usize = 4096;

/// Names and contents, by the names.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let input = fs::read(entry.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(input.len() <= LARGEST, "{target}/{name} has {} bytes, the limit is {LARGEST}", input.len());
        (name, input)
    };
    let mut seeds: Vec<_> = entries.map(|entry| read(entry.expect("a file"))).collect();
    seeds.sort();
    assert!(seeds.len() >= 3, "{target} has only {} seeds", seeds.len());
    seeds
}
