//! The judge of histories: a register that is read and written under a lock, with the token of each holder.
//!
//! A history is linearisable if the order of the tokens is one in which each operation reads what the one before
//! has written, and that contradicts no clock: what ended before something else began comes first. What the end of
//! a process has hidden may have happened or not, until a later operation reads the register.

/// One taking of the lock, with times on one clock.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Asked for, had, given up and released. What a killed process did not live to see is in the far future.
    pub(crate) times: [u64; 4],
    pub(crate) token: i64,
    /// `None`: the register had seen a higher token.
    pub(crate) read: Option<i64>,
    pub(crate) wrote: i64,
    pub(crate) outcome: Outcome,
    /// When its process was stopped or killed while it had the lock.
    pub(crate) fault: Option<u64>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    /// The register had seen a higher token.
    Refused,
    Unknown,
}

impl Operation {
    /// Until when nobody else may have the lock: a process that is stopped loses it, and a killed one has ended.
    fn excludes_until(&self) -> u64 {
        self.fault.unwrap_or(self.times[2])
    }
}

/// # Errors
/// Which operations, and why.
pub(crate) fn judge(history: &[Operation]) -> Result<(), String> {
    let mut operations: Vec<&Operation> = history.iter().collect();
    if let Some(odd) = operations.iter().find(|operation| !operation.times.is_sorted()) {
        return Err(format!("ends before it begins: {odd:?}"));
    }
    let excused =
        |operation: &&&Operation| operation.outcome == Outcome::Accepted || operation.fault.is_some();
    if let Some(odd) = operations.iter().find(|operation| !excused(operation)) {
        return Err(format!("not written, although nothing befell its process: {odd:?}"));
    }
    operations.sort_by_key(|operation| operation.token);
    for pair in operations.windows(2) {
        if pair[0].token == pair[1].token {
            return Err(format!("one token twice: {pair:?}"));
        }
        if pair[0].excludes_until() > pair[1].times[1] {
            return Err(format!("two at a time: {pair:?}"));
        }
    }
    judge_values(&operations)?;
    judge_clock(&operations)
}

/// In the order of the tokens, each reads what the register may have.
fn judge_values(operations: &[&Operation]) -> Result<(), String> {
    let mut possible = vec![0];
    for operation in operations {
        if let Some(read) = operation.read {
            if !possible.contains(&read) {
                return Err(format!("read something else than {possible:?}: {operation:?}"));
            }
            possible = vec![read];
        }
        match operation.outcome {
            Outcome::Accepted => possible = vec![operation.wrote],
            Outcome::Unknown => possible.push(operation.wrote),
            Outcome::Refused => {}
        }
    }
    Ok(())
}

/// No operation is over before one with a lower token was asked for.
fn judge_clock(operations: &[&Operation]) -> Result<(), String> {
    let mut latest_request: Option<&Operation> = None;
    for operation in operations {
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
        read: Some(number as i64),
        wrote: number as i64 + 1,
        outcome: Outcome::Accepted,
        fault: None,
    };
    (0..20).map(operation).collect()
}

/// The same, with an operation whose process was killed before anybody learned of its write.
fn cut_off() -> Vec<Operation> {
    let mut history = good();
    history[7].fault = Some(83);
    history[7].outcome = Outcome::Unknown;
    history[7].times[2..].fill(u64::MAX);
    history
}

/// The same, with a holder that was frozen until the one after the next was done.
fn frozen() -> Vec<Operation> {
    let mut history = good();
    history[7].fault = Some(83);
    history[7].outcome = Outcome::Refused;
    history[7].times[2..].fill(112);
    history[8].read = Some(7);
    history
}

fn said(mut history: Vec<Operation>, spoil: fn(&mut Vec<Operation>)) -> String {
    spoil(&mut history);
    judge(&history).unwrap_err()
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
    let says = [
        ("two at a time", said(good(), |history| history[7].times[2..].fill(100))),
        ("one token twice", said(good(), |history| history[7].token = history[8].token)),
        ("two at a time", said(good(), |history| (history[7].token, history[8].token) = (124, 121))),
        ("something else", said(good(), |history| history[9].read = history[8].read)),
        ("something else", said(good(), |history| history[9].wrote = 0)),
        ("something else", said(good(), |history| history.retain(|operation| operation.token != 115))),
        ("something else", said(good(), |history| history[0].read = Some(7))),
        ("ends before", said(good(), |history| history[3].times[3] = 0)),
        ("nothing befell", said(good(), |history| history[7].outcome = Outcome::Refused)),
        ("nothing befell", said(good(), |history| history[7].outcome = Outcome::Unknown)),
    ];
    for (number, (wanted, said)) in says.iter().enumerate() {
        assert!(said.contains(wanted), "{number}: {said}");
    }
}

#[test]
fn what_a_fault_has_hidden_may_have_happened_or_not() {
    assert_eq!(judge(&cut_off()), Ok(()), "it was written");
    let mut history = cut_off();
    history[8].read = Some(7);
    assert_eq!(judge(&history), Ok(()), "it was not written");
    assert_eq!(judge(&frozen()), Ok(()));
    let says = [
        // Once it was read that it did not happen, it cannot happen any more.
        (
            "something else",
            said(cut_off(), |history| {
                history[8].read = Some(7);
                (history[8].outcome, history[8].fault) = (Outcome::Refused, Some(93));
                history[9].read = Some(8);
            }),
        ),
        ("something else", said(cut_off(), |history| history[8].read = Some(6))),
        ("something else", said(frozen(), |history| history[8].read = Some(8))),
        ("two at a time", said(cut_off(), |history| history[8].times[1] = 82)),
        ("two at a time", said(frozen(), |history| history[7].fault = Some(93))),
        ("two at a time", said(frozen(), |history| history[6].times[2..].fill(83))),
    ];
    for (number, (wanted, said)) in says.iter().enumerate() {
        assert!(said.contains(wanted), "{number}: {said}");
    }
}

/// Disjoint sections and right values, but the later one has the lower token.
#[test]
fn a_token_that_contradicts_the_clock_is_rejected() {
    let operation = |start: u64, token, read, wrote| Operation {
        times: [start, start + 1, start + 1, start + 2],
        token,
        read: Some(read),
        wrote,
        outcome: Outcome::Accepted,
        fault: None,
    };
    let history = [operation(100, 1, 0, 5), operation(0, 2, 5, 6)];
    assert!(judge(&history).is_err());
    // If a fault hides the overlap, the clock is left to tell.
    let mut history = history;
    history[0].fault = Some(0);
    assert!(judge(&history).unwrap_err().contains("over before"));
}
