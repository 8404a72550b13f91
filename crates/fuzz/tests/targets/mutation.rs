//! Inputs made from seeds by a few edits, as fuzzers make them; now and then one by chance alone.

use proptest::{collection::vec, prelude::*, sample::Index};

/// One edit of an input. Places are taken modulo its length.
#[derive(Clone, Debug)]
enum Edit {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    /// A part of another seed.
    Splice(Index, Vec<u8>),
}

/// Longer inputs are cut.
const LONGEST: usize = 8192;

pub(crate) fn inputs(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let part = (proptest::sample::select(seeds.clone()), any::<Index>(), 1..24_usize).prop_map(
        |(seed, at, length)| {
            let begin = if seed.is_empty() { 0 } else { at.index(seed.len()) };
            seed[begin..(begin + length).min(seed.len())].to_vec()
        },
    );
    let edit = prop_oneof![
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (any::<Index>(), vec(any::<u8>(), 1..6)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<Index>(), 1..24_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<Index>(), 1..24_usize, 1..40_usize)
            .prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        (any::<Index>(), part).prop_map(|(at, part)| Edit::Splice(at, part)),
    ];
    let edited = (proptest::sample::select(seeds), vec(edit, 1..6)).prop_map(|(mut input, edits)| {
        edits.into_iter().for_each(|edit| apply(&mut input, edit));
        input
    });
    prop_oneof![9 => edited, 1 => vec(any::<u8>(), 0..300)]
}

fn apply(input: &mut Vec<u8>, edit: Edit) {
    let place = |at: Index| at.index(input.len() + 1);
    match edit {
        Edit::Flip(at, bit) => {
            let at = place(at);
            input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
        }
        Edit::Set(at, new) => {
            let at = place(at);
            input.iter_mut().skip(at).take(1).for_each(|byte| *byte = new);
        }
        Edit::Insert(at, bytes) | Edit::Splice(at, bytes) => {
            let at = place(at);
            input.splice(at..at, bytes);
        }
        Edit::Remove(at, length) => {
            let at = place(at);
            input.drain(at..(at + length).min(input.len()));
        }
        Edit::Repeat(at, length, times) => {
            let at = place(at);
            let part = input[at..(at + length).min(input.len())].repeat(times);
            input.splice(at..at, part);
        }
    }
    input.truncate(LONGEST);
}
