//! One call: it sends its records in rounds until each one is acknowledged or has failed.
//!
//! A round sends all remaining records, in order per key, and waits for all answers. After the first failure
//! of a key, its later answers do not count: those records are sent again, after the failed one.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use keylane::Record;
use keylane_message::Event;
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::{Instant, timeout_at};

use crate::{
    producers::Producers,
    session::{Answer, Answers, Outgoing, Session, Ticket},
    verdict::{NotSent, SendError, Verdict, verdict},
};

/// The most rounds of a call. With a healthy producer the first round is the last one. Refusals of other
/// calls can end a producer a few times.
const ROUNDS: usize = 20;

/// What has a place in the order of a key.
pub(crate) trait Keyed {
    /// The key whose order holds.
    fn key(&self) -> &str;
}

impl Keyed for Record {
    fn key(&self) -> &str {
        &self.delivery.key
    }
}

impl Keyed for Event<'_> {
    fn key(&self) -> &str {
        self.key
    }
}

/// The records of a key.
#[derive(Default)]
struct Queue {
    /// The places in the call of the records that remain to be sent.
    left: VecDeque<usize>,
    /// Whether the broker refused a batch with the first of them, so that it is sent alone.
    suspect: bool,
}

pub(crate) struct Call<'a, R, W> {
    producers: &'a Producers,
    records: &'a [&'a R],
    write: W,
    results: Vec<Option<Result<(), NotSent>>>,
    queues: Vec<Queue>,
    began: Instant,
}

/// Retires a session unless the call has all its answers. Otherwise the client could send the messages of a
/// dropped call at any later time.
struct Retire<'a>(Option<&'a Session>);

impl Drop for Retire<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.retire();
        }
    }
}

impl<'a, R: Keyed, W: Fn(&'a R) -> Option<Outgoing<'a>>> Call<'a, R, W> {
    /// `fate` decides whether a record is sent (`None`: it is skipped). `write` builds its message only when
    /// the client takes it: messages of all records under way would be a second copy in memory.
    pub(crate) fn new(
        producers: &'a Producers,
        records: &'a [&'a R],
        fate: impl Fn(&'a R) -> Option<Result<(), SendError>>,
        write: W,
    ) -> Self {
        let results = Vec::with_capacity(records.len());
        let mut call = Self { producers, records, write, results, queues: Vec::new(), began: Instant::now() };
        let mut of_key: HashMap<&str, (usize, bool)> = HashMap::new();
        for (index, record) in records.iter().enumerate() {
            let (queue, closed) = of_key.entry(record.key()).or_insert_with(|| {
                call.queues.push(Queue::default());
                (call.queues.len() - 1, false)
            });
            let result = match fate(record) {
                _ if *closed => Some(Err(NotSent::of(SendError::Behind, Verdict::Away))),
                Some(Ok(())) => None,
                None => Some(Ok(())),
                Some(Err(error)) => {
                    *closed = true;
                    Some(Err(NotSent::of(error, Verdict::TopicRejected)))
                }
            };
            if result.is_none() {
                call.queues[*queue].left.push_back(index);
            }
            call.results.push(result);
        }
        call
    }

    pub(crate) async fn run(mut self) -> Vec<Result<(), NotSent>> {
        let away = self.producers.is_away();
        let probe = self.producers.probe().filter(|_| away);
        if away && probe.is_none() {
            self.give_up(|_| SendError::Away);
        }
        for _ in 0..ROUNDS {
            self.send_suspects().await;
            let rest: Vec<usize> = self.queues.iter().flat_map(|queue| queue.left.iter().copied()).collect();
            if rest.is_empty() {
                break;
            }
            self.round(&rest, false).await;
        }
        self.give_up(|_| SendError::Behind);
        let untold = || Err(NotSent::of(SendError::Behind, Verdict::Away));
        self.results.into_iter().map(|result| result.unwrap_or_else(untold)).collect()
    }

    /// Sends messages that were refused in a batch, one message per key at a time. If the cause was the
    /// batch, the rest of the call is sent the same way.
    async fn send_suspects(&mut self) {
        loop {
            let suspects: Vec<usize> = self.queues.iter().filter_map(Queue::suspect).collect();
            if suspects.is_empty() {
                return;
            }
            self.round(&suspects, true).await;
        }
    }

    /// Sends these records and notes their results.
    async fn round(&mut self, indices: &[usize], alone: bool) {
        let session = match self.producers.session(alone) {
            Ok(session) => session,
            Err(error) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                tracing::debug!(target: "keylane_kafka", %error, "no producer can be made");
                return self.give_up(|message| refused(message, 0, code));
            }
        };
        let deadline = self.began + self.producers.config.patience;
        let mut retire = Retire(Some(&session));
        let answers = Answers::of(indices.len());
        let sent = timeout_at(deadline, self.send(&session, indices, &answers)).await;
        let complete = sent.is_ok() && timeout_at(deadline, answers.complete()).await.is_ok();
        if complete && session.fatal().is_none() {
            retire.0 = None;
        }
        let answers = answers.known();
        // This comes before the end of the session, so that other calls do not send its dropped messages
        // again.
        if answers.contains(&Answer::Acknowledged) {
            self.producers.set_away(false);
        } else if !complete {
            self.producers.set_away(true);
        }
        drop(retire);
        self.note(indices, &answers, alone, &session);
        if !complete {
            let waited = self.began.elapsed();
            self.give_up(|message| SendError::NoAnswer { topic: message.topic.to_string(), waited });
        }
    }

    async fn send(&self, session: &Session, indices: &[usize], answers: &Arc<Answers>) {
        let mut closed: Option<&str> = None;
        // The indices of a key are adjacent.
        for (place, index) in indices.iter().enumerate() {
            let key = self.records[*index].key();
            if closed == Some(key) {
                continue;
            }
            let Some(message) = self.message(*index) else { continue };
            let Some(room) = self.producers.room(size(&message)).await else { return };
            if !session.send(&message, Ticket::new(answers, place, room)) {
                closed = Some(key);
            }
        }
    }

    /// Applies the answers of a round to each key.
    fn note(&mut self, indices: &[usize], answers: &[Answer], alone: bool, session: &Session) {
        let of: HashMap<usize, Answer> = indices.iter().copied().zip(answers.iter().copied()).collect();
        for queue in 0..self.queues.len() {
            while let Some(&index) = self.queues[queue].left.front() {
                let code = match of.get(&index) {
                    Some(Answer::Acknowledged) => {
                        self.queues[queue].left.pop_front();
                        self.results[index] = Some(Ok(()));
                        continue;
                    }
                    Some(Answer::Failed(code)) => *code,
                    Some(Answer::None) | None => break,
                };
                self.note_failure(queue, index, code, alone, session);
                break;
            }
        }
    }

    fn note_failure(&mut self, queue: usize, index: usize, code: Code, alone: bool, session: &Session) {
        let (mut code, mut verdict) = (code, verdict(code));
        if verdict == Verdict::ProducerBroken {
            match session.fatal() {
                // For example, the user has no right to write at all: a new producer would get the same
                // error.
                Some((cause, _)) if self::verdict(cause) == Verdict::TopicRejected => {
                    (code, verdict) = (cause, Verdict::TopicRejected);
                }
                // The next round sends it again.
                _ if !self.producers.is_away() => return,
                _ => {}
            }
        }
        // If the client itself refuses a size before it sends, a second try is of no use.
        if verdict == Verdict::MessageRejected && !alone {
            self.queues[queue].suspect = true;
            return;
        }
        let Some(message) = self.message(index) else { return };
        let error = refused(&message, size(&message), code);
        self.results[index] = Some(Err(NotSent::of(error, verdict)));
        self.close(queue);
    }

    /// Ends the records behind a failure unsent.
    fn close(&mut self, queue: usize) {
        for index in std::mem::take(&mut self.queues[queue].left) {
            if self.results[index].is_none() {
                self.results[index] = Some(Err(NotSent::of(SendError::Behind, Verdict::Away)));
            }
        }
    }

    /// Ends all remaining records unsent. No attempt counts.
    fn give_up(&mut self, error: impl Fn(&Outgoing<'_>) -> SendError) {
        for queue in 0..self.queues.len() {
            if let Some(&index) = self.queues[queue].left.front()
                && let Some(message) = self.message(index)
            {
                self.results[index] = Some(Err(NotSent::of(error(&message), Verdict::Away)));
            }
            self.close(queue);
        }
    }

    fn message(&self, index: usize) -> Option<Outgoing<'a>> {
        (self.write)(self.records[index])
    }
}

impl Queue {
    fn suspect(&self) -> Option<usize> {
        self.left.front().copied().filter(|_| self.suspect)
    }
}

fn size(message: &Outgoing<'_>) -> usize {
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    message.body.len() + message.key.len() + message.topic.len() + headers + 64
}

fn refused(message: &Outgoing<'_>, bytes: usize, code: Code) -> SendError {
    SendError::Refused { topic: message.topic.to_string(), bytes, code }
}
