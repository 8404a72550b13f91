//! Where a fetch begins while transactions stay open, judged by what it brings; and naive ways to decide it, each
//! of which is caught.

#![allow(clippy::unwrap_used, reason = "a property fails by panicking")]

use std::collections::BTreeSet;

use keylane::{
    RecordId,
    rules::witnesses::{Snapshot, Witness, Witnesses},
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{TestCaseResult, TestRng, TestRunner},
};

use super::{
    table::{KEYS, Kind, Table},
    watermark::stride,
    world::all,
};

const WRITERS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Event {
    Begin(usize),
    Insert(usize, usize),
    Commit(usize),
    RollBack(usize),
    RollBackPart(usize),
    /// A transaction that inserts one record and commits at once.
    Whole(usize),
    /// At most this many records in memory are completed, in a transaction that gives a witness.
    Settle(usize),
    Fetch,
    /// The bystanders are asked for. The answer counts from the next fetch on.
    Ask,
}

fn event() -> impl Strategy<Value = Event> {
    let (writer, key) = (0..WRITERS, 0..KEYS);
    prop_oneof![
        2 => writer.clone().prop_map(Event::Begin),
        6 => (writer.clone(), key.clone()).prop_map(|(writer, key)| Event::Insert(writer, key)),
        4 => writer.clone().prop_map(Event::Commit),
        1 => writer.clone().prop_map(Event::RollBack),
        1 => writer.prop_map(Event::RollBackPart),
        3 => key.prop_map(Event::Whole),
        3 => (1..6_usize).prop_map(Event::Settle),
        8 => Just(Event::Fetch),
        2 => Just(Event::Ask),
    ]
}

/// A way to decide where a fetch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The rule.
    Witnesses,
    /// Behind the last id that was read.
    HighWater,
    /// The lists of open transactions are compared after reading, for the next fetch.
    AfterReading,
    /// Only transactions that the snapshot lists as open count, not those from its end on.
    OnlyListed,
    /// A fetch that was cut by its limit does not lower how far was read.
    NotLowered,
    /// The last id of a witness is read after its number was drawn.
    LastIdAfterwards,
    /// The snapshot is that of an earlier statement.
    SnapshotBefore,
    /// The last id is read after the bystanders were.
    AskedBefore,
    /// A statement after the scan lists the seen ids.
    ListedAfterwards,
    /// Ids that are listed behind the last record of a cut scan count as read.
    ListedBeyond,
}

const NAIVE: [Way; 9] = [
    Way::HighWater,
    Way::AfterReading,
    Way::OnlyListed,
    Way::NotLowered,
    Way::LastIdAfterwards,
    Way::SnapshotBefore,
    Way::AskedBefore,
    Way::ListedAfterwards,
    Way::ListedBeyond,
];

struct Course {
    way: Way,
    table: Table,
    limit: usize,
    witnesses: Witnesses,
    /// For the naive ways: the snapshot of the last fetch, and the last id that it has read.
    before: Option<(Snapshot, RecordId)>,
    /// The snapshot of an earlier statement.
    earlier: Snapshot,
    /// The latest beginning of the next fetch by `AfterReading`.
    compared: Option<RecordId>,
    memory: BTreeSet<RecordId>,
    /// The last id that the last fetch has read.
    last_id: RecordId,
    /// The witness of a settle whose reply is under way.
    given: Option<Witness>,
    /// The bystanders, and the last id that was read before them.
    told: Option<(Vec<i64>, RecordId)>,
    /// Up to where the next statement lists what it sees.
    lists_to: Option<RecordId>,
}

impl Course {
    fn new(way: Way, limit: usize, stride: i64) -> Self {
        let table = Table::new(Kind::Numbered, stride);
        let (witnesses, memory, earlier) = (Witnesses::default(), BTreeSet::new(), Snapshot::default());
        let (before, compared, last_id, given, told, lists_to) = (None, None, 0, None, None, None);
        Self {
            way,
            table,
            limit,
            witnesses,
            before,
            earlier,
            compared,
            memory,
            last_id,
            given,
            told,
            lists_to,
        }
    }

    fn happen(&mut self, event: Event) -> TestCaseResult {
        let earlier = self.table.snapshot().unwrap();
        match event {
            Event::Begin(writer) => drop(self.table.begin(writer)),
            Event::Insert(writer, key) => self.table.insert(writer, key),
            Event::Commit(writer) => drop(self.table.commit(writer)),
            Event::RollBack(writer) => self.table.roll_back(writer),
            Event::RollBackPart(writer) => self.table.roll_back_to_savepoint(writer),
            Event::Whole(key) => {
                self.table.insert(WRITERS, key);
                self.table.commit(WRITERS);
            }
            Event::Settle(most) => self.settle(most),
            Event::Fetch => self.fetch()?,
            Event::Ask => self.told = Some((self.table.bystanders(), self.table.last_id())),
        }
        self.earlier = earlier;
        Ok(())
    }

    fn settle(&mut self, most: usize) {
        let done: Vec<RecordId> = self.memory.iter().copied().take(most).collect();
        for id in done {
            self.memory.remove(&id);
            self.table.rows.remove(&id);
        }
        self.tell();
        self.given = Some(Witness { last_id: self.last_id, number: self.table.whole() });
    }

    /// The reply to a settle comes.
    fn tell(&mut self) {
        if let Some(mut witness) = self.given.take() {
            if self.way == Way::LastIdAfterwards {
                witness.last_id = self.table.last_id();
            }
            self.witnesses.add(witness);
        }
    }

    /// The list that should have come with the scan.
    fn list_late(&mut self) {
        if let Some(to) = self.lists_to.take() {
            let listed: Vec<RecordId> = self.table.pending(all()).take_while(|id| *id <= to).collect();
            self.witnesses.see(&listed);
        }
    }

    /// The beginning of the fetch with this snapshot.
    fn first(&mut self, snapshot: &Snapshot) -> Option<RecordId> {
        let read_to = self.before.as_ref().map(|(_, read_to)| read_to + 1);
        let at_most = |first: Option<RecordId>| read_to.min(first.or(read_to));
        match self.way {
            Way::HighWater => read_to,
            Way::AfterReading => at_most(self.compared.take()),
            // This witness bounds all transactions from the end of the snapshot on, which no evidence shows.
            Way::OnlyListed => {
                let (before, _) = self.before.as_ref()?;
                let mut listed = self.witnesses.clone();
                listed.add(Witness { last_id: RecordId::MAX - 1, number: before.end });
                listed.first_under(snapshot)
            }
            Way::SnapshotBefore => self.witnesses.first_under(&self.earlier),
            _ => self.witnesses.first_under(snapshot),
        }
    }

    /// One fetch by one statement. If no beginning is known, the fetch begins at the first id.
    fn fetch(&mut self) -> TestCaseResult {
        self.tell();
        self.list_late();
        let snapshot = self.table.snapshot().unwrap();
        let from = self.first(&snapshot).unwrap_or(1);
        let (others, top) = (self.witnesses.others(from), self.witnesses.top());
        let is_read = |id: &RecordId| match &others {
            Some(ranges) => {
                Some(*id) > top || ranges.iter().any(|(first, last)| (first..=last).contains(&id))
            }
            None => *id >= from,
        };
        let lists = others.is_some() || self.witnesses.lists();
        let seen: Vec<RecordId> = self.table.pending(all()).collect();
        let found = seen.iter().filter(|id| is_read(id) && !self.memory.contains(id));
        let found: Vec<RecordId> = found.take(self.limit).copied().collect();
        for id in &found {
            let key = self.table.rows[id].key;
            self.memory.insert(*id);
            let earlier = seen.iter().filter(|other| *other < id && self.table.rows[other].key == key);
            let passed = earlier.copied().find(|other| !self.memory.contains(other));
            prop_assert_eq!(passed, None, "{:?}: {} was brought before it, from {}", self.way, id, from);
        }
        let full = found.len() >= self.limit;
        let last_id = self.table.last_id();
        let complete_to = if full { *found.last().unwrap() } else { last_id.max(from) };
        let read_to = match (self.way, &self.before) {
            (Way::NotLowered, Some((_, before))) => complete_to.max(*before),
            _ => complete_to,
        };
        if self.way == Way::AfterReading {
            self.compared = self.witnesses.first_under(&snapshot);
        }
        self.witnesses.read(&snapshot, read_to);
        let listed: Vec<RecordId> = seen.into_iter().filter(is_read).collect();
        match self.way {
            _ if !lists => {}
            Way::ListedAfterwards => self.lists_to = Some(complete_to),
            Way::ListedBeyond => self.witnesses.see(&listed),
            _ => self.witnesses.see(&listed[..listed.partition_point(|id| *id <= complete_to)]),
        }
        if let Some((numbers, asked_at)) = self.told.take() {
            let late = self.way == Way::AskedBefore;
            self.witnesses.stand_by(&numbers, if late { last_id } else { asked_at });
        }
        self.before = Some((snapshot, read_to));
        self.last_id = last_id;
        Ok(())
    }

    /// All committed records are brought in the end.
    fn end(&mut self) -> TestCaseResult {
        self.table.commit_writers();
        let mut rounds = 0;
        while !self.table.rows.is_empty() && rounds < 100 {
            self.happen(Event::Fetch)?;
            self.happen(Event::Settle(usize::MAX))?;
            rounds += 1;
        }
        prop_assert!(self.table.rows.is_empty(), "{:?} has passed over {:?}", self.way, self.table.rows);
        Ok(())
    }
}

fn run(way: Way, (limit, stride): (usize, i64), events: &[Event]) -> TestCaseResult {
    let mut course = Course::new(way, limit, stride);
    events.iter().try_for_each(|event| course.happen(*event))?;
    course.end()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..super::config() })]

    /// If a statement takes its snapshot and reads in one moment, no record is passed over, and none is brought
    /// before an earlier visible record of its key.
    #[test]
    fn nothing_below_the_beginning_was_not_there_before(
        limit in 1..6_usize,
        stride in stride(),
        events in vec(event(), 1..120),
    ) {
        run(Way::Witnesses, (limit, stride), &events)?;
    }

    /// The end of a transaction that has written nothing leads no fetch back.
    #[test]
    fn a_bystander_leads_no_fetch_back(rounds in 10..60_usize) {
        let mut course = Course::new(Way::Witnesses, 100, 1);
        course.happen(Event::Begin(0))?;
        for _ in 0..rounds {
            for event in [Event::Whole(1), Event::Ask, Event::Fetch, Event::Settle(usize::MAX)] {
                course.happen(event)?;
            }
        }
        course.happen(Event::Commit(0))?;
        let snapshot = course.table.snapshot().unwrap();
        let first = course.witnesses.first_under(&snapshot).unwrap();
        prop_assert!(first >= course.table.last_id() - 3, "{first} of {}", course.table.last_id());
    }

    /// After the end of a long transaction, only ids that were not seen are read again.
    #[test]
    fn what_was_seen_is_not_read_again(rounds in 20..40_usize) {
        let mut course = Course::new(Way::Witnesses, 100, 1_500);
        course.happen(Event::Fetch)?;
        course.happen(Event::Settle(0))?;
        course.happen(Event::Insert(0, 0))?;
        for _ in 0..rounds {
            for event in [Event::Whole(1), Event::Fetch, Event::Settle(usize::MAX)] {
                course.happen(event)?;
            }
        }
        course.happen(Event::Commit(0))?;
        let snapshot = course.table.snapshot().unwrap();
        let first = course.witnesses.first_under(&snapshot).unwrap();
        let others = course.witnesses.others(first).unwrap();
        let others_hold = |id: &RecordId| others.iter().any(|(first, last)| (first..=last).contains(&id));
        prop_assert!(first <= 1_500 && others_hold(&1_500), "{:?}", others);
        let seen = (5..rounds as i64).filter(|record| !others_hold(&(record * 1_500))).count();
        prop_assert!(seen + 5 >= rounds - 5, "{} of {}: {:?}", seen, rounds, others);
    }

    /// While a transaction stays open, fetches do not begin at it.
    #[test]
    fn an_open_transaction_holds_no_fetch_back(rounds in 10..60_usize, first in any::<bool>()) {
        let mut course = Course::new(Way::Witnesses, 100, 1);
        course.happen(Event::Fetch)?;
        course.happen(Event::Settle(0))?;
        let open = if first { Event::Insert(0, 0) } else { Event::Begin(0) };
        course.happen(open)?;
        for _ in 0..rounds {
            for event in [Event::Whole(1), Event::Fetch, Event::Settle(usize::MAX)] {
                course.happen(event)?;
            }
        }
        let first = course.witnesses.first().unwrap();
        prop_assert!(first >= course.table.last_id() - 3, "{first} of {}", course.table.last_id());
    }
}

/// The model finds mistakes: each naive way is caught within some hundred courses.
#[test]
fn naive_ways_are_caught() {
    for way in NAIVE {
        let config = ProptestConfig {
            cases: 1_000,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..super::config()
        };
        let seed = TestRng::deterministic_rng(config.rng_algorithm);
        let mut runner = TestRunner::new_with_rng(config, seed);
        let courses = std::cell::Cell::new(0);
        let found = runner.run(&((1..6_usize, stride()), vec(event(), 1..120)), |(limits, events)| {
            courses.set(courses.get() + 1);
            run(way, limits, &events)
        });
        let error = found.expect_err(&format!("{way:?} was not caught")).to_string();
        println!("{way:?}: caught in course {}: {}", courses.get(), error.lines().next().unwrap_or_default());
    }
}
