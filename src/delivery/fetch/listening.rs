//! When to fetch records of other processes, if no notification tells of their commits.
//!
//! If a fetch that this process has not asked for finds new records, they are of other processes, and more
//! are likely. The next fetches follow shortly, at growing distances while no record comes.

use std::time::Duration;

use tokio::time::Instant;

use crate::{rules::pacing, vitals::ListenState};

/// What this process knows of the commits of other processes.
pub(super) struct Listening {
    /// Whether notifications of other processes are received. Changed by the runtime.
    listen_state: ListenState,
    /// When a record of another process was found last. Written by `end`, cleared when the pause has reached
    /// the poll interval.
    found_at: Option<Instant>,
    /// Whether this process has asked for the next fetch of all partitions. Set by `ask`, cleared by `begin`.
    asked: bool,
    /// When to fetch although this process has not asked. Set by `end`, cleared by `begin` and `fire`.
    next: Option<Instant>,
    /// The version of the database at the last fetch of all partitions. Written by `end`, cleared by the
    /// planner if records may be left.
    pub(super) version: Option<i64>,
}

impl Listening {
    pub(super) fn new(listen_state: ListenState) -> Self {
        Self { listen_state, found_at: None, asked: true, next: None, version: None }
    }

    /// This process has a reason to fetch.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether such a reason waits for its fetch.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// Restores `asked` after a poll: a poll wants a fetch, but knows no reason for it.
    pub(super) fn asked_only(&mut self, before: bool) {
        self.asked = before;
    }

    /// A fetch of all partitions begins. Returns whether this process has asked for it.
    pub(super) fn begin(&mut self) -> bool {
        self.next = None;
        std::mem::take(&mut self.asked)
    }

    /// The fetch has ended; `found`: it has brought new records.
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

    /// When to fetch although this process has not asked.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns once whether that time has come.
    pub(super) fn fire(&mut self, now: Instant) -> bool {
        self.next.take_if(|next| *next <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    /// The pause after a fetch. `asked`: this process has asked for it; `found`: it has brought new records.
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
