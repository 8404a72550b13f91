//! The heartbeat: runs on a separate thread, runtime and connection, so that busy handlers cannot delay it.
//! If the runtime of the workers hangs, a watchdog stops the beats.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle, time::Instant};

use super::ClusterConfig;
use crate::{
    instance::{ClusterView, InstanceId},
    ownership::Ownership,
    partition::{Partition, PartitionSet},
    store::Store,
    telemetry::{Observers, Signal},
    vitals::Vitals,
    wake::{Wake, unhindered},
};

/// After a failed beat, the pause is the interval divided by this number.
const RETRY_SHARE: u32 = 5;

/// The pulse of the worker runtime: a task there moves the counter on, and the heartbeat watches it.
#[derive(Clone, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Moves the counter on until the future is dropped.
    pub(crate) async fn keep(self, interval: Duration) {
        loop {
            self.0.fetch_add(1, SeqCst);
            tokio::time::sleep(interval / 2).await;
        }
    }
}

/// A running heartbeat. Dropping it stops it.
pub(crate) struct Heartbeat {
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
    views: watch::Receiver<Option<ViewSnapshot>>,
}

/// A view of the cluster that came with a beat, and its time on this instance's clock.
#[derive(Clone)]
pub(crate) struct ViewSnapshot {
    pub(super) at: Duration,
    pub(super) view: ClusterView,
}

impl ViewSnapshot {
    /// The partitions that no live instance owns.
    fn unowned(&self) -> PartitionSet {
        let owner = |partition: &Partition| self.view.claims[partition.index()].owner;
        let lives = |owner: InstanceId| self.view.members.iter().any(|member| member.id == owner);
        Partition::all().filter(|partition| !owner(partition).is_some_and(lives)).collect()
    }
}

/// The task of the heartbeat.
pub(crate) struct HeartbeatTask {
    store: Arc<dyn Store>,
    me: InstanceId,
    config: ClusterConfig,
    ownership: Ownership,
    observers: Observers,
    pulse: Pulse,
    evicted: Wake,
    views: watch::Sender<Option<ViewSnapshot>>,
}

impl Heartbeat {
    /// Starts the beats. `evicted` is nudged when a beat finds that this instance has been evicted.
    ///
    /// # Errors
    /// The system cannot start a runtime or a thread.
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        me: InstanceId,
        config: &ClusterConfig,
        ownership: &Ownership,
        observers: &Observers,
        pulse: &Pulse,
        evicted: &Wake,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (snapshots, views) = watch::channel(None);
        let task = HeartbeatTask {
            store: store.for_heartbeat(),
            me,
            config: config.clone(),
            ownership: ownership.clone(),
            observers: observers.clone(),
            pulse: pulse.clone(),
            evicted: evicted.clone(),
            views: snapshots,
        };
        if !store.own_thread() {
            return Ok(Self { stop, task: Some(tokio::spawn(unhindered(task.run(stopped)))), views });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("keylane-heartbeat".to_owned())
            .spawn(move || runtime.block_on(task.run(stopped)))?;
        Ok(Self { stop, task: None, views })
    }

    /// The views that come with the beats.
    pub(crate) fn views(&self) -> watch::Receiver<Option<ViewSnapshot>> {
        self.views.clone()
    }
}

impl Heartbeat {
    /// Writes the unowned partitions of each view into `vitals`. Never ends.
    pub(crate) async fn report_unowned(&self, vitals: &Vitals) {
        let mut views = self.views();
        while views.changed().await.is_ok() {
            let unowned = views.borrow_and_update().as_ref().map(ViewSnapshot::unowned);
            vitals.set_unowned(unowned.unwrap_or_default());
        }
        std::future::pending().await
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl HeartbeatTask {
    /// Beats until the heartbeat is stopped or the instance is evicted, then closes the connection.
    async fn run(self, stopped: watch::Receiver<bool>) {
        self.keep_beating(stopped).await;
        self.store.close_idle(Duration::ZERO).await;
    }

    async fn keep_beating(&self, mut stopped: watch::Receiver<bool>) {
        let limit = self.config.stale_instance_timeout / 2;
        let mut pulse = (self.pulse.0.load(SeqCst), Instant::now());
        loop {
            let now = self.pulse.0.load(SeqCst);
            if now != pulse.0 {
                pulse = (now, Instant::now());
            }
            // A runtime that hangs delivers nothing. Without beats, other instances take its partitions over.
            let wedged = pulse.1.elapsed() > limit;
            let pause = match wedged {
                true => self.config.heartbeat_interval,
                false => match self.beat().await {
                    Some(pause) => pause,
                    None => return,
                },
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stopped.changed() => return,
            }
        }
    }

    /// Sends one beat. Returns the pause until the next, or `None` if this instance has been evicted.
    async fn beat(&self) -> Option<Duration> {
        let sent_at = self.ownership.clock().now();
        match self.store.beat(self.me).await {
            Ok(Some(view)) => {
                // The clock is read after the reply: a window of silence must not begin before the reading of
                // the beat that opens it.
                let at = self.ownership.clock().now();
                self.views.send_replace(Some(ViewSnapshot { at, view }));
                self.ownership.renew(sent_at, self.config.stale_instance_timeout);
                self.observers.emit(Signal::BeatAnswered);
                Some(self.config.heartbeat_interval)
            }
            Ok(None) => {
                self.ownership.lose();
                self.evicted.nudge();
                None
            }
            Err(error) => {
                self.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
                Some(self.config.heartbeat_interval / RETRY_SHARE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        database::Database,
        inner::conditions::{Conditions, Passage, Written},
        memory::{Memory, MemoryPool},
        store::{NewInstance, StoreSettings},
    };

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The work of each call is done at once, and its reply takes eight seconds.
    #[derive(Debug)]
    struct SlowAnswers;

    impl Conditions for SlowAnswers {
        fn meet(&self, _: &'static str) -> Passage {
            Passage { after: s(8), ..Passage::default() }
        }

        fn now(&self) -> Instant {
            Instant::now()
        }

        fn wrote(&self, _: Vec<Written>) {}
    }

    /// The heartbeat of a member whose replies come late.
    async fn late() -> (HeartbeatTask, watch::Receiver<Option<ViewSnapshot>>) {
        let settings = StoreSettings { call_timeout: s(60), ..StoreSettings::default() };
        let store = Memory::open(&MemoryPool::new().under(Arc::new(SlowAnswers)), settings).unwrap();
        let (me, views) = (InstanceId::generate(), watch::Sender::new(None));
        let (name, version) = (String::new(), String::new());
        store.join(&NewInstance { id: me, name, version, fence_rows: 1 }).await.unwrap();
        let seen = views.subscribe();
        let task = HeartbeatTask {
            store,
            me,
            config: ClusterConfig::default(),
            ownership: Ownership::new(Clock::pausable()),
            observers: Observers::default(),
            pulse: Pulse::default(),
            evicted: Wake::default(),
            views,
        };
        (task, seen)
    }

    /// The others may have seen the beat eight seconds before its reply came.
    #[tokio::test(start_paused = true)]
    async fn trust_counts_from_when_the_beat_was_sent() {
        let (task, views) = late().await;
        assert_eq!(task.beat().await, Some(s(5)));
        assert_eq!(task.ownership.lease_left(), s(27 - 8));
        let seen_at = views.borrow().as_ref().map(|snapshot| snapshot.at);
        assert_eq!(seen_at, Some(task.ownership.clock().now()), "no silence begins before the view is here");
    }

    #[tokio::test(start_paused = true)]
    async fn a_beat_of_the_evicted_ends_the_lease() {
        let (task, _views) = late().await;
        task.beat().await;
        task.store.evict(task.me, None).await.unwrap();
        assert!(task.ownership.lease_holds());
        assert_eq!(task.beat().await, None);
        assert!(!task.ownership.lease_holds());
        task.evicted.nudged().await;
    }

    /// A runtime that hangs delivers nothing, so the other instances are to take over.
    #[tokio::test(start_paused = true)]
    async fn without_a_pulse_of_the_workers_there_is_no_beat() {
        let (task, views) = late().await;
        let (stop, stopped) = watch::channel(false);
        let beating = tokio::spawn(task.run(stopped));
        tokio::time::sleep(s(60)).await;
        let last = views.borrow().as_ref().map(|snapshot| snapshot.at).unwrap();
        assert!(last < s(30), "the last beat was at {last:?}");
        stop.send_replace(true);
        beating.await.unwrap();
    }
}
