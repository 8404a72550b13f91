//! The events of the cases, handlers made of closures, and a ledger of all calls.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use keylane::{Delivery, Handler, HandlerError, OutboxEvent, Registration};
use serde::{Deserialize, Serialize};

use crate::recorder::Log;

/// The event of most cases: `key` as given, and `number` as the place in its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.placed", key = "{key}")]
pub(crate) struct Placed {
    pub(crate) key: String,
    pub(crate) number: u32,
}

/// An event of another type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "order.cancelled", key = "{key}")]
pub(crate) struct Cancelled {
    pub(crate) key: String,
}

pub(crate) fn placed(key: &str, number: u32) -> Placed {
    Placed { key: key.to_owned(), number }
}

/// Numbers 1 to `count` of one key.
pub(crate) fn run_of(key: &str, count: u32) -> Vec<Placed> {
    (1..=count).map(|number| placed(key, number)).collect()
}

/// Numbers 1 to `each` of `keys` keys: number 1 of all keys, then number 2, and so on.
pub(crate) fn dealt(keys: u32, each: u32) -> Vec<Placed> {
    let number = |number| (1..=keys).map(move |key| placed(&format!("key-{key}"), number));
    (1..=each).flat_map(number).collect()
}

/// A closure as a handler.
pub(crate) struct Act<F>(pub(crate) F);

impl<F, Fut> Handler for Act<F>
where
    F: Fn(Placed, Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send,
{
    type Event = Placed;

    fn handle(
        &self,
        event: Placed,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        (self.0)(event, delivery.clone())
    }
}

/// A handler of [`Placed`] from a closure.
pub(crate) fn typed<F, Fut>(id: &str, act: F) -> Registration
where
    F: Fn(Placed, Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send,
{
    Registration::typed(id, Act(act))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Began,
    Done,
    Failed,
}

/// One step of one call.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) step: Step,
    pub(crate) event: Placed,
    pub(crate) delivery: Delivery,
    pub(crate) at: tokio::time::Instant,
}

/// All steps of all calls, in the order in which they happened.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Log<Entry>>);

impl Ledger {
    pub(crate) fn push(&self, step: Step, event: &Placed, delivery: &Delivery) {
        if std::env::var("TRACE").is_ok() {
            eprintln!(
                "{:?} {step:?} {event:?} id {} attempt {} gen {:?}",
                tokio::time::Instant::now(),
                delivery.id,
                delivery.attempt,
                delivery.generation
            );
        }
        let (event, delivery) = (event.clone(), delivery.clone());
        self.0.push(Entry { step, event, delivery, at: tokio::time::Instant::now() });
    }

    /// A handler that lists its calls and returns the result of `decide`.
    pub(crate) fn handler<F>(&self, id: &str, decide: F) -> Registration
    where
        F: Fn(&Placed, &Delivery) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        let (ledger, decide) = (self.clone(), Arc::new(decide));
        typed(id, move |event, delivery| {
            let (ledger, decide) = (ledger.clone(), Arc::clone(&decide));
            async move {
                ledger.push(Step::Began, &event, &delivery);
                tokio::task::yield_now().await;
                let result = decide(&event, &delivery);
                ledger.push(if result.is_ok() { Step::Done } else { Step::Failed }, &event, &delivery);
                result
            }
        })
    }

    /// A handler that lists its calls and succeeds.
    pub(crate) fn keeper(&self, id: &str) -> Registration {
        self.handler(id, |_, _| Ok(()))
    }

    pub(crate) fn all(&self) -> Vec<Entry> {
        self.0.all()
    }

    pub(crate) fn steps(&self, step: Step) -> Vec<Entry> {
        self.all().into_iter().filter(|entry| entry.step == step).collect()
    }

    /// The completed numbers of one key, in order.
    pub(crate) fn done_of(&self, key: &str) -> Vec<u32> {
        let of_key = self.steps(Step::Done).into_iter().filter(|entry| entry.event.key == key);
        of_key.map(|entry| entry.event.number).collect()
    }

    /// Waits until `count` steps of this kind are listed, for a key or for all.
    pub(crate) async fn until(&self, step: Step, key: Option<&str>, count: usize) {
        let what = format!("{count} times {step:?} of {key:?}");
        let is = |entry: &&Entry| entry.step == step && key.is_none_or(|key| key == entry.event.key);
        self.0.until(&what, |all| (all.iter().filter(is).count() >= count).then_some(())).await;
    }

    pub(crate) async fn until_done(&self, count: usize) {
        self.until(Step::Done, None, count).await;
    }

    /// Asserts per lane: one call at a time, no call starts before the earlier records are done, and a done
    /// record is not tried again. Numbers start at 1. Returns the number of done records.
    pub(crate) fn assert_in_order(&self) -> usize {
        let mut next: BTreeMap<(String, String), (u32, bool)> = BTreeMap::new();
        let mut done = 0;
        for Entry { step, event, delivery, .. } in self.all() {
            let lane = (delivery.handler.to_string(), event.key.clone());
            let (wanted, open) = next.entry(lane).or_insert((1, false));
            let at = format!("{} of {}, attempt {}", event.number, event.key, delivery.attempt);
            assert_eq!(event.number, *wanted, "{step:?}: {at} was not next");
            assert_eq!(*open, step != Step::Began, "{step:?}: {at}: two calls of a lane at once");
            *open = step == Step::Began;
            if step == Step::Done {
                *wanted += 1;
                done += 1;
            }
        }
        done
    }
}
