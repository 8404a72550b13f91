//! Buckets in the memory of one process.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tokio::time::Instant;

use super::{Bucket, Limit, Taken};

/// The most buckets of one generation.
const GENERATION: usize = 10_000;

/// The buckets of one limit. Their number is bounded: when a generation is full, the generation before is dropped, with
/// the buckets that were unused since. A dropped bucket is full when it is used again.
pub(super) struct LocalBuckets {
    begun: Instant,
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<String, Bucket>,
    old: HashMap<String, Bucket>,
}

impl LocalBuckets {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), generations: Mutex::default() }
    }

    pub(super) fn take(&self, key: &str, limit: Limit) -> Taken {
        let now = self.begun.elapsed().as_micros() as u64;
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.take(key, limit, now)
    }
}

impl Generations {
    fn take(&mut self, key: &str, limit: Limit, now: u64) -> Taken {
        let known = self.young.get(key).or_else(|| self.old.get(key)).copied();
        let (bucket, taken) = known.unwrap_or_else(|| Bucket::full(limit, now)).take(limit, now);
        if let Some(place) = self.young.get_mut(key) {
            *place = bucket;
            return taken;
        }
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key.to_owned(), bucket);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_buckets_is_bounded_and_those_in_use_stay() {
        let (mut generations, limit) = (Generations::default(), Limit::per_minute(1));
        assert!(generations.take("mine", limit, 0).allowed);
        for stranger in 0..5 * GENERATION {
            generations.take(&stranger.to_string(), limit, 0);
            if stranger % 1_000 == 0 {
                assert!(!generations.take("mine", limit, 0).allowed, "after {stranger}");
            }
            assert!(generations.young.len() <= GENERATION && generations.old.len() <= GENERATION);
        }
    }
}
