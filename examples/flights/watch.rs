//! Follows the ledgers while they grow: counts for the view.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

use crate::ledger::{Follower, Line, What};

/// The span over which rates are taken.
const SPAN: Duration = Duration::from_secs(2);

/// What one replica has entered.
pub(crate) struct Followed {
    follower: Follower,
    /// All its lines, for the verdict.
    pub(crate) lines: Vec<Line>,
    /// Flights it has begun and not ended: they are in its hands.
    pub(crate) in_hand: usize,
    /// Flights it has entered into the books.
    pub(crate) entered: usize,
    recent: VecDeque<(Instant, usize)>,
}

impl Followed {
    /// Flights entered in a second, lately.
    pub(crate) fn rate(&self) -> f64 {
        match (self.recent.front(), self.recent.back()) {
            (Some((start, before)), Some((end, after))) if end > start => {
                (after - before) as f64 / (*end - *start).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    fn read(&mut self, now: Instant) -> io::Result<Vec<Line>> {
        let lines = self.follower.read()?;
        for line in &lines {
            match line.what {
                What::Begun => self.in_hand += 1,
                What::Done | What::Failed | What::Refused => self.in_hand = self.in_hand.saturating_sub(1),
                What::Fallback => {}
            }
            self.entered += usize::from(line.what.is_final());
        }
        self.recent.push_back((now, self.entered));
        while self.recent.front().is_some_and(|(at, _)| now - *at > SPAN) {
            self.recent.pop_front();
        }
        self.lines.extend_from_slice(&lines);
        Ok(lines)
    }
}

/// All ledgers of a run.
pub(crate) struct Watch {
    dir: PathBuf,
    pub(crate) replicas: BTreeMap<usize, Followed>,
    finished: Vec<bool>,
    pub(crate) delivered: usize,
    pub(crate) retried: usize,
    pub(crate) fallback: usize,
}

impl Watch {
    pub(crate) fn new(dir: &Path, flights: usize) -> Self {
        let finished = vec![false; flights];
        Self {
            dir: dir.to_owned(),
            replicas: BTreeMap::new(),
            finished,
            delivered: 0,
            retried: 0,
            fallback: 0,
        }
    }

    pub(crate) fn follow(&mut self, replica: usize) {
        let follower = Follower::new(&self.dir, replica);
        let followed =
            Followed { follower, lines: Vec::new(), in_hand: 0, entered: 0, recent: VecDeque::new() };
        self.replicas.insert(replica, followed);
    }

    /// Reads what is new.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for followed in self.replicas.values_mut() {
            for line in followed.read(now)? {
                self.retried += usize::from(line.what == What::Failed);
                if !line.what.is_final() {
                    continue;
                }
                let first = self.finished.get_mut(line.row.wrapping_sub(1));
                if first.is_some_and(|finished| !std::mem::replace(finished, true)) {
                    self.delivered += 1;
                    self.fallback += usize::from(line.what == What::Fallback);
                }
            }
        }
        Ok(())
    }

    /// Whether every flight is in the books.
    pub(crate) fn is_complete(&self) -> bool {
        self.delivered == self.finished.len()
    }

    /// Flights entered in a second, lately, by all replicas.
    pub(crate) fn rate(&self) -> f64 {
        self.replicas.values().map(Followed::rate).sum()
    }
}
