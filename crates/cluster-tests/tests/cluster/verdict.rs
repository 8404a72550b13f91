//! What the checker says of the journals of all processes, and of the log of owners that triggers keep.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use keylane_checker::{Event, Expect, Invariant, Judge, Repeats, Report, Takeover, Truth, What, history};
use keylane_cluster_tests::{
    journal::{LAPSE, now},
    settings::{STALE, TICK},
};

use crate::{
    cluster::{Cluster, HANDLER},
    database::Target,
};

/// The longest time from the crash of an owner until another instance has its partitions.
pub(crate) const TAKEOVER: Duration =
    STALE.saturating_add(TICK.saturating_mul(3)).saturating_add(Duration::from_secs(2));
/// The longest time from the last change of the members until shares are equal. A drain waits for calls.
const SETTLED: Duration = Duration::from_secs(5);

/// A row of the log of owners and members: the time on the wall clock in microseconds, and the change.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) at: i64,
    pub(crate) partition: Option<i64>,
    pub(crate) generation: Option<i64>,
    /// The owner of the partition, or the instance.
    pub(crate) instance: Option<String>,
    /// The state of the instance.
    pub(crate) state: Option<String>,
}

impl<T: Target> Cluster<T> {
    /// Waits until all scheduled records are finished, and lets the checker judge the journals.
    pub(crate) async fn verdict(&self) -> Report {
        self.wait_until_empty().await;
        self.tell(What::Finished);
        let (expect, history) = (self.expect(), self.history().await);
        let mut judge = Judge::new(expect);
        let judged = history.iter().try_for_each(|event| judge.take(event)).and_then(|()| judge.finish());
        let report =
            judged.unwrap_or_else(|violation| panic!("{violation}\njournals in {}", self.folder.display()));
        println!("{}: {} events, judged {:?}", self.prefix, report.events, report.judged);
        let (orders, calls) = (Invariant::FirstAttempts, Invariant::NoLoss);
        assert!([orders, calls].iter().all(|invariant| report.judged.contains_key(invariant)), "{report:?}");
        report
    }

    /// The verdict of a history that must show these things, and those if the log of owners is kept. Otherwise the
    /// test has proved nothing.
    pub(crate) async fn verdict_of(&self, shown: &[&str], shown_by_owners: &[&str]) -> Report {
        let report = self.verdict().await;
        let by_owners = if T::LOGS_OWNERS { shown_by_owners } else { &[] };
        let required = shown.iter().chain(by_owners).copied();
        report.require(required).unwrap_or_else(|violation| panic!("{violation}\n{report:?}"));
        report
    }

    fn expect(&self) -> Expect {
        let transactional = self.mode == "transactional";
        let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
        let mut excusing = Expect::default().excusing;
        excusing.insert(LAPSE.to_owned());
        let takeover = Takeover { bound: nanoseconds(TAKEOVER), settled: nanoseconds(SETTLED) };
        Expect {
            truth: Truth::Calls,
            // If a deadlock ends a transaction, its handler is called again.
            repeats: if transactional { Repeats::Any } else { Repeats::Explained },
            ownership: T::LOGS_OWNERS,
            takeover: T::LOGS_OWNERS.then_some(takeover),
            transactional: transactional.then(|| HANDLER.to_owned()).into_iter().collect(),
            excusing,
            ..Expect::default()
        }
    }

    /// All journals, the log of owners, and the effects that are in the database.
    async fn history(&self) -> Vec<Event> {
        let files = self.journals.iter().cloned().chain([self.folder.join("producer")]);
        let mut history = history::read(files).expect("journals");
        self.leave_out_lost(&mut history);
        history.extend(self.owners().await);
        history.sort_by_key(|event| event.at);
        let sql = format!("SELECT k, step FROM {}effect", self.prefix);
        let effects = T::numbers(&self.pool, sql).await.into_iter().map(|row| {
            let event = self.events[&(row[0] as u32, row[1] as u32)];
            let what = What::Effect { event, handler: HANDLER.to_owned() };
            Event { at: now(), process: "database".to_owned(), what }
        });
        history.extend(effects);
        history
    }

    /// Leaves out the events of records that the database has lost. A call of a worker has one record.
    fn leave_out_lost(&self, history: &mut Vec<Event>) {
        let mut calls = BTreeSet::new();
        history.retain(|event| match &event.what {
            What::CallBegan { call, records, .. } => {
                let lost = records.iter().any(|called| self.lost.contains(&called.event));
                !(lost && calls.insert(*call))
            }
            What::CallEnded { call, .. } => !calls.contains(call),
            _ => true,
        });
    }

    /// The owners and the members over time, on the clock of the journals.
    async fn owners(&self) -> Vec<Event> {
        let changes = T::changes(&self.pool, &self.prefix).await;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_nanos() as i128;
        let boot = i128::from(now());
        let mut last: BTreeMap<i64, (Option<String>, Option<i64>)> = BTreeMap::new();
        let mut events = Vec::new();
        for change in changes {
            let at = u64::try_from(i128::from(change.at) * 1_000 - wall + boot).unwrap_or_default();
            let instance = change.instance.clone().unwrap_or_default();
            let what = match (change.partition, change.state.as_deref()) {
                (Some(partition), _) => {
                    let now = (change.instance.clone(), change.generation);
                    if last.insert(partition, now.clone()) == Some(now) {
                        continue;
                    }
                    let (partition, generation) = (partition as u16, change.generation.unwrap_or_default());
                    match change.instance {
                        Some(instance) => What::Claimed { partition, instance, generation },
                        None => What::Unclaimed { partition, generation },
                    }
                }
                (None, Some("ACTIVE")) => What::Joined { instance },
                (None, Some("DRAINING")) => What::Draining { instance },
                (None, Some("STOPPED")) => What::Left { instance },
                (None, _) => What::Evicted { instance },
            };
            events.push(Event { at, process: "database".to_owned(), what });
        }
        events
    }
}
