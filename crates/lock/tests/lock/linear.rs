//! The judge of histories: a register that is read and written under a lock, with the token of each holder.
//!
//! A history is linearisable if the order of the tokens is one in which each reads what the one before has written,
//! and that contradicts no clock: what ended before something else began comes first.

/// One taking of the lock, with times on one clock.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Asked for, had, given up and released.
    pub(crate) times: [u64; 4],
    pub(crate) token: i64,
    pub(crate) read: i64,
    pub(crate) wrote: i64,
}

/// # Errors
/// Which two operations, and why.
pub(crate) fn judge(history: &[Operation]) -> Result<(), String> {
    let mut operations: Vec<&Operation> = history.iter().collect();
    if let Some(odd) = operations.iter().find(|operation| !operation.times.is_sorted()) {
        return Err(format!("ends before it begins: {odd:?}"));
    }
    operations.sort_by_key(|operation| operation.token);
    let mut value = 0;
    let mut latest_request: Option<&Operation> = None;
    for pair in operations.windows(2) {
        if pair[0].token == pair[1].token {
            return Err(format!("one token twice: {pair:?}"));
        }
        if pair[0].times[2] > pair[1].times[1] {
            return Err(format!("two at a time: {pair:?}"));
        }
    }
    for operation in operations {
        if operation.read != value {
            return Err(format!("read something else than {value}: {operation:?}"));
        }
        value = operation.wrote;
        if let Some(earlier) = latest_request.filter(|earlier| operation.times[3] < earlier.times[0]) {
            return Err(format!("over before a lower token was asked for: {operation:?} {earlier:?}"));
        }
        if latest_request.is_none_or(|latest| latest.times[0] < operation.times[0]) {
            latest_request = Some(operation);
        }
    }
    Ok(())
}

/// Operations that follow one another, each asked for while the one before was under way.
fn good() -> Vec<Operation> {
    let operation = |number: u64| Operation {
        times: [number * 10, number * 10 + 12, number * 10 + 15, number * 10 + 19],
        token: 100 + number as i64 * 3,
        read: number as i64,
        wrote: number as i64 + 1,
    };
    (0..20).map(operation).collect()
}

#[test]
fn a_good_history_passes() {
    let mut history = good();
    assert_eq!(judge(&history), Ok(()));
    history.reverse();
    assert_eq!(judge(&history), Ok(()), "the order of the lines says nothing");
    assert_eq!(judge(&[]), Ok(()));
}

#[test]
fn bad_histories_are_rejected() {
    let spoilt = |spoil: fn(&mut Vec<Operation>)| {
        let mut history = good();
        spoil(&mut history);
        judge(&history).unwrap_err()
    };
    let says = [
        ("two at a time", spoilt(|history| history[7].times[2..].fill(100))),
        ("one token twice", spoilt(|history| history[7].token = history[8].token)),
        ("two at a time", spoilt(|history| (history[7].token, history[8].token) = (124, 121))),
        ("something else", spoilt(|history| history[9].read = history[8].read)),
        ("something else", spoilt(|history| history[9].wrote = 0)),
        ("something else", spoilt(|history| history.retain(|operation| operation.token != 115))),
        ("something else", spoilt(|history| history[0].read = 7)),
        ("ends before", spoilt(|history| history[3].times[3] = 0)),
    ];
    for (number, (wanted, said)) in says.iter().enumerate() {
        assert!(said.starts_with(wanted) || said.contains(wanted), "{number}: {said}");
    }
}

/// Disjoint sections and right values, but the later one has the lower token.
#[test]
fn a_token_that_contradicts_the_clock_is_rejected() {
    let operation = |start: u64, token, read, wrote| Operation {
        times: [start, start + 1, start + 1, start + 2],
        token,
        read,
        wrote,
    };
    let history = [operation(100, 1, 0, 5), operation(0, 2, 5, 6)];
    assert!(judge(&history).is_err());
}
