//! Resident memory of a process, from `/proc`.

use std::fs;

const MIB: f64 = 1024.0 * 1024.0;

/// What is resident of this process now, in MiB.
pub(super) fn now() -> Option<f64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// The most that was resident of this process at any time, in MiB.
pub(super) fn peak() -> Option<f64> {
    peak_of(std::process::id())
}

/// The same of any process.
pub(super) fn peak_of(process: u32) -> Option<f64> {
    field(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, "VmHWM")
}

fn field(status: &str, name: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: f64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024.0 / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "VmHWMX:\t1 kB\nVmHWM:\t    3072 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(field(status, "VmHWM"), Some(3.0));
        assert_eq!(field(status, "VmRSS"), Some(2.0));
        assert_eq!(field(status, "VmSwap"), None);
    }

    #[test]
    fn this_process_has_a_peak() {
        assert!(now().unwrap() > 0.0 && peak().unwrap() > 0.0);
    }
}
