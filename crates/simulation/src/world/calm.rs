//! After the faults: the cluster is at rest, and one member leaves, by a shutdown or a crash, and joins
//! again. All bounds in time are judged.

use std::time::Duration;

use fastrand::Rng;
use keylane::Outbox;
use keylane_checker::What;

use super::World;
use crate::{client::Client, node::Node, writer};

impl World<'_> {
    /// Waits until shares are equal. Then a node leaves and comes back.
    pub(super) fn rest(&mut self) {
        self.shared.recorder.note("world", What::Settling);
        self.shared.rests();
        self.hire_trickler();
        self.pass(self.plan.bounds().settled);
        if self.nodes.len() > 1 {
            let node = self.dice.usize(..self.nodes.len());
            self.go_away(node);
            self.pass(self.plan.bounds().settled);
            self.start(node);
            self.pass(self.plan.bounds().settled);
        }
        self.shared.rested();
    }

    /// Starts a writer of few events.
    fn hire_trickler(&self) {
        let (world, process) = (&self.shared, std::sync::Arc::clone(&self.producer.process));
        let dice = |what: &str| Rng::with_seed(world.seed_of(what));
        let pool = world.pool.under(Client::new(world, None, None, dice("the trickler's calls")));
        let (dice, plan) = (dice("the trickler"), self.plan.clone());
        self.producer.spawn(async move {
            if let Ok(outbox) = Outbox::builder(pool.clone()).config(plan.config.clone()).build().await {
                writer::trickle(process, outbox, pool, plan, dice).await;
            }
        });
    }

    /// Ends a node by a shutdown or by a crash.
    fn go_away(&mut self, node: usize) {
        if self.dice.bool() {
            let Some(crashed) = self.nodes[node].take() else { return };
            let (fault, instance) = ("crash".to_owned(), Some(crashed.process.identity.instance()));
            self.shared.recorder.note("world", What::FaultBegan { fault, instance });
            return crashed.kill();
        }
        self.nodes[node].iter().for_each(Node::leave);
        while !self.nodes[node].as_ref().is_none_or(Node::has_left) && !self.shared.recorder.has_failed() {
            self.turns();
        }
        self.nodes[node].take().into_iter().for_each(Node::exit);
    }

    fn pass(&mut self, time: Duration) {
        // The judge checks a bound at the next event after it.
        let until = self.now + time + Duration::from_secs(1);
        while self.now < until && !self.shared.recorder.has_failed() {
            self.turns();
        }
    }
}
