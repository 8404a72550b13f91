//! The ledger: what handlers did, written by each process to a file of its own that survives a kill,
//! and the verdict over all of them. It knows nothing of the library.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::Mutex,
};

use serde::{Deserialize, Serialize};

/// One line: a handler call began or ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The key.
    pub key: u32,
    /// The place in the key.
    pub step: u32,
    /// Whether the call ended (with success).
    pub end: bool,
    /// Nanoseconds of the machine's clock since boot: comparable between processes.
    pub at: u64,
}

/// Nanoseconds since boot.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The ledger of one process.
#[derive(Debug)]
pub struct Ledger(Mutex<File>);

impl Ledger {
    /// Opens a file to append to.
    ///
    /// # Errors
    /// As the file system says.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(|file| Self(Mutex::new(file)))
    }

    /// Appends one line in one write.
    ///
    /// # Errors
    /// As the file system says.
    pub fn write(&self, key: u32, step: u32, end: bool) -> std::io::Result<()> {
        let mut text = serde_json::to_string(&Line { key, step, end, at: now() })?;
        text.push('\n');
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(text.as_bytes())
    }
}

/// A handler call as found in the ledgers; `ended` is missing if its process died in it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The ledger it was found in.
    pub process: usize,
    /// The place in the key.
    pub step: u32,
    /// When it began.
    pub began: u64,
    /// When it ended.
    pub ended: Option<u64>,
}

/// What the ledgers say.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Scheduled steps that no call has finished.
    pub lost: Vec<(u32, u32)>,
    /// Pairs of a key in which the later step was first begun before the earlier one was first
    /// finished: `(key, earlier, later)`.
    pub inversions: Vec<(u32, u32, u32)>,
    /// Steps finished more than once, with the processes that did.
    pub duplicates: Vec<(u32, u32, Vec<usize>)>,
    /// Steps finished at least once.
    pub delivered: usize,
}

/// All calls in these ledgers, by key.
///
/// # Errors
/// As the file system says. A last line cut short by a kill is left out.
pub fn calls(ledgers: &[PathBuf]) -> std::io::Result<BTreeMap<u32, Vec<Call>>> {
    let mut calls: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
    for (process, path) in ledgers.iter().enumerate() {
        let mut open: HashMap<(u32, u32), usize> = HashMap::new();
        for line in
            fs::read_to_string(path)?.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok())
        {
            let of_key = calls.entry(line.key).or_default();
            if !line.end {
                open.insert((line.key, line.step), of_key.len());
                of_key.push(Call { process, step: line.step, began: line.at, ended: None });
            } else if let Some(place) = open.remove(&(line.key, line.step)) {
                of_key[place].ended = Some(line.at);
            }
        }
    }
    Ok(calls)
}

/// Judges the ledgers against what was scheduled: `scheduled[key]` steps of each key.
///
/// # Errors
/// As the file system says.
pub fn judge(ledgers: &[PathBuf], scheduled: &BTreeMap<u32, u32>) -> std::io::Result<Verdict> {
    let calls = calls(ledgers)?;
    let mut verdict = Verdict::default();
    for (key, steps) in scheduled {
        let of_key = calls.get(key).map(Vec::as_slice).unwrap_or_default();
        let mut finished_before: Option<(u32, u64)> = None;
        for step in 0..*steps {
            let of_step: Vec<&Call> = of_key.iter().filter(|call| call.step == step).collect();
            let ends: Vec<&Call> = of_step.iter().copied().filter(|call| call.ended.is_some()).collect();
            let Some(first_end) = ends.iter().filter_map(|call| call.ended).min() else {
                verdict.lost.push((*key, step));
                continue;
            };
            verdict.delivered += 1;
            if ends.len() > 1 {
                verdict.duplicates.push((*key, step, ends.iter().map(|call| call.process).collect()));
            }
            let first_begin = of_step.iter().map(|call| call.began).min().unwrap_or(first_end);
            if let Some((earlier, ended)) = finished_before.filter(|(_, ended)| *ended > first_begin) {
                let _ = ended;
                verdict.inversions.push((*key, earlier, step));
            }
            finished_before = Some((step, first_end.max(finished_before.map_or(0, |(_, ended)| ended))));
        }
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(processes: &[&[(u32, bool)]], steps: u32) -> Verdict {
        let folder = std::env::temp_dir().join(format!("keylane-ledger-{}-{}", std::process::id(), now()));
        fs::create_dir_all(&folder).unwrap();
        let mut at = 0;
        let mut paths = Vec::new();
        for (process, lines) in processes.iter().enumerate() {
            let path = folder.join(process.to_string());
            let text: Vec<String> = lines
                .iter()
                .map(|(step, end)| {
                    at += 1;
                    serde_json::to_string(&Line { key: 1, step: *step, end: *end, at }).unwrap() + "\n"
                })
                .collect();
            fs::write(&path, text.concat()).unwrap();
            paths.push(path);
        }
        let verdict = judge(&paths, &BTreeMap::from([(1, steps)])).unwrap();
        fs::remove_dir_all(folder).unwrap();
        verdict
    }

    #[test]
    fn a_clean_history_is_clean() {
        let clean = verdict(&[&[(0, false), (0, true), (1, false), (1, true)]], 2);
        assert!(clean.lost.is_empty() && clean.inversions.is_empty() && clean.duplicates.is_empty());
        assert_eq!(clean.delivered, 2);
    }

    #[test]
    fn a_missing_end_is_a_loss() {
        assert_eq!(verdict(&[&[(0, false), (0, true), (1, false)]], 2).lost, [(1, 1)]);
    }

    #[test]
    fn a_later_step_begun_early_is_an_inversion() {
        let early = verdict(&[&[(0, false), (1, false), (0, true), (1, true)]], 2);
        assert_eq!(early.inversions, [(1, 0, 1)]);
    }

    #[test]
    fn a_step_finished_twice_is_a_duplicate() {
        let twice = verdict(&[&[(0, false), (0, true)], &[(0, false), (0, true), (1, false), (1, true)]], 2);
        assert_eq!(twice.duplicates, [(1, 0, vec![0, 1])]);
        assert!(twice.inversions.is_empty(), "a replay of the first is no inversion");
    }
}
