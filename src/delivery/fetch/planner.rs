//! The planner decides when to fetch, what, and how many records. No async, no IO; the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    budget::{Budget, BudgetStep, FetchBudget, Wanted},
    head_search::HeadSearch,
    listening::Listening,
    query::{FetchRequest, FetchResult, Turn},
    stop_reads::StopReads,
};
use crate::{
    delivery::{ERROR_PAUSE, config::DeliveryConfig, timers::Timers},
    instance::{Generation, InstanceId},
    ownership::Ownership,
    partition::{Partition, PartitionSet},
    record::RecordId,
    rules::{horizon::Server, reading::Readings},
    store::Handlers,
    vitals::ListenState,
};

/// What the planner asks of the dispatcher.
pub(in crate::delivery) enum Step {
    /// Begin this fetch.
    Fetch(Begin),
    /// Cut queues of at least this many records to half of it, then ask [`Planner::next`] again.
    CutQueues(usize),
    /// Wait for the next event.
    Wait,
}

/// A fetch that is to begin.
pub(in crate::delivery) struct Begin(FetchBudget);

/// Plans the fetches of one instance.
pub(in crate::delivery) struct Planner {
    /// Never changes.
    poll_interval: Duration,
    /// How memory is shared. Changed by most calls.
    budget: Budget,
    /// The low watermark: the id from which pending records are read. Moved on by fetches and settles.
    readings: Readings,
    /// The partitions whose stops are known. Written by `begin`, `answered` and `read_stops_again`.
    stop_reads: StopReads,
    /// When a fetch is due by itself. Written by `due_in`, `pause` and `fire`.
    timers: Timers,
    /// When to fetch records of other processes. Written when a fetch of all partitions begins and ends.
    listening: Listening,
    /// The number of the first partition of the next fetch: the one behind the last record of the last fetch.
    turn: u8,
    /// Whether a fetch of all partitions is wanted. Set by events, cleared when such a fetch begins.
    wanted: bool,
    /// Whether a fetch of due records is wanted. Set by events, cleared when a fetch of all partitions
    /// begins.
    due_wanted: bool,
    /// Whether something has happened that the last fetch cannot have seen. Set by events, cleared when a
    /// fetch begins.
    news: bool,
    /// Partitions where a record below the watermark may be pending. Added by events, taken when a fetch
    /// begins.
    missed: PartitionSet,
    /// The partitions in which polls search for the head. Moved on by polls.
    head_search: HeadSearch,
    /// When the last fetch began. Set by `begin`.
    began: Instant,
}

impl Planner {
    pub(in crate::delivery) fn new(
        config: &DeliveryConfig,
        instance: InstanceId,
        listen_state: ListenState,
        now: Instant,
    ) -> Self {
        Self {
            poll_interval: config.poll_interval,
            budget: Budget::new(config.clone(), now),
            readings: Readings::default(),
            stop_reads: StopReads::none(),
            timers: Timers::new(instance, config.poll_interval, now),
            listening: Listening::new(listen_state),
            turn: 0,
            wanted: true,
            due_wanted: true,
            news: true,
            missed: PartitionSet::EMPTY,
            head_search: HeadSearch::default(),
            began: now,
        }
    }

    /// There may be records that the last fetch has not seen.
    pub(in crate::delivery) fn want(&mut self) {
        (self.wanted, self.news) = (true, true);
        self.listening.ask();
        self.budget.news();
    }

    /// A record may be due.
    pub(in crate::delivery) fn want_due(&mut self) {
        self.due_wanted = true;
    }

    /// A record is due after this pause.
    pub(in crate::delivery) fn due_in(&mut self, pause: Duration, now: Instant) {
        self.timers.due_in(pause, now);
    }

    /// A record of these partitions below the watermark may be pending.
    pub(in crate::delivery) fn mark_missed(&mut self, partitions: PartitionSet) {
        self.missed = self.missed.union(partitions);
    }

    /// The stops of these partitions are to be read again: another process may have released a lane.
    pub(in crate::delivery) fn read_stops_again(&mut self, partitions: PartitionSet) {
        self.stop_reads.again(partitions);
        self.budget.stops_change(partitions);
    }

    /// Lanes were released in these partitions.
    pub(in crate::delivery) fn released(&mut self, partitions: PartitionSet) {
        self.budget.released(partitions);
    }

    /// The database has failed: no fetch begins for a while.
    pub(in crate::delivery) fn pause(&mut self, now: Instant) {
        self.timers.pause(ERROR_PAUSE, now);
    }

    /// Queues were cut in these partitions.
    pub(in crate::delivery) fn queues_cut(&mut self, partitions: PartitionSet) {
        self.budget.cut(partitions);
    }

    /// Memory is full, and no queue is long. `handlers` has the number and the id of each handler,
    /// `in_memory` its places in memory by number. From now on those with the most records are fetched by themselves.
    /// Returns the numbers of the handlers that are to be cut, and to how many records each.
    pub(in crate::delivery) fn cut_handlers<'a>(
        &mut self,
        handlers: impl Iterator<Item = (usize, &'a str)>,
        in_memory: impl Fn(usize) -> usize,
        now: Instant,
    ) -> (Vec<usize>, usize) {
        self.budget.cut_handlers(handlers, in_memory, now)
    }

    /// Some partitions may not be owned any more.
    pub(in crate::delivery) fn close(&mut self, is_open: impl Fn(Partition) -> bool) {
        self.budget.close(is_open);
    }

    pub(in crate::delivery) fn settle_begins(&mut self) {
        self.readings.settle_begins();
    }

    /// A settle has ended. `number`: the number of its transaction, and the server of that transaction.
    pub(in crate::delivery) fn settle_ends(&mut self, number: Option<(i64, Server)>) {
        self.readings.settle_ends(number);
    }

    /// Whether records of a partition may be admitted: its stops were read in this generation.
    pub(in crate::delivery) fn stops_are_read(&self, partition: Partition, generation: Generation) -> bool {
        self.stop_reads.are_read(partition, generation)
    }

    /// What to do next. The arguments are the records and payload bytes in memory, and the places of a
    /// handler by number.
    pub(in crate::delivery) fn next(
        &mut self,
        in_memory: (usize, usize),
        of_handler: impl Fn(usize) -> usize,
        ownership: &Ownership,
        now: Instant,
    ) -> Step {
        if !self.timers.may_fetch(now) {
            return Step::Wait;
        }
        let wanted = Wanted { at_all: self.wanted || self.due_wanted, news: self.news };
        match self.budget.next_step(in_memory, of_handler, wanted, ownership, now) {
            BudgetStep::Fetch(budget) => Step::Fetch(Begin(budget)),
            BudgetStep::CutQueues(share) => Step::CutQueues(share),
            BudgetStep::Wait => Step::Wait,
        }
    }

    /// Begins the fetch with number `seq`; `skip` has the records in memory.
    pub(in crate::delivery) fn begin(
        &mut self,
        Begin(FetchBudget { partitions, handlers, limit, part }): Begin,
        (seq, skip): (u64, Vec<RecordId>),
        ownership: &Ownership,
        now: Instant,
    ) -> FetchRequest {
        self.began = now;
        let stops = self.stop_reads.begin(partitions, ownership);
        let generations = stops.all.iter().filter_map(|p| Some((p, ownership.generation(p)?))).collect();
        self.budget.begin(partitions, &handlers);
        let missed = std::mem::take(&mut self.missed).union(stops.unread);
        if !missed.is_empty() {
            // Missed records are in the table already, although the version of the database stays the same.
            self.listening.version = None;
        }
        let reading = self.readings.begin(partitions, missed, handlers != Handlers::Every);
        // A part is not covered by any other fetch, so its fetch brings its due records too.
        let due = self.due_wanted || part;
        self.news = false;
        // After the fetch of a part, the fetch of all partitions is still wanted.
        let mut asked = true;
        if !part {
            (self.wanted, self.due_wanted) = (false, false);
            asked = self.listening.begin();
        }
        FetchRequest {
            seq,
            began: ownership.clock().now(),
            turn: Turn { partitions, first: self.turn },
            stops: stops.all,
            unread: stops.unread,
            generations,
            due,
            asked,
            version: self.listening.version,
            skip,
            limit,
            handlers,
            part,
            reading,
        }
    }

    /// The fetch has failed.
    pub(in crate::delivery) fn failed(&mut self, request: &FetchRequest, now: Instant) {
        self.want();
        self.due_wanted |= request.due;
        self.stop_reads.again(request.stops);
        self.budget.released(request.partitions());
        self.walked(&request.handlers, now);
        // The next connection may lead to another database, so the known ids do not count.
        self.readings.discard();
        self.listening.version = None;
        self.pause(now);
    }

    /// The fetch was answered; its records are not admitted yet. `releasing`: partitions with lanes that are
    /// released in steps.
    pub(in crate::delivery) fn answered(
        &mut self,
        result: &FetchResult,
        releasing: PartitionSet,
        now: Instant,
    ) {
        let request = &result.request;
        if !request.part {
            self.readings.end(&request.reading);
        }
        self.head_search.fetched(result.records.len());
        if let Some((partitions, took)) = result.walked
            && let Some(next) = self.head_search.took(partitions, took)
        {
            self.mark_missed(next);
            self.want();
        }
        self.walked(&request.handlers, now);
        if self.budget.releasing(releasing) {
            self.want();
        }
        if request.part && !result.more {
            self.cool(request, releasing, now);
        }
        self.stop_reads.end(&request.generations);
        if let Some(last) = result.records.last() {
            self.turn = last.delivery.partition.number().wrapping_add(1);
            let bytes: usize = result.records.iter().map(|record| record.payload.len()).sum();
            self.budget.brought(bytes / result.records.len());
        }
    }

    /// A fetch of these handlers has ended.
    fn walked(&mut self, handlers: &Handlers, now: Instant) {
        if self.budget.walked(handlers, now - self.began, now) {
            self.missed = PartitionSet::ALL;
            self.want();
        }
    }

    /// The fetch of a part has brought all that the part has.
    fn cool(&mut self, request: &FetchRequest, releasing: PartitionSet, now: Instant) {
        let cooled = match request.handlers {
            Handlers::Only(_) => self.budget.cool_handler(&request.handlers),
            _ => self.budget.cool(request.partitions(), releasing, now),
        };
        if cooled {
            self.want();
        }
        // The other fetches have left out the records of the handler below the watermark.
        if cooled && request.handlers != Handlers::Every {
            self.missed = PartitionSet::ALL;
        }
    }

    /// The records of the fetch were admitted, `admitted` of them.
    pub(in crate::delivery) fn admitted(&mut self, answer: &Answer, admitted: usize, now: Instant) {
        // A record that was not admitted waits for a write under way or for another change, and the planner
        // hears of both. A fetch at once would return the same rows.
        let in_vain = answer.brought > 0 && admitted == 0;
        if in_vain && answer.part {
            self.budget.exhausted(answer.partitions, &answer.handlers);
        }
        let more = answer.more && !in_vain;
        self.wanted |= more;
        self.due_wanted |= answer.more_due && !in_vain;
        self.news |= more && answer.part;
        if !answer.part {
            let found = answer.new && admitted > 0;
            self.listening.end((answer.asked, found), answer.version, self.poll_interval, now);
        }
        if more {
            self.listening.version = None;
        }
    }

    /// When to call [`Planner::fire`].
    pub(in crate::delivery) fn next_timer(&self, now: Instant) -> Instant {
        let others = [self.listening.next(), self.budget.next_news()].into_iter().flatten();
        others.fold(self.timers.next(self.wanted, now), Instant::min)
    }

    /// Takes the timers whose time has come. Returns whether one of them is a poll.
    pub(in crate::delivery) fn fire(&mut self, in_memory: usize, now: Instant) -> bool {
        self.wanted |= self.listening.fire(now);
        self.budget.fire(now);
        let fired = self.timers.fire(now);
        if fired.due {
            self.due_wanted = true;
            // No reason is known, so the fetch counts as one that this process has not asked for.
            let asked = self.listening.is_asked();
            self.want();
            self.listening.asked_only(asked);
        }
        let Some(polls) = fired.poll else { return false };
        // Other processes can make a record pending below the watermark: by a repair, or by an insert with an
        // id of their own. No event tells of it, so a poll searches for it from time to time.
        match self.head_search.next(polls, in_memory > 0) {
            Some(all) if all == PartitionSet::ALL && in_memory == 0 => {
                self.readings.fetch_by_partition_next();
            }
            next => self.mark_missed(next.unwrap_or(PartitionSet::EMPTY)),
        }
        true
    }
}

/// The facts of an answered fetch, without its records.
pub(in crate::delivery) struct Answer {
    partitions: PartitionSet,
    handlers: Handlers,
    part: bool,
    brought: usize,
    new: bool,
    more: bool,
    more_due: bool,
    asked: bool,
    version: Option<i64>,
}

impl Answer {
    /// Whether the fetch has brought all that some partitions have, fetched by themselves.
    pub(in crate::delivery) fn is_all_of_a_part(&self) -> bool {
        self.part && !self.more && self.handlers == Handlers::Every
    }
}

impl From<&FetchResult> for Answer {
    fn from(result: &FetchResult) -> Self {
        let FetchResult { request, records, new, more, more_due, .. } = result;
        Self {
            partitions: request.partitions(),
            handlers: request.handlers.clone(),
            part: request.part,
            brought: records.len(),
            new: *new,
            more: *more,
            more_due: *more_due,
            asked: request.asked,
            version: request.version,
        }
    }
}

#[cfg(test)]
mod tests;
