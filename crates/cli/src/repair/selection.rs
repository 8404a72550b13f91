//! Selects failed records or dead letters: by ids, by a filter, or all of them on purpose.

use keylane::{
    RecordId,
    admin::{Admin, Filter},
    partition::Partition,
};
use tokio::time::Instant;

use super::{
    Answer,
    target::{Repair, Target},
};

/// How many are read at once, to count them or to change only some.
const AT_ONCE: usize = 100;
/// Counting stops at this number, because a larger count does not help a user.
const COUNTED: usize = 1_000;

/// A filter. All given conditions must hold.
#[derive(Debug, clap::Args)]
pub(super) struct Filters {
    /// Only of this handler.
    #[arg(long, value_name = "ID")]
    handler: Option<String>,
    /// Only of this record key.
    #[arg(long)]
    key: Option<String>,
    /// Only in this partition, 0 to 255.
    #[arg(long, value_name = "NUMBER", value_parser = partition)]
    partition: Option<Partition>,
}

/// What to change.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    /// The ids, as `list` prints them.
    #[arg(value_parser = id, conflicts_with_all = ["handler", "key", "partition", "all", "limit"])]
    ids: Vec<RecordId>,
    #[command(flatten)]
    filters: Filters,
    /// Selects all.
    #[arg(long, conflicts_with_all = ["handler", "key", "partition"])]
    all: bool,
    /// Changes at most this many: those with the lowest ids.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl Filters {
    /// The filter in the form of the library.
    pub(super) fn filter(&self) -> Filter {
        let mut filter = Filter::all();
        if let Some(handler) = &self.handler {
            filter = filter.handler(handler.as_str());
        }
        if let Some(key) = &self.key {
            filter = filter.key(key.as_str());
        }
        self.partition.into_iter().fold(filter, Filter::partition)
    }

    fn is_empty(&self) -> bool {
        self.handler.is_none() && self.key.is_none() && self.partition.is_none()
    }
}

impl Selection {
    /// Delivers them again.
    pub(super) async fn retry(self, admin: &Admin, target: Target) -> Answer {
        self.check()?;
        self.repair(admin, target, Repair::Retry).await
    }

    /// Deletes them. A selection by a filter is only counted, unless `yes` is given.
    pub(super) async fn discard(self, admin: &Admin, target: Target, yes: bool) -> Answer {
        self.check()?;
        if !yes && self.ids.is_empty() {
            let most = self.limit.map_or(COUNTED, |limit| COUNTED.min(limit as usize));
            let count = self.count(admin, target, most).await?;
            let more = if count == COUNTED { " or more" } else { "" };
            let counted = target.count(count);
            return Err(format!("this would delete {counted}{more} for good: add --yes to do it").into());
        }
        self.repair(admin, target, Repair::Discard).await
    }

    fn check(&self) -> Result<(), &'static str> {
        let names_some = !self.ids.is_empty() || self.all || !self.filters.is_empty();
        names_some
            .then_some(())
            .ok_or("nothing is selected: give ids, --handler, --key or --partition, or --all for all of them")
    }

    /// Counts the selected ones, up to a limit.
    async fn count(&self, admin: &Admin, target: Target, most: usize) -> Result<usize, keylane::StoreError> {
        let (filter, mut after, mut count) = (self.filters.filter(), 0, 0);
        while count < most {
            let page = target.page(admin, &filter, after, AT_ONCE.min(most - count)).await?;
            let Some(last) = page.last() else { break };
            (after, count) = (last.id, count + page.len());
        }
        Ok(count)
    }

    async fn repair(self, admin: &Admin, target: Target, repair: Repair) -> Answer {
        let (mut changed, mut missing) = (0, Vec::new());
        let done = match (self.ids.is_empty(), self.limit) {
            (false, _) => self.these(admin, target, repair, &mut changed, &mut missing).await,
            (true, Some(limit)) => self.some(admin, target, repair, limit as usize, &mut changed).await,
            (true, None) => self.every(admin, target, repair, &mut changed).await,
        };
        // The count so far is printed before an error, too.
        if changed > 0 || done.is_ok() {
            let what = if repair == Repair::Retry { "to be delivered again" } else { "deleted" };
            println!("{} {what}", target.count(changed));
        }
        done?;
        if !missing.is_empty() {
            return Err(target.none_with(&missing, self.ids.len()).into());
        }
        Ok(())
    }

    async fn these(
        &self,
        admin: &Admin,
        target: Target,
        repair: Repair,
        changed: &mut usize,
        missing: &mut Vec<RecordId>,
    ) -> Result<(), keylane::StoreError> {
        for id in &self.ids {
            match target.one(admin, *id, repair).await? {
                true => *changed += 1,
                false => missing.push(*id),
            }
        }
        Ok(())
    }

    async fn some(
        &self,
        admin: &Admin,
        target: Target,
        repair: Repair,
        limit: usize,
        changed: &mut usize,
    ) -> Result<(), keylane::StoreError> {
        let (filter, mut after) = (self.filters.filter(), 0);
        while *changed < limit {
            let page = target.page(admin, &filter, after, AT_ONCE.min(limit - *changed)).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            for listed in page {
                *changed += usize::from(target.one(admin, listed.id, repair).await?);
            }
        }
        Ok(())
    }

    async fn every(
        &self,
        admin: &Admin,
        target: Target,
        repair: Repair,
        changed: &mut usize,
    ) -> Result<(), keylane::StoreError> {
        let (filter, begun) = (self.filters.filter(), Instant::now());
        let mut after = Some(0);
        while let Some(from) = after {
            let (done, next) = target.step(admin, &filter, from, repair, begun).await?;
            (*changed, after) = (*changed + done, next);
        }
        Ok(())
    }
}

/// An id of a record.
pub(super) fn id(text: &str) -> Result<RecordId, &'static str> {
    text.parse().ok().filter(|id| *id >= 0).ok_or("it must be a whole number, as `list` prints the ids")
}

fn partition(text: &str) -> Result<Partition, &'static str> {
    text.parse().ok().and_then(Partition::new).ok_or("it must be a number from 0 to 255")
}
