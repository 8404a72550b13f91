//! What a process tells of its operations: one JSON object per line, in a file that survives a kill.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::Path,
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::linear::{Operation, Outcome};

/// Something that an operation, or its whole process, has done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Did {
    Asked,
    /// It has the lock.
    Had {
        token: i64,
    },
    Read {
        value: Option<i64>,
    },
    Wrote {
        is_accepted: bool,
    },
    Released,
    /// The process is about to be stopped, or killed if it never goes on.
    Stopped,
    Resumed,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// Nanoseconds on the clock of the machine.
    at: u64,
    operation: i64,
    did: Did,
}

pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(file: &Path) -> Self {
        Self(File::options().create(true).append(true).open(file).unwrap())
    }

    /// One write a line: a process that is killed leaves no half of one.
    pub(crate) fn push(&self, operation: i64, did: Did) {
        let time = clock_gettime(ClockId::Monotonic);
        let at = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
        let line = serde_json::to_string(&Line { at, operation, did }).unwrap();
        (&self.0).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// The operations of a process that had the lock. Each writes its own number.
pub(crate) fn operations(file: &Path) -> Vec<Operation> {
    let (mut entries, mut stops) = (BTreeMap::<i64, Vec<(u64, Did)>>::new(), Vec::new());
    for line in fs::read_to_string(file).unwrap().lines() {
        let Line { at, operation, did } = serde_json::from_str(line).unwrap();
        match did {
            Did::Stopped => stops.push((at, u64::MAX)),
            Did::Resumed => stops.last_mut().unwrap().1 = at,
            did => entries.entry(operation).or_default().push((at, did)),
        }
    }
    entries.into_iter().filter_map(|(number, entries)| operation(number, &entries, &stops)).collect()
}

/// `None` for one that never had the lock.
fn operation(number: i64, entries: &[(u64, Did)], stops: &[(u64, u64)]) -> Option<Operation> {
    let mut operation = Operation {
        times: [u64::MAX; 4],
        token: 0,
        read: None,
        wrote: number,
        outcome: Outcome::Unknown,
        fault: None,
    };
    for (at, did) in entries {
        match did {
            Did::Asked => operation.times[0] = *at,
            Did::Had { token } => (operation.times[1], operation.token) = (*at, *token),
            Did::Read { value } => operation.read = *value,
            Did::Wrote { is_accepted } => {
                operation.times[2] = *at;
                operation.outcome = if *is_accepted { Outcome::Accepted } else { Outcome::Refused };
            }
            Did::Released => operation.times[3] = *at,
            Did::Stopped | Did::Resumed => {}
        }
    }
    let [_, had, given_up, _] = operation.times;
    let during = stops.iter().find(|(stopped, resumed)| had < *resumed && *stopped < given_up);
    operation.fault = during.map(|(stopped, _)| had.max(*stopped));
    (had < u64::MAX).then_some(operation)
}
