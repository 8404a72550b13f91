//! The behaviour of the user's code, per record.

use std::time::Duration;

use fastrand::Rng;
use keylane_checker::End;

/// The behaviour of a handler for one record in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) takes: Duration,
    pub(crate) end: End,
    /// Whether the call panics when it is dropped, too.
    pub(crate) drop_panics: bool,
    /// Whether the text and the drop of the error panic.
    pub(crate) text_panics: bool,
    /// How a transactional handler misuses its transaction, if it does.
    pub(crate) stray: Option<Stray>,
}

/// A misuse of the transaction by its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// Commits it and continues in another.
    Commits,
    /// Rolls it back and continues in another.
    RollsBack,
    /// Keeps it and continues in another. The transaction kept before is committed.
    Keeps,
    /// Leaves a savepoint open.
    LeavesOpen,
}

/// The fate of a record in its `call`-th call, counted from 1, drawn from the seed of the record.
pub(crate) fn fate(
    seed: u64,
    call: u32,
    repaired: bool,
    timeout: Duration,
    strays: bool,
    resting: bool,
) -> Fate {
    let mut dice = Rng::with_seed(seed);
    let troubles = dice.u32(1..5);
    let trouble = match dice.u8(..40) {
        0..=3 => End::Failed,
        4 | 5 => End::Panicked,
        6 => End::TimedOut,
        7 | 8 => End::Unavailable,
        // It fails until a person has repaired the record.
        9 => End::Permanent,
        _ => End::Ok,
    };
    // While the cluster rests, no person repairs. A record that fails then succeeds in its next call.
    let trouble = if resting && trouble != End::Ok { End::Failed } else { trouble };
    let troubles = if resting { 1 } else { troubles };
    let repaired = repaired && !resting;
    let in_trouble = !repaired && (call <= troubles || trouble == End::Permanent);
    let end = if in_trouble { trouble } else { End::Ok };
    let drop_panics = in_trouble && dice.u8(..30) == 0;
    let stray = match dice.u8(..60) {
        0 => Some(Stray::Commits),
        1 => Some(Stray::RollsBack),
        2 => Some(Stray::Keeps),
        3 => Some(Stray::LeavesOpen),
        _ => None,
    };
    // The handler goes astray until a person has repaired the record.
    let stray = stray.filter(|_| strays && !repaired && !resting);
    let text_panics = dice.u8(..8) == 0;
    let mut dice = Rng::with_seed(seed ^ u64::from(call) << 32);
    let most = match dice.u8(..20) {
        0 => timeout / 2,
        1..=4 => Duration::from_millis(100),
        5..=10 => Duration::from_millis(10),
        _ => Duration::ZERO,
    };
    let takes = Duration::from_micros(dice.u64(..=most.as_micros() as u64));
    Fate { takes, end, drop_panics, text_panics, stray }
}
