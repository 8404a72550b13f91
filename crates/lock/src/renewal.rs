//! The renewal of all tickets of a client, by one task that runs while there are tickets.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc},
    thread,
    time::Duration,
};

use keylane_sql::{Kind, Value};
use tokio::{sync::oneshot, task::AbortHandle};

use crate::{
    clock,
    database::{LockDatabase, Wake},
    error::LockError,
    rules,
    shared::Shared,
    trust::Trust,
};

/// Tickets of one statement at most.
const STEP: usize = 500;
/// The thread of a pause needs little more than its wait.
const STACK_BYTES: usize = 128 * 1024;

/// The tickets of a client, by their names.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<Tracked>);

#[derive(Debug, Default)]
struct Tracked {
    trusts: HashMap<String, Arc<Trust>>,
    task: Option<AbortHandle>,
}

impl Tickets {
    fn tracked(&self) -> MutexGuard<'_, Tracked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the renewals of a ticket, which then expires.
    pub(crate) fn remove(&self, ticket: &str) {
        self.tracked().trusts.remove(ticket);
    }

    fn all(&self) -> Vec<(String, Arc<Trust>)> {
        let tracked = self.tracked();
        tracked.trusts.iter().map(|(ticket, trust)| (ticket.clone(), Arc::clone(trust))).collect()
    }
}

impl<DB: LockDatabase> Shared<DB> {
    /// Begins the renewals of a ticket, until it is removed.
    pub(crate) fn track(self: &Arc<Self>, ticket: &str, trust: Arc<Trust>) {
        let mut tracked = self.tickets.tracked();
        tracked.trusts.insert(ticket.to_owned(), trust);
        // The task may have ended with its runtime.
        if tracked.task.as_ref().is_none_or(AbortHandle::is_finished) {
            // Without the budget of tokio: the wake-up of a task that has used it up stays on its thread, which a
            // holder may block. Each renewal waits for the database, so the task keeps no thread from others.
            let renewals = tokio::task::unconstrained(keep(Arc::downgrade(self)));
            tracked.task = Some(tokio::spawn(renewals).abort_handle());
        }
    }

    /// Renews tickets of this client, and tells each trust the result.
    pub(crate) async fn renew(&self, tickets: &[(String, Arc<Trust>)]) -> Result<(), LockError> {
        let sent_at = clock::now();
        let names: Vec<String> = tickets.iter().map(|(ticket, _)| ticket.clone()).collect();
        let values = vec![Value::millis(self.lease), Value::Texts(names.clone())];
        let renewed = self.run("renew", &self.sql.renew, values).await?;
        if renewed == names.len() as u64 {
            tickets.iter().for_each(|(_, trust)| trust.renewed(sent_at));
            return Ok(());
        }
        let living = self.rows("renew", &self.sql.living, vec![Value::Texts(names)], &[Kind::Text]).await?;
        let living: Vec<String> = living.into_iter().map(|mut row| row.take_text(0)).collect();
        for (ticket, trust) in tickets {
            if living.contains(ticket) {
                trust.renewed(sent_at);
            } else {
                trust.lose();
                self.tickets.remove(ticket);
            }
        }
        Ok(())
    }
}

/// Renews all tickets while there are any. A renewal that fails is tried again at the next interval.
async fn keep<DB: LockDatabase>(shared: Weak<Shared<DB>>) {
    loop {
        let Some(every) = shared.upgrade().map(|shared| rules::renewal_interval(shared.lease)) else {
            return;
        };
        pause(every).await;
        let Some(shared) = shared.upgrade() else { return };
        let tickets = shared.tickets.all();
        for tickets in tickets.chunks(STEP) {
            match tokio::time::timeout(every, shared.renew(tickets)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(target: "keylane_lock", %error, "locks were not renewed"),
                Err(_) => tracing::warn!(target: "keylane_lock", "locks were not renewed within {every:?}"),
            }
        }
        let names: Vec<&str> = tickets.iter().map(|(ticket, _)| ticket.as_str()).collect();
        DB::Wake::keep(&shared.wake, &names).await;
        let mut tracked = shared.tickets.tracked();
        if tracked.trusts.is_empty() {
            tracked.task = None;
            return;
        }
    }
}

/// Waits on a thread. A holder that blocks its thread may stop the timers of the runtime, because tokio lets one thread
/// wait for all timers and sockets, and this thread runs tasks, too. The end of this pause wakes another thread of the
/// runtime, which runs the renewal and then waits for its answer.
async fn pause(every: Duration) {
    // Nothing is sent: the thread ends early when this future is dropped.
    let (_open, closed) = mpsc::channel::<Infallible>();
    let (ends, ended) = oneshot::channel();
    let waits = move || {
        let _ = closed.recv_timeout(every);
        let _ = ends.send(());
    };
    match thread::Builder::new().name("keylane-lock".to_owned()).stack_size(STACK_BYTES).spawn(waits) {
        Ok(_) => drop(ended.await),
        Err(_) => tokio::time::sleep(every).await,
    }
}
