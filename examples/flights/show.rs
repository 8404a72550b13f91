//! The course of events: three replicas, a week of traffic, one killed, a fourth to the rescue.

use std::{collections::BTreeMap, error::Error, pin::pin, time::Duration};

use keylane_checker::{Event, What, history};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    database::{Owner, Place},
    fleet::Fleet,
    flights::Flight,
    ledger::{self, Nanos},
    settings::name_of,
    stage::Stage,
    view::{Card, Scene, State, View},
    watch::Watch,
};

const FIRST_REPLICAS: usize = 3;
/// The replica that is killed, and the one that joins afterwards.
const VICTIM: usize = 2;
const LATECOMER: usize = 4;
/// Parts of the week, in percent, between which the kill falls: as soon as the victim has something
/// in its hands.
const KILL_BETWEEN: (usize, usize) = (40, 50);
const TICK: Duration = Duration::from_millis(100);
/// The replicas must share the partitions after this time.
const JOIN_LIMIT: Duration = Duration::from_secs(15);
/// The show gives up if no flight is scheduled or delivered for this time, or not all of them after that. A slow
/// disk takes minutes for the week, and the flights must move all the same.
const STANDSTILL_LIMIT: Duration = Duration::from_secs(20);
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// What the verdict needs to know of the course of events, besides the week and the ledgers.
#[derive(Default)]
pub(crate) struct Course {
    pub(crate) victim: usize,
    pub(crate) killed_at: Option<Nanos>,
    /// From the kill until all partitions of the victim were owned by replicas that live.
    pub(crate) takeover: Option<Duration>,
    /// How often a replica has lost its lease, because the database answered no heartbeat in time.
    pub(crate) lapses: usize,
    /// Whether one of them was lost during the takeover.
    pub(crate) lapsed_in_takeover: bool,
    /// What went wrong, if anything.
    pub(crate) troubles: Vec<String>,
    /// The ledgers of the producer and of all replicas, and the kill.
    pub(crate) history: Vec<Event>,
}

enum Act {
    Traffic,
    Killed { at: Instant, orphans: Vec<usize>, lapses: usize },
    TakenOver,
    AllThere,
}

/// The show and what it keeps in mind.
pub(crate) struct Show<'a, DB: Place> {
    stage: &'a Stage<DB>,
    flights: &'a [Flight],
    fleet: Fleet,
    watch: Watch,
    view: View,
    course: Course,
    act: Act,
    states: BTreeMap<usize, State>,
    /// The replica that owns each partition; one that was killed owns until another has claimed.
    owners: Vec<Option<usize>>,
    notes: Vec<(Duration, String)>,
    started: Instant,
    /// How much has happened, and when the last of it did.
    moved: (usize, Instant),
}

impl<'a, DB: Place> Show<'a, DB> {
    pub(crate) fn new(stage: &'a Stage<DB>, flights: &'a [Flight], fleet: Fleet) -> Self {
        Self {
            watch: Watch::new(&fleet.dir, flights.len()),
            stage,
            flights,
            fleet,
            view: View::new(DB::TITLE),
            course: Course { victim: VICTIM, ..Course::default() },
            act: Act::Traffic,
            states: BTreeMap::new(),
            owners: Vec::new(),
            notes: Vec::new(),
            started: Instant::now(),
            moved: (0, Instant::now()),
        }
    }

    /// From the start of the replicas to their shutdown.
    pub(crate) async fn run(mut self) -> Result<Course, Box<dyn Error>> {
        for number in 1..=FIRST_REPLICAS {
            self.start(number)?;
        }
        self.wait_for_replicas().await?;
        let stage = self.stage;
        {
            let mut schedule = pin!(stage.schedule(self.flights));
            let mut watch = pin!(self.watch_the_week());
            tokio::select! {
                watched = &mut watch => watched?,
                scheduled = &mut schedule => {
                    scheduled?;
                    watch.await?;
                }
            }
        }
        for number in self.fleet.stop().await? {
            self.trouble(format!("replica {number} did not stop in good order"));
        }
        self.states
            .values_mut()
            .filter(|state| **state == State::Live)
            .for_each(|state| *state = State::Left);
        self.refresh().await?;
        self.note("the replicas have shut down and handed their partitions back".to_owned());
        self.draw(true)?;
        self.stage.enter(What::Finished)?;
        self.course.lapses = self.watch.lapses();
        self.course.history = history::read([ledger::file_of(&self.fleet.dir, 0)])?;
        self.course.history.extend(self.watch.replicas.into_values().flat_map(|followed| followed.lines));
        self.course.history.sort_by_key(|event| event.at);
        Ok(self.course)
    }

    fn start(&mut self, number: usize) -> std::io::Result<()> {
        self.watch.follow(number);
        self.states.insert(number, State::Live);
        self.fleet.start(number)
    }

    async fn wait_for_replicas(&mut self) -> Result<(), Box<dyn Error>> {
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            self.refresh().await?;
            self.draw(false)?;
            let fair = self.owners.len() / FIRST_REPLICAS;
            if (1..=FIRST_REPLICAS).all(|number| self.partitions_of(number) >= fair.max(1)) {
                self.note(format!("{FIRST_REPLICAS} replicas share the partitions; the week begins"));
                return Ok(());
            }
            let fallen = self.fleet.fallen()?;
            if !fallen.is_empty() || self.started.elapsed() > JOIN_LIMIT {
                return Err(format!("the replicas did not come up (fallen: {fallen:?})").into());
            }
        }
    }

    /// Until every flight is in the books, or the time is up.
    async fn watch_the_week(&mut self) -> Result<(), Box<dyn Error>> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.refresh().await?;
            self.play().await?;
            self.draw(false)?;
            for number in self.fleet.fallen()? {
                self.states.insert(number, State::Killed);
                self.trouble(format!("replica {number} ended by itself"));
            }
            if self.watch.is_complete() && matches!(self.act, Act::AllThere) {
                self.note("every flight is in the books".to_owned());
                return Ok(());
            }
            if let Some(why) = self.gives_up() {
                self.trouble(why);
                return Ok(());
            }
        }
    }

    /// Why there is nothing more to wait for.
    fn gives_up(&mut self) -> Option<String> {
        let moves = self.stage.scheduled() + self.watch.delivered + self.watch.retried + self.notes.len();
        if moves > self.moved.0 {
            self.moved = (moves, Instant::now());
        }
        if self.moved.1.elapsed() > STANDSTILL_LIMIT {
            return Some(format!("nothing has moved for {} s", STANDSTILL_LIMIT.as_secs()));
        }
        (self.started.elapsed() > TIME_LIMIT)
            .then(|| format!("not all done after {} s", TIME_LIMIT.as_secs()))
    }

    /// What happens next, if it is time for it.
    async fn play(&mut self) -> std::io::Result<()> {
        match &self.act {
            Act::Traffic => {
                let percent = self.stage.scheduled() * 100 / self.flights.len().max(1);
                let in_hand = self.watch.replicas.get(&VICTIM).map_or(0, |followed| followed.in_hand.len());
                if percent >= KILL_BETWEEN.1 || (percent >= KILL_BETWEEN.0 && in_hand > 0) {
                    self.kill().await?;
                }
            }
            Act::Killed { at, orphans, lapses } => {
                let lives = |owner: &Option<usize>| owner.is_some_and(|owner| owner != VICTIM);
                if orphans.iter().all(|partition| self.owners.get(*partition).is_some_and(lives)) {
                    let (took, count) = (at.elapsed(), orphans.len());
                    self.course.takeover = Some(took);
                    self.course.lapsed_in_takeover = self.watch.lapses() > *lapses;
                    self.note(format!(
                        "its {count} partitions taken over, {:.1} s after the kill",
                        took.as_secs_f64()
                    ));
                    self.start(LATECOMER)?;
                    self.note(format!("replica {LATECOMER} joins"));
                    self.act = Act::TakenOver;
                }
            }
            Act::TakenOver => {
                let count = self.partitions_of(LATECOMER);
                if count >= self.owners.len() / FIRST_REPLICAS {
                    self.note(format!("replica {LATECOMER} has its share, {count} partitions"));
                    self.act = Act::AllThere;
                }
            }
            Act::AllThere => {}
        }
        Ok(())
    }

    async fn kill(&mut self) -> std::io::Result<()> {
        let of_victim =
            |(partition, owner): (usize, &Option<usize>)| (*owner == Some(VICTIM)).then_some(partition);
        let orphans: Vec<usize> = self.owners.iter().enumerate().filter_map(of_victim).collect();
        self.fleet.kill(VICTIM).await?;
        let (fault, instance) = ("crash".to_owned(), Some(name_of(VICTIM)));
        self.course.killed_at = Some(ledger::now());
        self.stage.enter(What::FaultBegan { fault, instance })?;
        self.states.insert(VICTIM, State::Killed);
        let left = orphans.len();
        self.note(format!("replica {VICTIM} killed (SIGKILL), {left} partitions left behind"));
        self.act = Act::Killed { at: Instant::now(), orphans, lapses: self.watch.lapses() };
        Ok(())
    }

    async fn refresh(&mut self) -> Result<(), Box<dyn Error>> {
        let number_of = |owner: Owner| (1..=LATECOMER).find(|number| owner.name == name_of(*number));
        let owners = self.stage.owners().await?;
        self.owners = owners.into_iter().map(|owner| owner.and_then(number_of)).collect();
        let lapsed = self.watch.lapses() > 0;
        self.watch.refresh()?;
        if self.watch.lapses() > 0 && !lapsed {
            self.note("a lease has lapsed: the database did not answer heartbeats in time".to_owned());
        }
        Ok(())
    }

    fn partitions_of(&self, number: usize) -> usize {
        self.owners.iter().filter(|owner| **owner == Some(number)).count()
    }

    fn note(&mut self, text: String) {
        self.notes.push((self.started.elapsed(), text));
    }

    fn trouble(&mut self, text: String) {
        self.note(text.clone());
        self.course.troubles.push(text);
    }

    fn draw(&mut self, last: bool) -> std::io::Result<()> {
        let card = |(number, state): (&usize, &State)| {
            let followed = self.watch.replicas.get(number);
            Card {
                number: *number,
                state: *state,
                partitions: self.partitions_of(*number),
                entered: followed.map_or(0, |followed| followed.entered),
                rate: followed.map_or(0.0, |followed| followed.rate()),
            }
        };
        let scene = Scene {
            elapsed: self.started.elapsed(),
            flights: self.flights.len(),
            scheduled: self.stage.scheduled(),
            delivered: self.watch.delivered,
            retried: self.watch.retried,
            fallback: self.watch.fallback,
            rate: self.watch.rate(),
            owners: &self.owners,
            cards: self.states.iter().map(card).collect(),
            notes: &self.notes,
            last,
        };
        self.view.draw(&scene)
    }
}
