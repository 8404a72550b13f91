//! Fetches that follow the low watermark, step by step between the statements of writers: no record is passed
//! over, and none comes before a record that it may depend on.

use proptest::{collection::vec, prelude::*, test_runner::TestCaseResult};

use super::{
    table::{KEYS, Kind, PARTITIONS},
    world::{World, all},
};

/// Writers, each with a connection of its own.
const WRITERS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A writer's transaction gets its number, but draws no id yet.
    Begin(usize),
    Insert(usize, usize),
    Commit(usize),
    /// A transaction that inserts one record and commits at once.
    Whole(usize),
    RollBack(usize),
    /// A savepoint is taken back.
    RollBackPart(usize),
    /// Ids are drawn and never inserted.
    Burn(i64),
    /// A fetch begins, or takes its next step.
    Fetch,
    /// A fetch of partitions with nothing in memory begins, or any fetch takes its next step.
    FetchIdle,
    /// The fetch under way fails.
    Fail,
    /// It is time to search for records that others have made pending.
    FetchByPartition,
    /// A settle begins, of at most this many records, which it holds or completes; or a settle takes its next
    /// step.
    Settle(usize, bool),
    /// Queued records of this key are requeued.
    Requeue(usize),
    /// Held records of this key are pending again.
    Return(usize),
    Lose(usize),
    Gain(usize),
    /// Another instance completes the first record of the partitions that are not owned.
    Elsewhere,
}

impl Event {
    /// Whether the next fetch begins at the head because of this event.
    fn unsettles(self) -> bool {
        use Event::{Fail, FetchByPartition, Lose, Requeue, Return};
        matches!(self, Fail | FetchByPartition | Requeue(_) | Return(_) | Lose(_))
    }
}

fn event() -> impl Strategy<Value = Event> {
    let (writer, key) = (0..WRITERS, 0..KEYS);
    let ids = prop_oneof![4 => 1..9_i64, 1 => 4_090..4_100_i64, 1 => 50_000..150_000_i64];
    prop_oneof![
        2 => writer.clone().prop_map(Event::Begin),
        9 => (writer.clone(), key.clone()).prop_map(|(writer, key)| Event::Insert(writer, key)),
        6 => writer.clone().prop_map(Event::Commit),
        4 => key.clone().prop_map(Event::Whole),
        2 => writer.clone().prop_map(Event::RollBack),
        1 => writer.prop_map(Event::RollBackPart),
        1 => ids.prop_map(Event::Burn),
        24 => Just(Event::Fetch),
        1 => Just(Event::FetchIdle),
        1 => Just(Event::Fail),
        1 => Just(Event::FetchByPartition),
        9 => (1..6_usize, prop::bool::weighted(0.2)).prop_map(|(most, hold)| Event::Settle(most, hold)),
        1 => key.clone().prop_map(Event::Requeue),
        1 => key.prop_map(Event::Return),
        1 => (0..PARTITIONS).prop_map(Event::Lose),
        2 => (0..PARTITIONS).prop_map(Event::Gain),
        1 => Just(Event::Elsewhere),
    ]
}

impl World {
    fn happen(&mut self, event: Event) -> TestCaseResult {
        self.table.now += 1;
        match event {
            Event::Begin(writer) => drop(self.table.begin(writer)),
            Event::Insert(writer, key) => self.table.insert(writer, key),
            Event::Commit(writer) => drop(self.table.commit(writer)),
            Event::Whole(key) => {
                self.table.insert(WRITERS, key);
                self.table.commit(WRITERS);
            }
            Event::RollBack(writer) => self.table.roll_back(writer),
            Event::RollBackPart(writer) => self.table.roll_back_to_savepoint(writer),
            Event::Burn(ids) => self.table.burn(ids),
            Event::Fetch => return self.go_on_fetching(false),
            Event::FetchIdle => return self.go_on_fetching(true),
            Event::Fail => self.fail(),
            Event::FetchByPartition => self.readings.fetch_by_partition_next(),
            Event::Settle(most, hold) => self.go_on_settling(most, hold),
            Event::Requeue(key) => self.requeue(|of| of == key),
            Event::Return(key) => self.return_held(key),
            Event::Lose(number) => self.lose(number),
            Event::Gain(number) => self.gain(number),
            Event::Elsewhere => {
                let first = self.table.pending(all().without(self.owned)).next();
                first.map(|id| self.table.rows.remove(&id));
            }
        }
        Ok(())
    }

    /// Ends everything under way, and gains all partitions.
    fn quiet(&mut self) -> TestCaseResult {
        self.finish()?;
        self.table.commit_writers();
        (0..PARTITIONS).for_each(|number| self.gain(number));
        (0..KEYS).for_each(|key| self.return_held(key));
        Ok(())
    }

    /// One whole fetch, and a settle of what it has brought.
    fn round(&mut self) -> TestCaseResult {
        self.happen(Event::Fetch)?;
        self.happen(Event::Settle(usize::MAX, false))?;
        self.finish()
    }
}

/// How far ids are apart: with many in between, few records are far from one another.
pub(crate) fn stride() -> impl Strategy<Value = i64> {
    prop_oneof![2 => Just(1_i64), 1 => Just(64), 2 => Just(1_500)]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![2 => Just(Kind::Numbered), 1 => Just(Kind::Late), 1 => Just(Kind::Serial)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..super::config() })]

    /// When a fetch brings a record, the records of its key that were committed before it was scheduled are in
    /// memory (see `take_in`). Once no event comes any more, all records are brought and completed.
    #[test]
    fn fetches_pass_over_nothing(
        kind in kind(),
        limit in 1..8_usize,
        stride in stride(),
        // In calm cases no event makes a fetch begin at the head, which would also find records that were
        // passed over.
        calm in prop::bool::weighted(0.7),
        events in vec(event(), 1..200),
    ) {
        let mut world = World::new(kind, limit, stride);
        for event in events.into_iter().filter(|event| !calm || !event.unsettles()) {
            world.happen(event)?;
        }
        world.quiet()?;
        let mut rounds = 0;
        while !world.table.rows.is_empty() && rounds < 300 {
            world.round()?;
            rounds += 1;
        }
        prop_assert!(world.table.rows.is_empty(), "passed over: {:?}", world.table.rows);
    }
}

proptest! {
    #![proptest_config(super::config())]

    /// While records come and go, the beginning of fetches moves on.
    #[test]
    fn the_low_watermark_comes_along(kind in kind(), events in vec(event(), 1..100)) {
        let mut world = World::new(kind, 10, 1);
        for event in events {
            world.happen(event)?;
        }
        world.quiet()?;
        let mut near = false;
        for _ in 0..100 {
            world.happen(Event::Whole(0))?;
            world.round()?;
            let last_id = world.table.horizon().last_id;
            near |= world.next_scan().is_some_and(|from| from > last_id - 10);
        }
        prop_assert!(near, "{:?} is far behind {:?}", world.readings, world.table.horizon());
    }
}
