//! The effect of the active faults on the calls of a node.

use std::time::Duration;

use fastrand::Rng;
use keylane::{inner::conditions::Passage, memory};

use crate::fault::{Fault, Kind};

/// The active faults, by their indices in the plan.
#[derive(Debug, Default)]
pub(crate) struct Weather(Vec<(usize, Fault)>);

impl Weather {
    pub(crate) fn begin(&mut self, place: usize, fault: Fault) {
        self.0.push((place, fault));
    }

    pub(crate) fn end(&mut self, place: usize) {
        self.0.retain(|(of, _)| *of != place);
    }

    /// The delays and the fault of a node's call. `None` is a client outside of the nodes.
    pub(crate) fn passage(
        &self,
        node: Option<usize>,
        usual: Duration,
        limit: Duration,
        dice: &mut Rng,
    ) -> Passage {
        let mut passage = Passage { before: some_of(usual, dice), fault: None, after: some_of(usual, dice) };
        let strikes = |whom: Option<usize>| whom.is_none_or(|whom| Some(whom) == node);
        for (_, fault) in &self.0 {
            match fault.kind {
                Kind::Outage(whom) if strikes(whom) => passage.fault = Some(memory::Fault::NotApplied),
                Kind::Deaf(whom) if strikes(whom) => passage.fault = Some(memory::Fault::LostReply),
                Kind::Hang(whom) if strikes(whom) => {
                    let applied = dice.bool();
                    let fault = if applied { memory::Fault::LostReply } else { memory::Fault::NotApplied };
                    let before = if applied { some_of(limit, dice) } else { limit };
                    return Passage { before, fault: Some(fault), after: limit - before };
                }
                Kind::Flaky(whom, share) if strikes(whom) => {
                    let roll = dice.u32(..1000);
                    passage.fault = (roll < share).then(|| flaky(roll, dice)).or(passage.fault);
                }
                Kind::Slow(whom, most) if strikes(whom) => {
                    let most = Duration::from_millis(most.into());
                    passage.before += some_of(most, dice);
                    passage.after += some_of(most, dice);
                }
                _ => {}
            }
        }
        if passage.before + passage.after > limit {
            passage.fault.get_or_insert(memory::Fault::LostReply);
            passage.before = passage.before.min(limit);
            passage.after = limit - passage.before;
        }
        passage
    }
}

/// How a call fails. Half of the calls fail before their effect, and a quarter of these because of a conflict.
fn flaky(roll: u32, dice: &mut Rng) -> memory::Fault {
    match dice.bool() {
        true => memory::Fault::LostReply,
        false if roll.is_multiple_of(4) => memory::Fault::Conflict,
        false => memory::Fault::NotApplied,
    }
}

fn some_of(most: Duration, dice: &mut Rng) -> Duration {
    Duration::from_micros(dice.u64(..=most.as_micros() as u64))
}
