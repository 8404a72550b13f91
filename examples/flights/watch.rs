//! Follows the ledgers while they grow: counts for the view.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use keylane_checker::{CallKind, End, Event, What};
use tokio::time::Instant;
use uuid::Uuid;

use crate::ledger::Follower;

/// The span over which rates are taken.
const SPAN: Duration = Duration::from_secs(2);

/// What one replica has entered.
pub(crate) struct Followed {
    follower: Follower,
    /// All its lines, for the verdict.
    pub(crate) lines: Vec<Event>,
    /// Flights it has begun and not ended: they are in its hands.
    pub(crate) in_hand: HashMap<u64, (Uuid, CallKind)>,
    /// Flights it has entered into the books.
    pub(crate) entered: usize,
    /// How often its lease has lapsed.
    pub(crate) lapses: usize,
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

    /// Reads what is new; the calls that have ended.
    fn read(&mut self, now: Instant) -> io::Result<Vec<(Uuid, CallKind, End)>> {
        let mut ended = Vec::new();
        for event in self.follower.read()? {
            match &event.what {
                What::CallBegan { call, kind, records, .. } => {
                    self.in_hand.extend(records.iter().map(|called| (*call, (called.event, *kind))));
                }
                What::CallEnded { call, ends } => {
                    let flight = self.in_hand.remove(call);
                    ended.extend(flight.zip(ends.first()).map(|((event, kind), end)| (event, kind, *end)));
                }
                What::FaultBegan { .. } => self.lapses += 1,
                _ => {}
            }
            self.lines.push(event);
        }
        self.entered += ended.iter().filter(|(_, _, end)| *end == End::Ok).count();
        self.recent.push_back((now, self.entered));
        while self.recent.front().is_some_and(|(at, _)| now - *at > SPAN) {
            self.recent.pop_front();
        }
        Ok(ended)
    }
}

/// All ledgers of a run.
pub(crate) struct Watch {
    dir: PathBuf,
    pub(crate) replicas: BTreeMap<usize, Followed>,
    flights: usize,
    finished: HashSet<Uuid>,
    pub(crate) delivered: usize,
    pub(crate) retried: usize,
    pub(crate) fallback: usize,
}

impl Watch {
    pub(crate) fn new(dir: &Path, flights: usize) -> Self {
        Self {
            dir: dir.to_owned(),
            replicas: BTreeMap::new(),
            flights,
            finished: HashSet::new(),
            delivered: 0,
            retried: 0,
            fallback: 0,
        }
    }

    pub(crate) fn follow(&mut self, replica: usize) {
        let follower = Follower::new(&self.dir, replica);
        let followed = Followed {
            follower,
            lines: Vec::new(),
            in_hand: HashMap::new(),
            entered: 0,
            lapses: 0,
            recent: VecDeque::new(),
        };
        self.replicas.insert(replica, followed);
    }

    /// Reads what is new.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for followed in self.replicas.values_mut() {
            for (event, kind, end) in followed.read(now)? {
                self.retried += usize::from(end == End::Failed);
                if end == End::Ok && self.finished.insert(event) {
                    self.delivered += 1;
                    self.fallback += usize::from(kind == CallKind::Fallback);
                }
            }
        }
        Ok(())
    }

    /// How often the lease of a replica has lapsed.
    pub(crate) fn lapses(&self) -> usize {
        self.replicas.values().map(|followed| followed.lapses).sum()
    }

    /// Whether every flight is in the books.
    pub(crate) fn is_complete(&self) -> bool {
        self.delivered == self.flights
    }

    /// Flights entered in a second, lately, by all replicas.
    pub(crate) fn rate(&self) -> f64 {
        self.replicas.values().map(Followed::rate).sum()
    }
}
