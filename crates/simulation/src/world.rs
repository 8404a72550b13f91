//! The world: nodes take turns, faults begin and end, and in the end all work must be done.

mod calm;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use keylane::{
    Outbox,
    database::Database as _,
    inner::{StoreSettings, conditions::Moment},
    memory::Memory,
};
use keylane_checker::{Event, Invariant, Report, Violation, What};

use crate::{
    client::Client,
    fault::{Fault, Kind},
    node::{Node, Start, lock},
    operator, panics,
    plan::Plan,
    recorder::{Finished, Keep},
    shared::Shared,
};

/// The longest time until the world is at rest after the faults.
const TO_REST: Duration = Duration::from_secs(180);

/// The result of one run.
#[derive(Debug)]
pub struct Outcome {
    /// The report, or the violation.
    pub verdict: Result<Report, Violation>,
    /// The number of events in the history.
    pub events: u64,
    /// A hash of the history, if it was asked for.
    pub hash: Option<u64>,
    /// The history, if it was asked for.
    pub history: Vec<Event>,
}

/// Plays a plan to its end.
#[must_use]
pub fn play(plan: &Plan, keep_history: bool, hash: bool) -> Outcome {
    let keep = match (keep_history, hash) {
        (true, _) => Keep::Events,
        (false, true) => Keep::Hash,
        (false, false) => Keep::Verdict,
    };
    panics::watch();
    keylane::inner::seed_identities(plan.seed);
    let Finished { verdict, count, hash, events } = World::new(plan, keep).play();
    Outcome { verdict, events: count, hash, history: events }
}

struct World<'a> {
    plan: &'a Plan,
    shared: Arc<Shared>,
    dice: Rng,
    now: Duration,
    /// The nodes by their indices; empty while the process is away.
    nodes: Vec<Option<Node>>,
    /// The number of starts per node.
    starts: Vec<u32>,
    producer: Node,
    /// The faults to come, and the active ones by their end.
    to_come: VecDeque<(usize, Fault)>,
    /// With the instance that each fault concerns.
    under_way: BTreeMap<(Duration, usize), (Fault, Option<String>)>,
    moments: BTreeMap<usize, (Moment, u64)>,
    /// The nodes that shut down, and those to be replaced by the second build.
    leaving: BTreeSet<usize>,
    to_deploy: VecDeque<usize>,
    second: bool,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, keep: Keep) -> Self {
        let shared = Arc::new(Shared::new(plan, keep));
        let start = Start { node: None, count: 1, second: false, all: false, writers: 1 };
        let producer = Node::start(&shared, plan, start);
        let mut world = Self {
            plan,
            dice: Rng::with_seed(shared.seed_of("the world")),
            shared,
            now: Duration::ZERO,
            nodes: plan.rates.iter().map(|_| None).collect(),
            starts: vec![0; plan.rates.len()],
            producer,
            to_come: plan.faults.iter().copied().enumerate().collect(),
            under_way: BTreeMap::new(),
            moments: BTreeMap::new(),
            leaving: BTreeSet::new(),
            to_deploy: VecDeque::new(),
            second: false,
        };
        world.hire_operator();
        (0..world.nodes.len()).for_each(|node| world.start(node));
        world
    }

    /// Starts a person at a process without workers.
    fn hire_operator(&self) {
        let (world, process) = (&self.shared, Arc::clone(&self.producer.process));
        let dice = |what: &str| Rng::with_seed(world.seed_of(what));
        let pool = world.pool.under(Client::of_operator(world, dice("the operator's calls")));
        let (dice, config) = (dice("the operator"), self.plan.config.clone());
        self.producer.spawn(async move {
            if let Ok(outbox) = Outbox::builder(pool).config(config).build().await {
                operator::operate(process, outbox, dice).await;
            }
        });
    }

    fn play(mut self) -> Finished {
        while self.now < self.plan.run || !self.under_way.is_empty() {
            if self.shared.recorder.has_failed() {
                return self.end();
            }
            self.faults_begin();
            self.faults_end();
            self.see_to_departures();
            self.turns();
        }
        self.settle();
        self.end()
    }

    /// Gives all nodes a turn, in random order.
    fn turns(&mut self) {
        let most = self.plan.turn.as_millis() as u64;
        let turn = Duration::from_millis(self.dice.u64(1..=most));
        let mut order: Vec<usize> = (0..=self.nodes.len()).collect();
        self.dice.shuffle(&mut order);
        for place in order {
            match self.nodes.get_mut(place) {
                Some(node) => node.iter_mut().for_each(|node| node.turn(turn)),
                None => self.producer.turn(turn),
            }
        }
        self.now += turn;
        self.shared.time.pass(turn);
        if let Some(text) = panics::take() {
            self.shared.recorder.object(Violation { invariant: Invariant::Crash, text, excerpt: Vec::new() });
        }
    }

    fn start(&mut self, node: usize) {
        self.starts[node] += 1;
        let writers = self.plan.writers.div_ceil(self.nodes.len());
        let all = self.shared.is_settling();
        let start = Start { node: Some(node), count: self.starts[node], second: self.second, all, writers };
        self.nodes[node] = Some(Node::start(&self.shared, self.plan, start));
    }

    fn faults_begin(&mut self) {
        while let Some((place, fault)) = self.to_come.front().copied()
            && fault.at <= self.now
        {
            self.to_come.pop_front();
            self.fault_begins(place, fault);
        }
    }

    fn fault_begins(&mut self, place: usize, fault: Fault) {
        let struck = fault.node().and_then(|node| self.nodes[node].as_ref());
        if fault.node().is_some() && struck.is_none() {
            return; // The process is away.
        }
        let instance = struck.map(|node| node.process.identity.instance());
        let name = fault.name().to_owned();
        let at =
            self.shared.recorder.note("world", What::FaultBegan { fault: name, instance: instance.clone() });
        self.under_way.insert((self.now + fault.lasts, place), (fault, instance));
        match fault.kind {
            Kind::Crash(node) => {
                self.leaving.remove(&node);
                self.nodes[node].take().into_iter().for_each(Node::kill);
            }
            Kind::Pause(node) => self.nodes[node].iter_mut().for_each(|node| node.frozen = true),
            Kind::Leave(node) => self.leave(node),
            Kind::FailOver => {
                self.moments.insert(place, (self.shared.pool.moment(), at));
            }
            Kind::Evict(node) => self.evict(node),
            Kind::Deploy => {
                self.second = !self.second;
                self.to_deploy = (0..self.nodes.len()).collect();
            }
            _ => lock(&self.shared.weather).begin(place, fault),
        }
    }

    fn faults_end(&mut self) {
        while let Some(first) = self.under_way.first_entry()
            && first.key().0 <= self.now
        {
            let ((_, place), (fault, instance)) = first.remove_entry();
            match fault.kind {
                Kind::Crash(node) | Kind::Leave(node) => {
                    if self.nodes[node].is_none() && !self.is_away(node) {
                        self.start(node);
                    }
                }
                Kind::Pause(node) => self.nodes[node].iter_mut().for_each(|node| node.frozen = false),
                Kind::FailOver => self.fail_over(place),
                Kind::Evict(_) | Kind::Deploy => {}
                _ => lock(&self.shared.weather).end(place),
            }
            let of_same = |(other, struck): &(Fault, Option<String>)| {
                other.name() == fault.name() && *struck == instance
            };
            // A crash has no end. A node with several faults has them until the last one ends.
            if !matches!(fault.kind, Kind::Crash(_)) && !self.under_way.values().any(of_same) {
                let fault = fault.name().to_owned();
                self.shared.recorder.note("world", What::FaultEnded { fault, instance });
            }
        }
    }

    /// Whether an active fault keeps the process from starting.
    fn is_away(&self, node: usize) -> bool {
        let mut faults = self.under_way.values();
        faults.any(|(fault, _)| matches!(fault.kind, Kind::Leave(of) | Kind::Crash(of) if of == node))
    }

    fn fail_over(&mut self, place: usize) {
        if let Some((moment, at)) = self.moments.remove(&place) {
            // A later failover must not go back to a moment that this one loses.
            self.moments.retain(|_, (_, of)| *of < at);
            self.shared.pool.fail_over(moment, self.plan.ids_again);
            self.shared.recorder.note("database", What::FailedOver { back_to: at });
        }
    }

    fn leave(&mut self, node: usize) {
        if let Some(leaving) = &self.nodes[node]
            && self.leaving.insert(node)
        {
            leaving.leave();
        }
    }

    fn evict(&self, node: usize) {
        let Some(victim) = &self.nodes[node] else { return };
        let Ok(instance) = victim.process.identity.instance().parse() else { return };
        let settings = StoreSettings {
            completed: self.plan.config.retention.completed,
            call_timeout: self.shared.call_timeout,
            ..StoreSettings::default()
        };
        let dice = Rng::with_seed(self.dice.clone().u64(..));
        let pool = self.shared.pool.under(Client::new(&self.shared, None, None, dice));
        if let Ok(store) = Memory::open(&pool, settings) {
            self.producer.spawn(async move {
                let _ = store.evict(instance, None).await;
            });
        }
    }

    /// Removes processes that have shut down. A deploy starts the next build at once.
    fn see_to_departures(&mut self) {
        let left = |node: &usize| self.nodes[*node].as_ref().is_none_or(Node::has_left);
        let left: Vec<usize> = self.leaving.iter().copied().filter(left).collect();
        for node in left {
            self.leaving.remove(&node);
            self.nodes[node].take().into_iter().for_each(Node::exit);
            if !self.is_away(node) {
                self.start(node);
            }
        }
        if self.leaving.is_empty()
            && let Some(node) = self.to_deploy.pop_front()
        {
            self.leave(node);
        }
    }

    /// Ends the faults. All builds get all handlers, so that no record is left over.
    fn settle(&mut self) {
        while !self.leaving.is_empty() || !self.to_deploy.is_empty() {
            if self.shared.recorder.has_failed() || self.now > self.plan.run + TO_REST {
                break;
            }
            self.see_to_departures();
            self.turns();
        }
        self.shared.settle();
        (0..self.nodes.len()).for_each(|node| self.replace(node));
        let until = self.now + TO_REST;
        // A process that could not leave is evicted by then, by members of the cluster.
        let to_evict = 2 * self.plan.config.cluster.stale_instance_timeout;
        let mut evicted = self.now + to_evict;
        while !self.shared.is_done() || self.now < evicted {
            // A process that was told to leave during a fault may leave late. It must be back before the cluster is
            // at rest, because nobody starts it again then.
            if !self.leaving.is_empty() || !self.nodes.iter().flatten().all(Node::has_joined) {
                evicted = self.now + to_evict;
            }
            if self.shared.recorder.has_failed() {
                return;
            }
            if self.now > until {
                return self.never_done("not all was done");
            }
            self.see_to_departures();
            self.turns();
        }
        if self.plan.rests {
            self.rest();
            if !self.comes_to_an_end(self.now + TO_REST) {
                return;
            }
        }
        self.part(self.now + TO_REST);
    }

    /// Whether all work is done in time.
    fn comes_to_an_end(&mut self, until: Duration) -> bool {
        while !self.shared.is_done() {
            if self.shared.recorder.has_failed() {
                return false;
            }
            if self.now > until {
                self.never_done("not all was done");
                return false;
            }
            self.turns();
        }
        true
    }

    fn replace(&mut self, node: usize) {
        match &self.nodes[node] {
            Some(_) => self.leave(node),
            None => self.start(node),
        }
    }

    /// Shuts all nodes down.
    fn part(&mut self, until: Duration) {
        for node in self.nodes.iter().flatten() {
            node.leave();
        }
        while !self.nodes.iter().flatten().all(Node::has_left) {
            if self.shared.recorder.has_failed() {
                return;
            }
            if self.now > until {
                return self.never_done("not all instances had left");
            }
            self.turns();
        }
        self.dump_effects();
        self.shared.recorder.note("world", What::Finished);
    }

    fn never_done(&self, what: &str) {
        self.shared.recorder.object(Violation {
            invariant: Invariant::NoLoss,
            text: format!("{TO_REST:?} after the faults {what}"),
            excerpt: Vec::new(),
        });
    }

    fn dump_effects(&self) {
        for effect in self.shared.pool.effects() {
            let Some((event, handler)) = effect.split_once(' ') else { continue };
            let (Ok(event), handler) = (event.parse(), handler.to_owned()) else { continue };
            self.shared.recorder.note("database", What::Effect { event, handler });
        }
    }

    fn end(self) -> Finished {
        let Self { shared, nodes, producer, .. } = self;
        nodes.into_iter().flatten().chain([producer]).for_each(Node::kill);
        shared.recorder.finish()
    }
}
