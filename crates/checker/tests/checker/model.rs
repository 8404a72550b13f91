//! A small outbox that writes valid histories: producers, instances, a database that can fail over. It shares only the
//! form of an event with the judge. It sees the whole state, so it needs none of the rules of the judge.

use std::collections::{BTreeMap, BTreeSet};

use keylane_checker::{Backoff, Event, Expect, Status, Takeover, What};
use uuid::Uuid;

use crate::{cluster::Instance, producers::Transaction};

pub(crate) const LEASE: u64 = 1_000_000;
pub(crate) const BACKOFF: u64 = 100_000;
/// A time that no history of the model reaches without meaning to.
pub(crate) const LONG: u64 = 40_000_000;
pub(crate) const HANDLERS: [&str; 3] = ["mail", "bill", "post"];
pub(crate) const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// The expectations of the histories of the model.
pub(crate) fn expect() -> Expect {
    Expect {
        all_stopped: true,
        forgets: Some(LONG),
        takeover: Some(Takeover { bound: 10_000_000, settled: 30_000_000 }),
        head_waits: Some(20_000_000),
        transactional: BTreeSet::from(["bill".to_owned()]),
        backoff: HANDLERS
            .map(|handler| (handler.to_owned(), Backoff { least: vec![BACKOFF], most: vec![20_000_000] }))
            .into(),
        bounds: BTreeMap::from([("connections".to_owned(), 5)]),
        canary: Some("canary".to_owned()),
        sometimes: BTreeSet::from(["tea".to_owned()]),
        ..Expect::default()
    }
}

/// The choices that decide the history. When they are used up, the model finishes.
pub(crate) struct Choices {
    all: Vec<u16>,
    next: usize,
}

impl Choices {
    pub(crate) fn are_left(&self) -> bool {
        self.next < self.all.len()
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let choice = self.all.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        usize::from(choice) % bound.max(1)
    }
}

/// A row of the database.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) event: Uuid,
    pub(crate) key: usize,
    pub(crate) handler: usize,
    pub(crate) status: Status,
    pub(crate) attempts: u32,
    pub(crate) due: u64,
    /// Scheduled for later, and never called.
    pub(crate) fresh: bool,
}

/// The state to which a failover may go back.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) rows: BTreeMap<i64, Row>,
    /// The owner, as a place in the list of instances, and the generation.
    pub(crate) owners: Vec<(Option<usize>, i64)>,
    pub(crate) effects: Vec<(Uuid, usize)>,
    pub(crate) members: usize,
}

pub(crate) struct Model {
    pub(crate) choices: Choices,
    pub(crate) now: u64,
    pub(crate) history: Vec<Event>,
    pub(crate) database: Database,
    pub(crate) snapshot: Option<(u64, Database)>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) next_id: i64,
    pub(crate) next_call: u64,
    pub(crate) next_event: u128,
    /// From now on every handler succeeds.
    pub(crate) benign: bool,
}

/// The partition of a key.
pub(crate) const fn partition(key: usize) -> u16 {
    (key * 60) as u16
}

impl Model {
    fn new(choices: Vec<u16>) -> Self {
        let database =
            Database { rows: BTreeMap::new(), owners: vec![(None, 0); 256], effects: Vec::new(), members: 0 };
        Self {
            choices: Choices { all: choices, next: 0 },
            now: 1_000,
            history: Vec::new(),
            database,
            snapshot: None,
            instances: Vec::new(),
            transactions: Vec::new(),
            next_id: 1,
            next_call: 1,
            next_event: 1,
            benign: false,
        }
    }

    pub(crate) fn tell(&mut self, process: &str, what: What) {
        self.now += 10;
        self.history.push(Event { at: self.now, process: process.to_owned(), what });
    }

    pub(crate) fn call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call
    }

    fn step(&mut self) {
        self.now += self.choices.below(20) as u64 * 1_000;
        self.renew();
        match self.choices.below(64) {
            0..14 => self.write(),
            14..19 => self.end_transaction(),
            19..38 => self.begin_calls(),
            38..52 => self.end_calls(),
            52..55 => self.settle_one(),
            56 => self.join_one(),
            57 => self.leave_one(),
            58 => self.crash(),
            55 | 59 => self.pause(),
            60 | 61 => self.repair(),
            62 => self.snapshot = Some((self.now, self.database.clone())),
            _ => self.fail_over(),
        }
    }

    fn finish(&mut self) {
        self.benign = true;
        while !self.transactions.is_empty() {
            self.end_transaction();
        }
        self.tell("test", What::Saw { what: "tea".to_owned() });
        self.tell("test", What::Sampled { name: "connections".to_owned(), value: 5 });
        self.tell("test", What::Logged { text: "all is well".to_owned() });
        self.tell("test", What::Settling);
        for _ in 0..100_000 {
            if self.database.rows.is_empty() {
                break;
            }
            self.now += 1_000;
            self.renew();
            self.end_calls();
            self.settle_all();
            self.repair();
            self.begin_calls();
        }
        assert!(self.database.rows.is_empty(), "the model itself leaves {:?}", self.database.rows);
        self.now += LONG;
        self.renew();
        while self.live().count() > 0 {
            self.leave_first();
            self.now += LONG;
            self.renew();
        }
        for (event, handler) in self.database.effects.clone() {
            self.tell("database", What::Effect { event, handler: HANDLERS[handler].to_owned() });
        }
        self.tell("test", What::Finished);
        self.tell("test", What::Remains { name: "sessions".to_owned(), value: 0 });
    }
}

/// The history that follows from these choices.
pub(crate) fn history(choices: Vec<u16>) -> Vec<Event> {
    let mut model = Model::new(choices);
    for _ in 0..2 {
        model.join();
    }
    while model.choices.are_left() {
        model.step();
    }
    model.finish();
    model.history
}
