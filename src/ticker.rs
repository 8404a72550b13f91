//! A thread that gives the runtime of the workers a small task four times per second, and wakes workers whose wake-up a
//! blocked thread keeps to itself.
//!
//! One thread of a runtime waits for its timers and sockets. If that thread finds one task that is ready, it runs the
//! task and wakes no other thread. If the task then blocks, as the call of a handler may, no timer fires and no reply
//! of the database arrives, although other threads are idle: all keys stand still (tokio, issue 4730). A task from
//! outside of the runtime wakes one of the idle threads, which then waits for timers and sockets.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::commit_wake::CommitWake;

/// The longest time for which a handler that blocks its thread keeps idle threads of its runtime asleep.
const TICK: Duration = Duration::from_millis(250);

/// If all threads of the runtime block, the tasks must not pile up. One task that waits is no sign of that: a thread
/// may have taken it into its queue just before it blocked.
const MOST_WAITING: usize = 8;

/// The thread needs little more than its loop.
const STACK_BYTES: usize = 128 * 1024;

/// A running thread, if there is one. Dropping it ends the thread.
pub(crate) struct Ticker {
    /// Nothing is sent: the thread ends when this is dropped.
    _ends: Option<Sender<Infallible>>,
}

impl Ticker {
    /// Starts the thread for the current runtime. A runtime of one thread has no idle thread to wake, so it gets none.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(wake: CommitWake) -> io::Result<Self> {
        let runtime = Handle::current();
        if runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
            return Ok(Self { _ends: None });
        }
        let (ends, ended) = channel();
        let builder = thread::Builder::new().name("keylane-ticker".to_owned()).stack_size(STACK_BYTES);
        builder.spawn(move || tick(&runtime, &wake, &ended))?;
        Ok(Self { _ends: Some(ends) })
    }
}

fn tick(runtime: &Handle, wake: &CommitWake, ended: &Receiver<Infallible>) {
    let waiting = Arc::new(());
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
        wake.pass_on();
        if Arc::strong_count(&waiting) <= MOST_WAITING {
            let waits = Arc::clone(&waiting);
            runtime.spawn(async move { drop(waits) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::time::sleep;

    use super::*;
    use crate::wake::tests::runs_although_the_thread_of_the_nudge_blocks;

    const LIMIT: Duration = Duration::from_secs(120);

    /// The first timer wakes a task that blocks until the second timer has fired.
    #[test]
    fn timers_fire_while_a_task_blocks_the_thread_that_waited_for_them() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let inside = runtime.enter();
        let _ticker = Ticker::start(CommitWake::default()).unwrap();
        let (fires, fired) = channel();
        runtime.spawn(async move {
            sleep(Duration::from_millis(100)).await;
            fires.send(())
        });
        let blocks = runtime.spawn(async move {
            sleep(Duration::from_millis(20)).await;
            fired.recv_timeout(LIMIT)
        });
        drop(inside);
        runtime.block_on(blocks).unwrap().unwrap();
    }

    #[test]
    fn a_nudge_reaches_the_workers_although_its_thread_blocks() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let inside = runtime.enter();
        let wake = CommitWake::default();
        let _ticker = Ticker::start(wake.clone()).unwrap();
        drop(inside);
        runtime.spawn(wake.clone().relay());
        let waits = wake.clone();
        runs_although_the_thread_of_the_nudge_blocks(
            &runtime,
            async move { waits.nudged().await },
            move || wake.nudge(),
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_thread_ends_with_its_ticker() {
        let (ends, ended) = channel();
        let runtime = Handle::current();
        let ticking = thread::spawn(move || tick(&runtime, &CommitWake::default(), &ended));
        drop(ends);
        ticking.join().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_of_one_thread_gets_none() {
        assert!(Ticker::start(CommitWake::default()).unwrap()._ends.is_none());
    }
}
