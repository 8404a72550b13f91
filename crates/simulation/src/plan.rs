//! The plan of a seed: settings, handlers, load and faults. Each seed has another mix of kinds (swarm
//! testing: a run with few kinds of faults reaches states that a run with all kinds never does).

use std::{collections::BTreeSet, time::Duration};

use fastrand::Rng;
use keylane::{
    Completed, Config, Mode, OnFailure, OrderLevel, RetryPolicy, handler::OnUndecodable, rules::lease,
};
use keylane_checker::{Backoff, Expect, Order, Takeover};

use crate::{
    client::USUAL,
    fault::{Fault, Kind},
    time::TRUE,
};

/// The names of samples: the calls of a process at once.
pub(crate) const PLAIN_CALLS: &str = "calls of plain handlers";
pub(crate) const TRANSACTIONAL_CALLS: &str = "calls of transactional handlers";

/// The plan of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number from which the plan was drawn.
    pub seed: u64,
    /// The faults in the order of their times.
    pub faults: Vec<Fault>,
    /// The time for which the faults and the writers go on.
    pub run: Duration,
    /// Whether a failover gives out ids again that the earlier server has given out.
    pub ids_again: bool,
    /// The ids that are used up between two records: with many, few records take as many ids as hours of work.
    pub(crate) ids_between: i64,
    /// The rates of the clocks of the nodes with workers, in thousandths.
    pub(crate) rates: Vec<u32>,
    pub(crate) handlers: Vec<HandlerPlan>,
    pub(crate) config: Config,
    pub(crate) latency: Duration,
    pub(crate) writers: usize,
    pub(crate) keys: usize,
    /// The longest pause between two transactions of a writer.
    pub(crate) pause: Duration,
    /// The longest turn of a node.
    pub(crate) turn: Duration,
    pub(crate) habits: Habits,
    /// Whether the cluster is watched at rest after the faults.
    pub(crate) rests: bool,
}

/// The longest times of changes.
pub(crate) struct Bounds {
    /// Until a partition without an owner has another owner.
    pub(crate) takeover: Duration,
    /// Until shares are equal.
    pub(crate) settled: Duration,
}

/// The further behaviour of the user's code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Whether transactional handlers end their transaction, or begin another one instead.
    pub(crate) strays: bool,
    /// Whether producers and transactional handlers use savepoints.
    pub(crate) savepoints: bool,
    /// Whether serializers fail and panic.
    pub(crate) unwritable: bool,
    /// Whether the second build writes a version of the event that the first build cannot read.
    pub(crate) versions: bool,
    /// Whether decoders and upcasts panic.
    pub(crate) unreadable: bool,
    /// Whether events have dedup keys and delayed ones are cancelled.
    pub(crate) takes_back: bool,
}

impl Habits {
    fn draw(dice: &mut Rng) -> Self {
        let mut one_of = |count: u8| dice.u8(..count) == 0;
        Self {
            strays: one_of(3),
            savepoints: one_of(3),
            unwritable: one_of(4),
            versions: one_of(4),
            unreadable: false,
            takes_back: one_of(3),
        }
    }
}

/// One handler of the service.
#[derive(Clone, Debug)]
pub(crate) struct HandlerPlan {
    pub(crate) id: String,
    pub(crate) form: Form,
    pub(crate) fallback: bool,
    pub(crate) stop_on_first_failure: bool,
    pub(crate) on_failure: OnFailure,
    pub(crate) concurrency: Option<usize>,
    /// Whether the first and the second build have the handler.
    pub(crate) builds: (bool, bool),
}

/// The forms of handlers, with the size of their batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Single,
    Batch(usize),
    MixedBatch(usize),
    Transactional,
    TransactionalBatch(usize),
    TransactionalMixedBatch(usize),
}

impl Plan {
    /// Draws the plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Rng::with_seed(seed);
        let nodes = dice.usize(1..=3);
        let run = Duration::from_millis(dice.u64(3_000..10_000));
        let apart = dice.bool();
        let rate = |dice: &mut Rng| if apart { dice.u32(TRUE - 30..=TRUE + 30) } else { TRUE };
        let rates = (0..nodes).map(|_| rate(&mut dice)).collect();
        let count = dice.usize(1..=3);
        let handlers = (0..count).map(|number| HandlerPlan::draw(&mut dice, number)).collect();
        let config = config(&mut dice);
        let latency = if dice.bool() { USUAL } else { Duration::from_micros(dice.u64(..20_000)) };
        let (writers, keys) = (dice.usize(1..=4), dice.usize(1..=8));
        let pause = Duration::from_millis(dice.u64(50..1_000));
        let turn = Duration::from_millis(dice.u64(2..40));
        let faults = faults(&mut dice, nodes, run);
        let ids_again = dice.bool();
        let mut habits = Habits::draw(&mut dice);
        let rests = dice.u8(..6) == 0;
        let ids_between = [0, 0, 63, 1_023][dice.usize(..4)];
        habits.unreadable = dice.u8(..3) == 0;
        let mut plan = Self {
            seed,
            faults,
            run,
            ids_again,
            ids_between,
            rates,
            handlers,
            config,
            latency,
            writers,
            keys,
            pause,
            turn,
            habits,
            rests,
        };
        if dice.u8(..5) == 0 {
            plan = plan.claimed(&mut dice);
        }
        if dice.bool() {
            plan.config.retry.undecodable = OnUndecodable::Fail;
        }
        plan
    }

    /// The same plan in claimed mode: no lane stops, and nobody joins a cluster.
    fn claimed(mut self, dice: &mut Rng) -> Self {
        self.config.mode = Mode::Claimed;
        self.config.schedule.order = OrderLevel::default();
        let least = 2 * self.config.database.call_timeout.max(self.config.delivery.poll_interval);
        self.config.delivery.claim_lease = least + ms(dice, 0, 3_000);
        for handler in &mut self.handlers {
            (handler.stop_on_first_failure, handler.on_failure) = (false, OnFailure::Continue);
        }
        self.faults.retain(|fault| !matches!(fault.kind, Kind::Evict(_)));
        self.rests = false;
        self
    }

    /// Whether a build meets payloads that it cannot read, and they fail at once.
    pub(crate) fn fails_undecodable(&self) -> bool {
        self.habits.versions && self.config.retry.undecodable == OnUndecodable::Fail
    }

    /// Whether the mode is claimed.
    pub(crate) fn is_claimed(&self) -> bool {
        self.config.mode == Mode::Claimed
    }

    /// The same plan with only these faults, by their indices.
    #[must_use]
    pub fn only(&self, places: &[usize]) -> Self {
        let faults = places.iter().filter_map(|place| self.faults.get(*place).copied());
        Self { faults: faults.collect(), ..self.clone() }
    }

    /// The bounds of a takeover as in `docs/guarantees.md`, on clocks that are up to 3 % slow. A handover
    /// also waits for calls.
    pub(crate) fn bounds(&self) -> Bounds {
        let cluster = &self.config.cluster;
        let takeover =
            cluster.stale_instance_timeout + 3 * cluster.rebalance_interval + Duration::from_secs(2);
        Bounds { takeover: slow(takeover), settled: slow(takeover + cluster.handover_timeout) }
    }

    /// The pauses before retries, without the times of polls and queues.
    fn backoff(&self) -> Backoff {
        let pauses =
            (1..=16).map_while(|failures| self.config.retry.delay(failures, Default::default(), 0.5));
        let pauses: Vec<Duration> = pauses.collect();
        let least = |pause: &Duration| nanoseconds((*pause * 97 / 100).saturating_sub(self.turn));
        let most = |pause: &Duration| nanoseconds(slow(*pause) + self.bounds().settled);
        Backoff { least: pauses.iter().map(least).collect(), most: pauses.iter().map(most).collect() }
    }

    /// The expectations for the judge.
    pub(crate) fn expect(&self) -> Expect {
        let ids = |wanted: &dyn Fn(&HandlerPlan) -> bool| -> BTreeSet<String> {
            self.handlers.iter().filter(|plan| wanted(plan)).map(|plan| plan.id.clone()).collect()
        };
        let Bounds { takeover, settled } = self.bounds();
        let settled = nanoseconds(settled);
        let takeover = Takeover { bound: nanoseconds(takeover), settled };
        let delivery = &self.config.delivery;
        let bounds = [
            (PLAIN_CALLS.to_owned(), delivery.concurrency as u64),
            (TRANSACTIONAL_CALLS.to_owned(), delivery.transactional_concurrency as u64),
        ];
        let backoff = self.handlers.iter().map(|handler| (handler.id.clone(), self.backoff()));
        Expect {
            takeover: self.rests.then_some(takeover),
            head_waits: self.rests.then_some(settled),
            handover: settled,
            backoff: backoff.collect(),
            bounds: bounds.into(),
            order: match self.config.schedule.order {
                OrderLevel::Strict => Order::Strict,
                _ => Order::Causal,
            },
            ownership: !self.is_claimed(),
            claimed: self.is_claimed(),
            passes_failures: ids(&|plan| !self.is_claimed() && !plan.stop_on_first_failure),
            passes_failed: ids(&|plan| !self.is_claimed() && plan.on_failure == OnFailure::Continue),
            transactional: ids(&|plan| plan.form.is_transactional()),
            all_stopped: true,
            forgets: Some(Duration::from_secs(2).as_nanos() as u64),
            ..Expect::default()
        }
    }
}

impl HandlerPlan {
    fn draw(dice: &mut Rng, number: usize) -> Self {
        let size = dice.usize(2..12);
        let form = match dice.u8(..8) {
            0 => Form::Batch(size),
            1 => Form::MixedBatch(size),
            2 => Form::Transactional,
            3 => Form::TransactionalBatch(size),
            4 => Form::TransactionalMixedBatch(size),
            _ => Form::Single,
        };
        let builds = match dice.u8(..8) {
            // Both builds have the first handler, so that every event has one.
            0 if number > 0 => (true, false),
            1 if number > 0 => (false, true),
            _ => (true, true),
        };
        let stop_on_first_failure = dice.u8(..6) > 0;
        let goes_on = !stop_on_first_failure || dice.u8(..4) == 0;
        Self {
            id: format!("handler-{number}"),
            form,
            fallback: dice.u8(..3) == 0,
            stop_on_first_failure,
            on_failure: if goes_on { OnFailure::Continue } else { OnFailure::Block },
            concurrency: (dice.u8(..5) == 0).then(|| dice.usize(1..4)),
            builds,
        }
    }
}

impl Form {
    pub(crate) fn is_transactional(self) -> bool {
        matches!(self, Self::Transactional | Self::TransactionalBatch(_) | Self::TransactionalMixedBatch(_))
    }
}

/// A time as a clock that is 3 % slow measures it.
fn slow(time: Duration) -> Duration {
    time * 104 / 100
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn ms(dice: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(dice.u64(from..to))
}

fn config(dice: &mut Rng) -> Config {
    let mut config = Config::default();
    config.schedule.route_refresh = ms(dice, 500, 5_000);
    if dice.u8(..3) == 0 {
        config.schedule.order = OrderLevel::Strict;
    }
    let delivery = &mut config.delivery;
    delivery.poll_interval = ms(dice, 80, 1_000);
    delivery.batch_size = dice.usize(2..60);
    delivery.max_in_flight = delivery.batch_size + dice.usize(..150);
    delivery.concurrency = dice.usize(1..32);
    delivery.transactional_concurrency = dice.usize(1..5);
    delivery.handler_timeout = ms(dice, 500, 3_000);
    // There are many crashes here. The cluster tests cover records that fail because of crashes.
    delivery.max_crashes = if dice.bool() { 0 } else { 3 };
    config.database.call_timeout = ms(dice, 300, 1_500);
    let cluster = &mut config.cluster;
    cluster.heartbeat_interval = ms(dice, 150, 600);
    cluster.stale_instance_timeout =
        (cluster.heartbeat_interval * dice.u32(4..7)).max(Duration::from_secs(2));
    cluster.rebalance_interval = ms(dice, 100, 1_000);
    cluster.graceful_shutdown_timeout = ms(dice, 1_000, 10_000);
    let longest = lease::longest_hold(config.delivery.handler_timeout, config.database.call_timeout, true);
    cluster.handover_timeout = longest + ms(dice, 0, 4_000);
    cluster.instance_name = Some("node".to_owned());
    let retries = dice.u32(1..8);
    config.retry = match dice.bool() {
        true => RetryPolicy::fixed(ms(dice, 20, 500)).max_retries(retries),
        false => {
            let first = ms(dice, 20, 200);
            RetryPolicy::exponential().initial_delay(first).max_delay(first * 8).max_retries(retries)
        }
    };
    config.retention.completed = match dice.u8(..4) {
        0 => Completed::Keep,
        1 => Completed::Archive,
        _ => Completed::Delete,
    };
    config
}

fn faults(dice: &mut Rng, nodes: usize, run: Duration) -> Vec<Fault> {
    let mut kinds: Vec<u8> = (0..Fault::KINDS).collect();
    dice.shuffle(&mut kinds);
    kinds.truncate(dice.usize(1..=kinds.len()));
    let count = dice.usize(..12);
    let mut faults: Vec<Fault> = (0..count).map(|_| Fault::draw(dice, nodes, run, &kinds)).collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}
