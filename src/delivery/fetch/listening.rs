//! When to fetch what other processes have committed, where nothing tells of it.
//!
//! A fetch that nobody has asked for and that finds new records has found those of others: more will come. The
//! next fetches follow shortly, further and further apart the longer nothing comes.

use std::time::Duration;

use tokio::time::Instant;

use crate::{rules::pacing, vitals::ListenState};

/// What is known of the others' commits.
pub(super) struct Listening {
    /// Whether another station tells of the commits of other processes. Changed by the runtime.
    listen_state: ListenState,
    /// When a record of theirs was found last, unless that is long ago.
    found_at: Option<Instant>,
    /// Something in this process has asked for the next fetch of all partitions.
    asked: bool,
    /// When to fetch though nobody asks.
    next: Option<Instant>,
    /// The version of the database at the last fetch of this kind.
    pub(super) version: Option<i64>,
}

impl Listening {
    pub(super) fn new(listen_state: ListenState) -> Self {
        Self { listen_state, found_at: None, asked: true, next: None, version: None }
    }

    /// There is a reason in this process to fetch.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether such a reason is still to be followed.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Polls ask for the next fetch as they do for all, and yet nobody knows of anything.
    pub(super) fn asked_only(&mut self, before: bool) {
        self.asked = before;
    }

    /// A fetch at all partitions begins. Whether somebody has asked for it.
    pub(super) fn begin(&mut self) -> bool {
        self.next = None;
        std::mem::take(&mut self.asked)
    }

    /// It has ended, and brought new records or none.
    pub(super) fn end(
        &mut self,
        (asked, found): (bool, bool),
        version: Option<i64>,
        poll_interval: Duration,
        now: Instant,
    ) {
        self.version = version;
        if found && !asked && !self.listen_state.is_listening() {
            self.found_at = Some(now);
        }
        let pause = self.found_at.map(|at| pacing::pause_of_silence(now - at, poll_interval));
        self.next = pause.filter(|pause| *pause < poll_interval).map(|pause| now + pause);
        if self.next.is_none() {
            self.found_at = None;
        }
    }

    /// When to fetch though nobody asks.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether that time has come. It comes once.
    pub(super) fn fire(&mut self, now: Instant) -> bool {
        self.next.take_if(|next| *next <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    /// The pause after a fetch, asked for or not, that has found something or not.
    fn pause_after(listening: &mut Listening, asked: bool, found: bool) -> Option<Duration> {
        listening.end((asked, found), None, INTERVAL, Instant::now());
        Some(listening.next? - Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn fetches_follow_what_was_found_unasked_until_all_is_silent() {
        let mut listening = Listening::new(ListenState::default());
        assert_eq!(pause_after(&mut listening, true, true), None, "of this process");
        assert_eq!(pause_after(&mut listening, false, false), None);
        let ms = Duration::from_millis;
        assert_eq!(pause_after(&mut listening, false, true), Some(ms(5)));
        tokio::time::advance(ms(400)).await;
        assert_eq!(pause_after(&mut listening, true, true), Some(ms(100)), "silent for as long");
        tokio::time::advance(4 * INTERVAL).await;
        assert_eq!(pause_after(&mut listening, false, false), None, "polls are enough");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_of_the_others_does_not_poll_for_their_records() {
        let listen_state = ListenState::default();
        listen_state.set(true);
        let mut listening = Listening::new(listen_state.clone());
        assert_eq!(pause_after(&mut listening, false, true), None);
        listen_state.set(false);
        assert!(pause_after(&mut listening, false, true).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_is_asked_for_once() {
        let mut listening = Listening::new(ListenState::default());
        assert!(listening.begin(), "the first");
        listening.ask();
        listening.asked_only(false);
        assert!(!listening.begin(), "only a poll");
        listening.ask();
        assert!(listening.begin() && !listening.begin());
    }
}
