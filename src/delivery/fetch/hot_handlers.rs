//! Handlers that fill so much of memory that they are fetched by themselves.
//!
//! If the records of a handler come faster than the handler takes them, they fill the memory, however many
//! keys they have. If memory stays full and no single lane is the cause, the handler with the most records
//! becomes *hot*: its records over its share are requeued, other fetches leave it out, and it is fetched by
//! itself whenever half of its share is used up. Once such a fetch brings all that the handler has, the
//! handler is no longer hot.

use std::time::Duration;

use tokio::time::Instant;

use crate::{name::Name, store::Handlers};

/// The hot handlers together may fill memory divided by this number.
const PART_OF_MEMORY: usize = 2;
/// A handler with fewer records than memory divided by this number does not become hot.
const LEAST_PART: usize = 8;
/// A fetch that leaves handlers out reads past their rows in the table. If that takes longer than this, no
/// handler is hot for a while. Then all handlers wait for each other, as they would without hot handlers, but
/// none waits for that read.
const LONGEST_WALK: Duration = Duration::from_secs(1);
const NOBODY_IS_HOT_FOR: Duration = Duration::from_secs(60);

/// A handler that is fetched by itself.
struct Hot {
    /// The number of the handler in the registry. Never changes.
    number: usize,
    /// The id of the handler. Never changes.
    id: Name,
    /// Whether the last fetch of the handler brought no record that was admitted. Set by `exhausted`, cleared
    /// by `news`.
    exhausted: bool,
}

/// The hot handlers of one instance.
pub(super) struct HotHandlers {
    /// The most records in memory. Never changes.
    max_in_flight: usize,
    /// Added by `add`, removed by `cool`, cleared by `walked`.
    hot: Vec<Hot>,
    /// Whether the last fetch was of a hot handler, so that the next one is of the others. Set by `begin`,
    /// cleared by `hungry`.
    turn_of_others: bool,
    /// No handler becomes hot before this time. Set by `walked` after a read that took too long.
    not_before: Option<Instant>,
}

impl HotHandlers {
    pub(super) fn new(max_in_flight: usize) -> Self {
        Self { max_in_flight, hot: Vec::new(), turn_of_others: false, not_before: None }
    }

    /// The most records in memory per hot handler.
    pub(super) fn share(&self) -> usize {
        (self.max_in_flight / PART_OF_MEMORY / self.hot.len().max(1)).max(2)
    }

    /// The places in memory of all hot handlers.
    pub(super) fn in_memory(&self, of_handler: impl Fn(usize) -> usize) -> usize {
        self.hot.iter().map(|hot| of_handler(hot.number)).sum()
    }

    /// The hot handlers with more than their share in memory: it is smaller since others have become hot, too.
    pub(super) fn over_share(&self, in_memory: impl Fn(usize) -> usize) -> Vec<usize> {
        let share = self.share();
        self.hot.iter().map(|hot| hot.number).filter(|number| in_memory(*number) > share).collect()
    }

    /// If the handler with the most records in memory fills enough of it, makes the handler hot and returns
    /// its number. `handlers` has the number and the id of each handler, `in_memory` the places of a handler
    /// by number.
    pub(super) fn add<'a>(
        &mut self,
        handlers: impl Iterator<Item = (usize, &'a str)>,
        in_memory: impl Fn(usize) -> usize,
        now: Instant,
    ) -> Option<usize> {
        let handlers: Vec<_> = handlers.collect();
        if handlers.len() < 2 || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        let is_hot = |number: usize| self.hot.iter().any(|hot| hot.number == number);
        let others = handlers.into_iter().filter(|(number, _)| !is_hot(*number));
        let (number, id) = others.max_by_key(|(number, _)| in_memory(*number))?;
        if in_memory(number) < (self.max_in_flight / LEAST_PART).max(1) {
            return None;
        }
        self.hot.push(Hot { number, id: id.into(), exhausted: false });
        Some(number)
    }

    /// The handlers that the other fetches bring.
    pub(super) fn others(&self) -> Handlers {
        match self.hot.is_empty() {
            true => Handlers::Every,
            false => Handlers::Except(self.hot.iter().map(|hot| hot.id.clone()).collect()),
        }
    }

    /// A hot handler that has used up half of its share, and how many records fit into it. If
    /// `others_wait`, never twice in a row.
    pub(super) fn hungry(
        &mut self,
        others_wait: bool,
        in_memory: impl Fn(usize) -> usize,
    ) -> Option<(Handlers, usize)> {
        if std::mem::take(&mut self.turn_of_others) && others_wait {
            return None;
        }
        let share = self.share();
        let wants = |hot: &&Hot| !hot.exhausted && in_memory(hot.number) <= share / 2;
        let hot = self.hot.iter().filter(wants).min_by_key(|hot| in_memory(hot.number))?;
        Some((Handlers::Only(hot.id.clone()), share - in_memory(hot.number)))
    }

    /// A fetch of these handlers begins.
    pub(super) fn begin(&mut self, handlers: &Handlers) {
        self.turn_of_others = matches!(handlers, Handlers::Only(_));
    }

    /// There is news: records that could not be admitted may be admitted now.
    pub(super) fn news(&mut self) {
        self.hot.iter_mut().for_each(|hot| hot.exhausted = false);
    }

    /// A fetch of these handlers brought no record that was admitted.
    pub(super) fn exhausted(&mut self, handlers: &Handlers) {
        if let Handlers::Only(id) = handlers {
            self.hot.iter_mut().filter(|hot| hot.id == *id).for_each(|hot| hot.exhausted = true);
        }
    }

    /// A fetch of these handlers has taken this time. Returns whether all hot handlers were given up.
    pub(super) fn walked(&mut self, handlers: &Handlers, took: Duration, now: Instant) -> bool {
        let gives_up = took > LONGEST_WALK && matches!(handlers, Handlers::Except(_));
        if gives_up {
            self.hot.clear();
            self.not_before = Some(now + NOBODY_IS_HOT_FOR);
        }
        gives_up
    }

    /// A fetch of these handlers brought all that they have. Returns whether one of them is no longer hot.
    pub(super) fn cool(&mut self, handlers: &Handlers) -> bool {
        let Handlers::Only(id) = handlers else { return false };
        let before = self.hot.len();
        self.hot.retain(|hot| hot.id != *id);
        self.hot.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLERS: [(usize, &str); 3] = [(0, "a"), (1, "b"), (2, "c")];

    fn only(id: &str) -> Handlers {
        Handlers::Only(id.into())
    }

    #[test]
    fn the_handler_with_the_most_records_becomes_hot_and_the_others_share_what_it_leaves() {
        let (mut handlers, now) = (HotHandlers::new(4_000), Instant::now());
        assert_eq!(handlers.add(HANDLERS.into_iter(), |_| 499, now), None, "nobody fills memory");
        let fills = HotHandlers::new(4_000).add(HANDLERS.into_iter(), |number| 500 - number, now);
        assert_eq!(fills, Some(0), "an eighth of memory is enough");
        assert_eq!(handlers.add(HANDLERS[..1].iter().copied(), |_| 3_000, now), None, "there is nobody else");
        assert_eq!(handlers.add(HANDLERS.into_iter(), |number| 600 + number, now), Some(2));
        assert_eq!(handlers.share(), 2_000);
        assert_eq!(handlers.add(HANDLERS.into_iter(), |number| 600 + number, now), Some(1), "the next one");
        assert_eq!(
            (handlers.share(), handlers.others()),
            (1_000, Handlers::Except(vec!["c".into(), "b".into()]))
        );
        assert_eq!(handlers.over_share(|number| 999 + number), [2], "it was allowed 2,000 before");
        assert!(handlers.cool(&only("c")) && !handlers.cool(&only("c")));
        assert_eq!((handlers.share(), handlers.others()), (2_000, Handlers::Except(vec!["b".into()])));
    }

    #[test]
    fn a_hot_handler_is_fetched_when_half_of_its_share_is_used_up_and_not_twice_in_a_row() {
        let mut handlers = HotHandlers::new(4_000);
        handlers.add(HANDLERS.into_iter(), |_| 3_000, Instant::now());
        assert_eq!(handlers.hungry(true, |_| 1_001), None);
        assert_eq!(handlers.hungry(true, |_| 1_000), Some((only("c"), 1_000)));
        handlers.begin(&only("c"));
        assert_eq!(handlers.hungry(true, |_| 0), None, "it is the others' turn");
        assert_eq!(handlers.hungry(true, |_| 0), Some((only("c"), 2_000)), "they had it");
        handlers.begin(&only("c"));
        assert_eq!(handlers.hungry(false, |_| 0), Some((only("c"), 2_000)), "they want none");
        handlers.exhausted(&only("c"));
        assert_eq!(handlers.hungry(false, |_| 0), None);
        handlers.news();
        assert!(handlers.hungry(false, |_| 0).is_some());
    }

    #[test]
    fn a_walk_that_takes_too_long_ends_it_for_a_while() {
        let (mut handlers, now) = (HotHandlers::new(4_000), Instant::now());
        handlers.add(HANDLERS.into_iter(), |_| 3_000, now);
        let others = handlers.others();
        assert!(!handlers.walked(&others, LONGEST_WALK, now));
        assert!(!handlers.walked(&only("c"), LONGEST_WALK * 2, now), "its own fetch walks over nothing");
        assert!(handlers.walked(&others, LONGEST_WALK * 2, now));
        assert_eq!(handlers.others(), Handlers::Every);
        assert_eq!(handlers.add(HANDLERS.into_iter(), |_| 3_000, now + NOBODY_IS_HOT_FOR / 2), None);
        assert!(handlers.add(HANDLERS.into_iter(), |_| 3_000, now + NOBODY_IS_HOT_FOR).is_some());
    }
}
