//! The user's code: its calls take time, fail, panic and hang as the fates of the records say, and are
//! written to the history.

use std::{marker::PhantomData, panic::resume_unwind, sync::Arc, time::Duration};

use fastrand::Rng;
use keylane::{
    BatchHandler, BatchResults, Delivery, FallbackHandler, Handler, HandlerError, OutboxEvent, Registration,
    TransactionalHandler,
    handler::{Failure, TransactionalBatchHandler},
    memory::{Memory, MemoryConnection, MemoryPool},
};
use keylane_checker::{CallKind, End, What};

use crate::{
    call::UnderWay,
    fate::{Fate, fate},
    node::{Process, Start},
    plan::{Form, Habits, HandlerPlan, Plan},
    readers,
    stray::stray,
    told::{Misreading, Moved, MovedAgain, reading},
};

/// The handlers of a process.
pub(crate) fn of(process: &Arc<Process>, plan: &Plan, start: Start, pool: &MemoryPool) -> Vec<Registration> {
    let there =
        |handler: &&HandlerPlan| start.all || if start.second { handler.builds.1 } else { handler.builds.0 };
    let all = plan.handlers.iter().filter(there);
    let all = all.flat_map(|handler| match plan.habits.versions && (start.second || start.all) {
        true => registrations(handler, act::<MovedAgain>((process, pool), plan, handler)),
        false => registrations(handler, act::<Moved>((process, pool), plan, handler)),
    });
    all.collect()
}

fn act<E>(
    (process, pool): (&Arc<Process>, &MemoryPool),
    plan: &Plan,
    handler: &HandlerPlan,
) -> impl Fn(CallKind) -> Act<E> {
    |kind| Act {
        in_transactions: handler.form.is_transactional(),
        process: Arc::clone(process),
        pool: pool.clone(),
        kind,
        timeout: plan.config.delivery.handler_timeout,
        stops: handler.stop_on_first_failure,
        habits: plan.habits,
        fails_undecodable: plan.fails_undecodable(),
        event: PhantomData,
    }
}

fn registrations<E: OutboxEvent>(plan: &HandlerPlan, act: impl Fn(CallKind) -> Act<E>) -> Vec<Registration> {
    let id = plan.id.as_str();
    let single = act(CallKind::Single);
    if single.habits.unreadable || single.fails_undecodable {
        return completed(plan, readers::registrations(plan, act));
    }
    let one = match plan.form {
        Form::Single => Registration::typed(id, act(CallKind::Single)),
        Form::Batch(size) => Registration::batch(id, size, act(CallKind::Batch)),
        Form::MixedBatch(size) => Registration::mixed_batch(id, size, act(CallKind::Batch)),
        Form::Transactional => Registration::transactional::<Memory, _>(id, act(CallKind::Transactional)),
        Form::TransactionalBatch(size) => {
            Registration::transactional_batch::<Memory, _>(id, size, act(CallKind::TransactionalBatch))
        }
        Form::TransactionalMixedBatch(size) => {
            Registration::transactional_mixed_batch::<Memory, _>(id, size, act(CallKind::TransactionalBatch))
        }
    };
    let fallback = Registration::fallback(id, act(CallKind::Fallback));
    completed(plan, (one, fallback))
}

/// The handler with its options, and its fallback if it has one.
fn completed(plan: &HandlerPlan, (one, fallback): (Registration, Registration)) -> Vec<Registration> {
    let one = one.stop_on_first_failure(plan.stop_on_first_failure).on_failure(plan.on_failure);
    let one = match plan.concurrency {
        Some(calls) => one.concurrency(calls),
        None => one,
    };
    [one].into_iter().chain(plan.fallback.then_some(fallback)).collect()
}

/// One handler.
pub(crate) struct Act<E> {
    /// Whether the handler is transactional.
    in_transactions: bool,
    process: Arc<Process>,
    /// The pool for the handler's own transactions.
    pool: MemoryPool,
    kind: CallKind,
    timeout: Duration,
    /// Whether the handler must stop at the first failure of a lane.
    stops: bool,
    habits: Habits,
    /// Whether a payload that this build cannot read fails at once.
    fails_undecodable: bool,
    event: PhantomData<fn() -> E>,
}

impl<E> Act<E> {
    /// Reads payloads, which may panic. Then it is a call whose handler panics.
    pub(crate) fn read<T>(&self, deliveries: &[&Delivery], read: impl FnOnce() -> T) -> T {
        let fate = deliveries.first().and_then(|delivery| self.reading(delivery));
        reading(fate, read).unwrap_or_else(|panic| {
            let what = fate.map_or("another panic", Misreading::name);
            self.process.note(What::Saw { what: what.to_owned() });
            let mut call = self.begin(deliveries);
            call.whole(End::Panicked);
            call.end();
            resume_unwind(panic)
        })
    }

    /// Takes note of records that this build cannot read, if they fail because of that. Then it is a call whose
    /// handler fails for good.
    pub(crate) fn cannot_read(&self, deliveries: &[&Delivery]) {
        if self.fails_undecodable {
            self.saw_failing_payload();
            let mut call = self.begin(deliveries);
            call.whole(End::Permanent);
            call.end();
        }
    }

    fn saw_failing_payload(&self) {
        self.process.note(What::Saw { what: "undecodable and failed".to_owned() });
    }

    /// How the payload of a record is misread in this attempt, if it is.
    fn reading(&self, delivery: &Delivery) -> Option<Misreading> {
        if !self.habits.unreadable {
            return None;
        }
        let (world, kind) = (&self.process.world, self.kind);
        let seed = format!("{} {} reads {} {kind:?}", delivery.event_id, delivery.handler, delivery.attempt);
        Misreading::draw(&mut Rng::with_seed(world.seed_of(&seed))).filter(|_| !world.is_settling())
    }
}

impl<E> Act<E> {
    fn begin(&self, deliveries: &[&Delivery]) -> UnderWay<'_> {
        UnderWay::begin(&self.process, self.kind, (self.in_transactions, self.timeout), deliveries)
    }

    fn fate(&self, delivery: &Delivery) -> Fate {
        let world = &self.process.world;
        let (call, repaired) = world.called(delivery.event_id, &delivery.handler);
        let seed = world.seed_of(&format!("{} {}", delivery.event_id, delivery.handler));
        let repaired = repaired || self.kind == CallKind::Fallback && !seed.is_multiple_of(4);
        fate(seed, call, repaired, self.timeout, self.habits.strays, world.is_resting())
    }

    /// Works on all records of a call, one after another. If this build cannot read the record after them, and such
    /// records fail, that record is the last one of the call.
    pub(crate) async fn work(&self, deliveries: &[&Delivery], unread: Option<&Delivery>) -> BatchResults {
        let unread = unread.filter(|_| self.fails_undecodable);
        let called: Vec<&Delivery> = deliveries.iter().copied().chain(unread).collect();
        if called.is_empty() {
            return Vec::new();
        }
        let mut call = self.begin(&called);
        let mut failed: Vec<&str> = Vec::new();
        let mut results = Vec::new();
        for delivery in deliveries {
            if self.stops && failed.contains(&delivery.key.as_str()) {
                call.ends.push(End::Dropped);
                results.push(Err(HandlerError::new("one before it has failed")));
                continue;
            }
            let result = call.one(self.fate(delivery)).await;
            if result.is_err() {
                failed.push(&delivery.key);
            }
            results.push(result);
        }
        if let Some(unread) = unread {
            self.saw_failing_payload();
            let held_back = self.stops && failed.contains(&unread.key.as_str());
            call.ends.push(if held_back { End::Dropped } else { End::Permanent });
        }
        call.end();
        results
    }

    /// Works on all records, or on none.
    async fn work_whole(
        &self,
        deliveries: &[&Delivery],
        conn: &mut MemoryConnection,
    ) -> Result<(), HandlerError> {
        let mut call = self.begin(deliveries);
        let (mut effects, mut strayed) = (Vec::new(), false);
        for delivery in deliveries {
            let effect = format!("{} {}", delivery.event_id, delivery.handler);
            match self.habits.savepoints {
                true => push_within(conn, &effect, delivery.attempt).await,
                false => conn.push_effect(effect),
            }
            effects.push((delivery.event_id, delivery.handler.to_string()));
            let fate = self.fate(delivery);
            let mut result = call.one(fate).await;
            if let (Ok(()), Some(with)) = (&result, fate.stray) {
                strayed = true;
                result = stray(with, &self.process, &self.pool, conn, std::mem::take(&mut effects)).await;
            }
            if let Err(error) = result {
                // The transaction fails as a whole, with all its records.
                let end = call.ends.pop().filter(|end| *end != End::Ok).unwrap_or(End::Failed);
                call.whole(end);
                call.end();
                return Err(error);
            }
        }
        if strayed {
            // The handler does not know of the misuse, but the library finds it if the database answers.
            call.whole(End::Refused);
        }
        call.end();
        Ok(())
    }
}

/// Writes an effect after a savepoint that is released, and once more after one that is rolled back to:
/// within the first or after it.
async fn push_within(conn: &mut MemoryConnection, effect: &str, attempt: u32) {
    let Ok(mut released) = conn.begin().await else { return };
    released.push_effect(effect);
    if attempt.is_multiple_of(2)
        && let Ok(mut within) = released.begin().await
    {
        within.push_effect(effect);
    }
    drop(released.commit().await);
    if let Ok(mut undone) = conn.begin().await {
        undone.push_effect(effect);
    }
}

impl<E: OutboxEvent> Handler for Act<E> {
    type Event = E;

    async fn handle(&self, _: E, delivery: &Delivery) -> Result<(), HandlerError> {
        self.work(&[delivery], None).await.pop().unwrap_or(Ok(()))
    }
}

impl<E: OutboxEvent> BatchHandler for Act<E> {
    type Event = E;

    async fn handle(&self, _: Vec<E>, deliveries: &[&Delivery]) -> BatchResults {
        self.work(deliveries, None).await
    }
}

impl<E: OutboxEvent> TransactionalHandler<Memory> for Act<E> {
    type Event = E;

    async fn handle(
        &self,
        _: E,
        conn: &mut MemoryConnection,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        self.work_whole(&[delivery], conn).await
    }
}

impl<E: OutboxEvent> TransactionalBatchHandler<Memory> for Act<E> {
    type Event = E;

    async fn handle(
        &self,
        _: Vec<E>,
        conn: &mut MemoryConnection,
        deliveries: &[&Delivery],
    ) -> Result<(), HandlerError> {
        self.work_whole(deliveries, conn).await
    }
}

impl<E: OutboxEvent> FallbackHandler for Act<E> {
    type Event = E;

    async fn handle(&self, _: E, failure: &Failure) -> Result<(), HandlerError> {
        self.work(&[&failure.delivery], None).await.pop().unwrap_or(Ok(()))
    }
}
