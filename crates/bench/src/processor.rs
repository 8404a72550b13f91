//! Processor time of processes of this machine, from `/proc`.

use std::{collections::HashMap, fs, time::Duration};

/// What `/proc/PID/stat` says of a process.
struct Stat {
    parent: u32,
    /// Clock ticks in its threads, user and system.
    own: u64,
    /// Those of its children that have ended and been waited for.
    ended_children: u64,
}

/// Processor time that this process has used so far.
#[cfg(unix)]
pub(super) fn own() -> Option<Duration> {
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().ok()
}

/// Unknown here.
#[cfg(not(unix))]
pub(super) fn own() -> Option<Duration> {
    None
}

/// Processor time that these threads of this machine have used so far, of any process.
pub(super) fn of_threads(threads: &[u32]) -> HashMap<u32, Duration> {
    let used = |thread: &u32| {
        // Nanoseconds come first; `stat` has hundredths of a second, too coarse for what is idle.
        let text = fs::read_to_string(format!("/proc/{thread}/task/{thread}/schedstat")).ok()?;
        Some((*thread, Duration::from_nanos(text.split(' ').next()?.parse().ok()?)))
    };
    threads.iter().filter_map(used).collect()
}

/// Processor time that a server has used so far: the process and its children, also those that have ended.
pub(super) fn of_server(pid: u32) -> Option<Duration> {
    let server = stat(pid)?;
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children = pids.filter_map(stat).filter(|process| process.parent == pid);
    Some(time(server.own + server.ended_children + children.map(|child| child.own).sum::<u64>()))
}

/// The parent of a process, if both are on this machine and have this name.
pub(super) fn parent(pid: u32, name: &str) -> Option<u32> {
    let parent = stat(pid)?.parent;
    [pid, parent].into_iter().all(|pid| named(pid, name)).then_some(parent)
}

fn named(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim_end() == name)
}

/// `/proc` shows hundredths of a second on Linux, independent of the kernel's own ticks.
fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10)
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of the process, in brackets, may hold anything: the fields are counted after it.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)? + number(12)?,
        ended_children: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let stat = parse("7 (a) (b) S 5 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99").unwrap();
        assert_eq!((stat.parent, stat.own, stat.ended_children), (5, 30, 70));
    }

    #[test]
    fn a_missing_process_has_no_time() {
        assert!(of_server(u32::MAX).is_none());
        assert!(own().is_some());
    }
}
