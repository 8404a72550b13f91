//! The settler: writes outcomes in batches and resolves each lost reply.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    delivery::{
        resolve::{FIRST_PAUSE, LAST_PAUSE, resolve},
        signals::NO_TEXT,
    },
    record::{Change, RecordId, Settlement},
    store::{ErrorClass, FenceRow, Resolution, SPARE_ROWS, SettleError, Settled, Store, StoreError},
    telemetry::{Observers, Signal},
};

/// The number of settles under one fence row before the next row takes its turn. Each turn fills pages of its own.
const TURN: u32 = 512;

/// Writes outcomes under one fence row at a time.
pub(in crate::delivery) struct Settler {
    /// Where outcomes are written. Never changes.
    store: Arc<dyn Store>,
    /// Receives the signals. Never changes.
    observers: Observers,
    /// The fence row of the settler. Its counter moves on with each settle and each resolution.
    fence: FenceRow,
    /// The rows that wait for their turns. PostgreSQL looks through all versions of a row that an open snapshot
    /// keeps, so settles are spread over several rows.
    spares: VecDeque<FenceRow>,
    /// The settles that are left of the turn.
    left: u32,
}

/// The result of a batch.
pub(in crate::delivery) struct Written {
    pub(in crate::delivery) settled: Settled,
    /// Records whose outcome the database refuses. These outcomes were not written.
    pub(in crate::delivery) refused: Vec<RecordId>,
}

/// This instance has been evicted: no write of it is applied any more.
pub(in crate::delivery) struct Evicted;

impl Settler {
    pub(in crate::delivery) fn new(store: Arc<dyn Store>, observers: Observers, fence: FenceRow) -> Self {
        Self { store, observers, fence, spares: VecDeque::new(), left: TURN }
    }

    /// Settles under these rows, too, by turns: those from this slot on.
    pub(in crate::delivery) fn with_spares_from(mut self, slot: u32) -> Self {
        self.spares = (slot..slot + SPARE_ROWS).map(|slot| FenceRow { slot, ..self.fence }).collect();
        self
    }

    /// The write under the fence row is durable: its counter has moved on.
    fn moved(&mut self) {
        self.fence = self.fence.moved();
        self.left -= 1;
        if self.left == 0 {
            self.left = TURN;
            self.spares.push_back(self.fence);
            self.fence = self.spares.pop_front().unwrap_or(self.fence);
        }
    }

    /// Writes the batch, and tries again while the database is unreachable. Returns once each outcome is
    /// durable or refused. Errors: [`Evicted`], if the fence row is closed.
    pub(in crate::delivery) async fn settle(
        &mut self,
        settlements: &[Settlement],
    ) -> Result<Written, Evicted> {
        let error = match self.settle_together(settlements).await? {
            Ok(settled) => return Ok(Written { settled, refused: Vec::new() }),
            Err(error) => error,
        };
        Box::pin(self.settle_apart(settlements, error)).await
    }

    /// Writes the batch as a whole. Returns the error if the database refuses it.
    async fn settle_together(
        &mut self,
        settlements: &[Settlement],
    ) -> Result<Result<Settled, StoreError>, Evicted> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.store.settle(self.fence, settlements).await {
                Ok(settled) => {
                    self.moved();
                    self.observers.emit(Signal::Settled { records: settled.applied + settled.held });
                    return Ok(Ok(settled));
                }
                Err(SettleError::Fenced) => None,
                Err(SettleError::Store(error)) => Some(error),
            };
            if let Some(error) = &error {
                self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            }
            match resolve(&*self.store, &self.observers, self.fence).await {
                Resolution::Closed => return Err(Evicted),
                // The numbers of applied holds and of lanes released in steps are unknown. No hold and every
                // lane are the safe answers.
                Resolution::Applied => {
                    self.moved();
                    let (applied, releasing) = (settlements.len(), settlements.len());
                    return Ok(Ok(Settled { applied, releasing, ..Settled::default() }));
                }
                Resolution::NotApplied => self.fence = self.fence.invalidated(),
            }
            if let Some(error) = error.filter(is_refusal) {
                return Ok(Err(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// The database refuses an outcome of the batch: finds it by halves. Then its error text, the only
    /// content of a user, is replaced. If the database refuses that too, a trigger of the user is the cause.
    async fn settle_apart(
        &mut self,
        settlements: &[Settlement],
        error: StoreError,
    ) -> Result<Written, Evicted> {
        if let [one] = settlements {
            let bare = without_text(one);
            let refused = match bare == *one {
                true => Err(error),
                false => self.settle_together(&[bare]).await?,
            };
            return Ok(match refused {
                Ok(settled) => Written { settled, refused: Vec::new() },
                Err(_) => Written { settled: Settled::default(), refused: vec![one.id] },
            });
        }
        let (first, second) = settlements.split_at(settlements.len() / 2);
        let Written { settled: one, mut refused } = self.settle(first).await?;
        let Written { settled: two, refused: more } = self.settle(second).await?;
        refused.extend(more);
        Ok(Written { settled: both(&one, &two), refused })
    }
}

/// Whether a second try would be refused again: the outcome is the cause, not the connection.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error.class, ErrorClass::Record | ErrorClass::Duplicate | ErrorClass::Refused)
}

fn without_text(settlement: &Settlement) -> Settlement {
    let mut settlement = settlement.clone();
    if let Change::Retry { error, .. } | Change::Fail { error, .. } = &mut settlement.change {
        NO_TEXT.clone_into(error);
    }
    settlement
}

/// The results of two settles as one. Their transactions have no number in common.
fn both(one: &Settled, two: &Settled) -> Settled {
    Settled {
        applied: one.applied + two.applied,
        held: one.held + two.held,
        releasing: one.releasing + two.releasing,
        number: None,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use tokio::time::Instant;

    use super::*;
    use crate::{
        delivery::fixtures,
        instance::InstanceId,
        memory::{Fault, MemoryPool},
        record::Due,
        rules::horizon::Server,
        store::NewInstance,
        telemetry::Observer,
    };

    /// Counts the records of each settle.
    #[derive(Default)]
    struct Told(Mutex<Vec<usize>>);

    impl Observer for Told {
        fn on(&self, signal: &Signal) {
            if let Signal::Settled { records } = signal {
                self.0.lock().unwrap().push(*records);
            }
        }
    }

    /// A settler on a database with two records, 1 and 2.
    async fn settler(pool: &MemoryPool) -> (Settler, Arc<Told>) {
        fixtures::schedule(pool, &[Due::Now, Due::Now]).await;
        let (store, me, told) = (fixtures::store(pool), InstanceId::generate(), Arc::new(Told::default()));
        let (name, version) = (String::new(), String::new());
        store.join(&NewInstance { id: me, name, version, fence_rows: 1 + SPARE_ROWS }).await.unwrap();
        let observers = Observers::new(vec![Arc::<Told>::clone(&told)]);
        (Settler::new(store, observers, FenceRow::of_settler(me, Server::default())), told)
    }

    fn settlements() -> [Settlement; 2] {
        let stop = Change::Retry { delay: Duration::ZERO, error: String::new(), stop: true, counted: true };
        let of = |id, change| Settlement { id, failures: 0, change };
        [of(1, stop), of(2, Change::Hold { behind: 1 })]
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_is_told_of() {
        let (mut settler, told) = settler(&MemoryPool::new()).await;
        let written = settler.settle(&settlements()).await.ok().unwrap();
        assert_eq!((written.settled.applied, written.settled.held), (1, 1));
        assert_eq!(*told.0.lock().unwrap(), [2]);
    }

    /// No hold, and every lane released in steps, are the answers after which nothing is passed over.
    #[tokio::test(start_paused = true)]
    async fn after_a_lost_reply_all_is_applied_and_whatever_can_be_is_looked_for() {
        let pool = MemoryPool::new();
        let (mut settler, _) = settler(&pool).await;
        pool.fail_next("settle", 1, Fault::LostReply);
        let settled = settler.settle(&settlements()).await.ok().unwrap().settled;
        assert_eq!((settled.applied, settled.held, settled.releasing), (2, 0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_tried_again_at_growing_distances() {
        let pool = MemoryPool::new();
        let (mut settler, _) = settler(&pool).await;
        pool.fail_next("settle", 10, Fault::NotApplied);
        let began = Instant::now();
        assert!(settler.settle(&settlements()).await.is_ok());
        // 10 ms, 20, 40 and so on, and no more than 2 s each.
        assert_eq!(began.elapsed(), Duration::from_millis(10 * ((1 << 8) - 1) + 2 * 2_000));
    }

    #[tokio::test(start_paused = true)]
    async fn settles_are_spread_over_the_rows_that_the_join_has_made() {
        let pool = MemoryPool::new();
        let (mut settler, _) = settler(&pool).await;
        settler = settler.with_spares_from(1);
        let mut turns = vec![0; SPARE_ROWS as usize + 1];
        for number in 0..TURN * (SPARE_ROWS + 1) * 2 {
            turns[settler.fence.slot as usize] += 1;
            if number % 1_000 == 0 {
                pool.fail_next(
                    "settle",
                    1,
                    if number % 2_000 == 0 { Fault::LostReply } else { Fault::NotApplied },
                );
            }
            assert!(settler.settle(&settlements()).await.is_ok(), "settle {number}");
        }
        assert_eq!(turns, vec![TURN * 2; SPARE_ROWS as usize + 1]);
    }

    #[test]
    fn two_settles_count_as_one() {
        let settled = |applied, held, releasing| Settled { applied, held, releasing, number: None };
        let sum = both(&settled(1, 20, 300), &settled(4, 50, 600));
        assert_eq!((sum.applied, sum.held, sum.releasing), (5, 70, 900));
        assert_eq!(sum.number, None);
    }

    /// All other errors are of the connection or the server, and the batch is tried again as it is.
    #[test]
    fn only_errors_of_the_outcome_itself_are_refusals() {
        use ErrorClass::{Duplicate, Reconnect, Record, Refused, Resource, Retry, Setup, WrongNode};
        let refused = |class| is_refusal(&StoreError::new("settle", class, "no"));
        assert!([Record, Duplicate, Refused].into_iter().all(refused));
        assert!(![Retry, Reconnect, WrongNode, Resource, Setup].into_iter().any(refused));
    }

    #[test]
    fn an_outcome_without_its_text_is_the_same_outcome() {
        let settlement = |change| Settlement { id: 1, failures: 2, change };
        assert_eq!(without_text(&settlement(Change::Complete)), settlement(Change::Complete));
        let retry = |error: &str| Change::Retry {
            delay: Duration::ZERO,
            error: error.to_owned(),
            stop: true,
            counted: true,
        };
        assert_eq!(without_text(&settlement(retry("\0"))), settlement(retry(NO_TEXT)));
    }
}
