//! Partitions that pause, go to another consumer, or end with the service.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc as sync_mpsc},
    time::Duration,
};

use rdkafka::{TopicPartitionList, consumer::Consumer};
use tokio::time::Instant;

use super::Pump;
use crate::{
    consumer::ShutdownReport,
    message::Message,
    partition::Partition,
    source::{Event, Place},
};

/// The longest wait for a dropped call. A call of the user's code that blocks its thread cannot be dropped.
const ABORT: Duration = Duration::from_secs(1);

/// Partitions that go to another consumer when their calls have ended.
pub(super) struct Drain {
    places: Vec<Place>,
    pub(super) deadline: Instant,
    aborted: bool,
    drained: sync_mpsc::SyncSender<Vec<(Place, i64)>>,
}

impl Pump {
    /// Pauses partitions that have run too far ahead, and all partitions of topics that have their share of the
    /// memory. Resumes them at half of the limit.
    pub(super) fn throttle(&mut self, changed: &Place) {
        let topics = self.shares.refill();
        let changed: Vec<Place> = match topics.is_empty() {
            true => vec![changed.clone()],
            false => {
                let is_changed = |place: &&Place| topics.contains(&place.0) || *place == changed;
                self.partitions.keys().filter(is_changed).cloned().collect()
            }
        };
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        for place in changed {
            let Some(partition) = self.partitions.get(&place).filter(|found| !found.is_revoked()) else {
                continue;
            };
            let is_paused = self.paused.contains(&place);
            let limit = if is_paused { self.config.max_ahead / 2 } else { self.config.max_ahead };
            match (is_paused, self.shares.is_full(&place.0) || partition.ahead() > limit) {
                (false, true) => pause.push(place),
                (true, false) => resume.push(place),
                _ => {}
            }
        }
        for (places, pauses) in [(pause, true), (resume, false)] {
            if places.is_empty() {
                continue;
            }
            let list = list(&places);
            let client = &self.source.client;
            let done = if pauses { client.pause(&list) } else { client.resume(&list) };
            if let Err(error) = done {
                tracing::debug!(target: "keylane_consumer", %error, pauses, "partitions were not paused or resumed");
            }
            for place in places {
                if pauses {
                    self.paused.insert(place)
                } else {
                    self.paused.remove(&place)
                };
            }
        }
    }

    pub(super) fn revoke(
        &mut self,
        places: &[(String, i32)],
        lost: bool,
        drained: sync_mpsc::SyncSender<Vec<(Place, i64)>>,
    ) {
        let mut ours = Vec::new();
        for (topic, partition) in places {
            let Some((topic, _)) = self.topics.get_key_value(topic.as_str()) else { continue };
            let place = (Arc::clone(topic), *partition);
            let dropped = self.partitions.get_mut(&place).map(Partition::revoke).unwrap_or_default();
            self.forget(&dropped);
            ours.push(place);
        }
        // Without this, the client would remember the pause if the partition came back.
        let paused: Vec<Place> = ours.iter().filter(|place| self.paused.remove(*place)).cloned().collect();
        if !paused.is_empty() {
            let _ = self.source.client.resume(&list(&paused));
        }
        // The freed memory lets the other partitions go on.
        if let Some(place) = ours.first().cloned() {
            self.throttle(&place);
        }
        let limit = if lost { Duration::ZERO } else { self.config.drain_timeout };
        self.drains.push(Drain { places: ours, deadline: Instant::now() + limit, aborted: false, drained });
    }

    /// Answers for partitions whose calls have ended, and drops calls that take too long.
    pub(super) fn end_drains(&mut self) {
        let now = Instant::now();
        let mut drains = std::mem::take(&mut self.drains);
        for drain in &mut drains {
            if now >= drain.deadline && !drain.aborted {
                drain.aborted = true;
                drain.deadline = now + ABORT;
                for (items, handle) in self.under_way.values() {
                    if items.iter().any(|(lane, _)| drain.places.contains(&lane.place)) {
                        handle.abort();
                    }
                }
            }
        }
        let is_over = |drain: &Drain, partitions: &HashMap<Place, Partition<Message>>| {
            let idle = |place: &Place| partitions.get(place).is_none_or(Partition::is_idle);
            (drain.aborted && now >= drain.deadline) || drain.places.iter().all(idle)
        };
        for drain in drains {
            if !is_over(&drain, &self.partitions) {
                self.drains.push(drain);
                continue;
            }
            let mut finished = Vec::new();
            for place in drain.places {
                self.partitions.remove(&place);
                self.away.retain(|(of, _), _| *of != place);
                finished.extend(self.finished.remove(&place).map(|next| (place, next)));
            }
            // The thread may have ended.
            let _ = drain.drained.send(finished);
        }
    }

    /// Waits for the calls under way, commits, and leaves the group.
    pub(super) async fn stop(mut self) -> ShutdownReport {
        let places: Vec<Place> = self.partitions.keys().cloned().collect();
        for partition in self.partitions.values_mut() {
            partition.revoke();
        }
        let deadline = Instant::now() + self.config.shutdown_timeout;
        if let Err(error) = self.source.client.pause(&list(&places)) {
            tracing::debug!(target: "keylane_consumer", %error, "partitions were not paused");
        }
        let mut graceful = true;
        loop {
            self.end_drains();
            let wait = self.drains.iter().map(|drain| drain.deadline).min().unwrap_or(deadline).min(deadline);
            tokio::select! {
                ended = self.runs.join_next_with_id() => match ended {
                    Some(ended) => self.ended(ended),
                    None => break,
                },
                // A rebalance may wait for this consumer.
                Some(event) = self.source.events.recv() => match event {
                    Event::Revoked { places, lost, drained } => self.revoke(&places, lost, drained),
                    Event::Reopened { client, before } => self.reopened(client, &before),
                    Event::Message(_) | Event::Lag(_) => {}
                },
                () = tokio::time::sleep_until(wait) => {
                    if Instant::now() >= deadline {
                        graceful = false;
                        break;
                    }
                }
            }
        }
        self.runs.abort_all();
        for drain in std::mem::take(&mut self.drains) {
            let _ = drain.drained.send(Vec::new());
        }
        self.source.end().await;
        ShutdownReport { graceful }
    }
}

fn list(places: &[Place]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        list.add_partition(topic, *partition);
    }
    list
}
