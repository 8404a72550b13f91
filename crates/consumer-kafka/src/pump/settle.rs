//! The end of a run: its messages are finished, tried again, or sent to the dead letters.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
    time::Duration,
};

use keylane::HandlerError;
use rdkafka::consumer::Consumer;
use tokio::time::Instant;

use super::{Lane, Pump, Report};
use crate::{dead::DeadLetters, handler::Outcome, message::Message};

/// The wait of a message whose dead letter could not be sent.
const DEAD_AGAIN: Duration = Duration::from_secs(1);

impl Pump {
    /// Applies the outcomes of a lane's messages.
    pub(super) fn settle(&mut self, lane: &Arc<Lane>, messages: Vec<Arc<Message>>, outcomes: Vec<Outcome>) {
        let mut back = Vec::new();
        let mut failure = None;
        for (message, outcome) in messages.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Done if failure.is_none() => self.finish(lane, &message),
                Outcome::Failed(error) if failure.is_none() => failure = Some((message, error)),
                _ => back.push(message),
            }
        }
        let Some((message, error)) = failure else { return self.release(lane, back, None) };
        let since = *self.away.entry((lane.place.clone(), message.offset())).or_insert_with(Instant::now);
        let (policy, fault) = (self.config.retry.clone(), error.fault());
        let wait = policy.wait(fault, since.elapsed());
        let failures = match self.partition(lane).and_then(|partition| partition.lane(&lane.key)) {
            Some(state) => {
                state.failures += u32::from(wait.is_none());
                state.failures
            }
            None => {
                back.insert(0, message);
                return self.release(lane, back, None);
            }
        };
        let wait = wait.or_else(|| policy.delay(failures, fault, roll()));
        tracing::warn!(
            target: "keylane_consumer",
            topic = message.topic(),
            partition = message.partition(),
            offset = message.offset(),
            event_id = message.event_id(),
            failures,
            again_in_ms = wait.map(|wait| wait.as_millis() as u64),
            error = error.text(500),
            "a message has failed"
        );
        match (wait, self.dead.clone()) {
            (Some(wait), _) => {
                back.insert(0, message);
                self.release(lane, back, Some(wait));
            }
            (None, Some(dead)) => {
                self.put_back(lane, back);
                self.bury(lane, message, error, failures, dead);
            }
            // Without a dead-letter topic, the key stands still.
            (None, None) => {
                back.insert(0, message);
                self.release(lane, back, Some(policy.max_delay));
            }
        }
    }

    /// Sends a message to the dead letters. Its lane stays busy meanwhile.
    pub(super) fn bury(
        &mut self,
        lane: &Arc<Lane>,
        message: Arc<Message>,
        error: HandlerError,
        failures: u32,
        dead: DeadLetters,
    ) {
        let items = vec![(Arc::clone(lane), vec![Arc::clone(&message)])];
        self.spawn(items, async move {
            let sent = dead.send(&message, failures, &error).await;
            if let Err(problem) = &sent {
                let topic = &**dead.topic();
                tracing::error!(target: "keylane_consumer", topic, error = %problem, "a dead letter was not sent");
            } else {
                tracing::error!(
                    target: "keylane_consumer",
                    topic = message.topic(),
                    partition = message.partition(),
                    offset = message.offset(),
                    event_id = message.event_id(),
                    dead_letters = &**dead.topic(),
                    error = error.text(500),
                    "[ALERT] a message went to the dead letters"
                );
            }
            Report::Dead(sent.map_err(|_| error))
        });
    }

    pub(super) fn buried(
        &mut self,
        lane: &Arc<Lane>,
        messages: Vec<Arc<Message>>,
        sent: &Result<(), HandlerError>,
    ) {
        if sent.is_ok() {
            messages.iter().for_each(|message| self.finish(lane, message));
            return self.release(lane, Vec::new(), None);
        }
        if self.dead.as_ref().is_some_and(DeadLetters::is_broken)
            && let Some(dead) = &self.dead
            && let Ok(anew) = DeadLetters::new(&self.config, &dead.topic().clone())
        {
            let broken = self.dead.replace(anew);
            // The end of a client takes up to half a second.
            drop(tokio::task::spawn_blocking(move || drop(broken)));
        }
        self.release(lane, messages, Some(DEAD_AGAIN));
    }

    /// Finishes a message, whatever its outcome.
    pub(super) fn finish(&mut self, lane: &Arc<Lane>, message: &Message) {
        self.shares.release(message.topic(), message.size());
        self.away.remove(&(lane.place.clone(), message.offset()));
        let Some(partition) = self.partition(lane) else { return };
        if let Some(state) = partition.lane(&lane.key) {
            state.failures = 0;
        }
        let Some(next) = partition.finish(message.offset()) else { return };
        self.finished.insert(lane.place.clone(), next);
        // The client refuses it if the partition belongs to another consumer by now.
        let _ = self.source.client.store_offset(&lane.place.0, lane.place.1, next - 1);
        self.throttle(&lane.place);
    }

    fn put_back(&mut self, lane: &Lane, back: Vec<Arc<Message>>) {
        let dropped = match self.partition(lane) {
            Some(partition) => partition.put_back(&lane.key, back),
            None => back,
        };
        self.forget(&dropped);
    }

    /// Lets the lane go on, after a wait or at once.
    pub(super) fn release(&mut self, lane: &Arc<Lane>, back: Vec<Arc<Message>>, wait: Option<Duration>) {
        self.put_back(lane, back);
        let Some(partition) = self.partition(lane) else { return };
        if partition.release(&lane.key, wait.is_some()) {
            self.shares.push(&lane.place.0, Arc::clone(lane));
        } else if let Some(wait) = wait {
            // If the lane is gone when its time comes, nothing happens.
            self.number += 1;
            self.waiting.insert((Instant::now() + wait, self.number), Arc::clone(lane));
        }
        self.throttle(&lane.place);
    }
}

/// A number in `0..1`.
fn roll() -> f64 {
    let bits = std::hash::RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}
