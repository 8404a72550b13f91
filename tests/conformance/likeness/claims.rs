//! The commands of claimed mode. Leases end at once or in an hour, so that no clock decides.

use std::time::Duration;

use keylane::{
    inner::{ClaimEnd, ClaimOutcome, Claiming, Source},
    partition::Partition,
    rules::claim::Reading,
};

use super::{
    command::{Command, Outcome},
    store::Likened,
    world::{World, of_handlers, told},
};
use crate::outbox::ALL;

const HOUR: Duration = Duration::from_secs(3600);
const NOBODY: &str = "nobody";

fn lease(lasts: bool) -> Duration {
    if lasts { HOUR } else { Duration::ZERO }
}

impl<T: Likened> World<'_, T> {
    pub(super) async fn claims(&mut self, command: &Command) -> String {
        let (Command::ClaimRecords { worker, .. }
        | Command::RenewClaims { worker, .. }
        | Command::SettleClaims { worker, .. }) = command
        else {
            return format!("{command:?}");
        };
        let Some(worker) = self.worker(*worker) else { return NOBODY.to_owned() };
        let owner = self.workers[worker].id;
        match command {
            Command::ClaimRecords { source, limit, lasts, handlers, .. } => {
                // Only a claim in the order of ids says which records it takes first.
                let (source, limit) = match source % 4 {
                    0 => (Source::Pending(Reading::Ids { from: 1 }), *limit),
                    1 => (Source::Pending(Reading::Index { from: Partition::new(0).unwrap() }), ALL),
                    2 => (Source::Due, ALL),
                    _ => (Source::Suspect, ALL),
                };
                let (lease, handlers) = (lease(*lasts), of_handlers(*handlers));
                let claimed =
                    self.store.claim_records(Claiming { owner, lease, source, handlers, limit }).await;
                let claimed = claimed.unwrap();
                let tokens: Vec<i64> =
                    claimed.records.iter().map(|record| record.delivery.generation.0).collect();
                for record in &claimed.records {
                    let known = self.known.iter_mut().rfind(|known| known.id == Some(record.delivery.id));
                    known.into_iter().for_each(|known| known.token = record.delivery.generation.0);
                }
                let (selected, is_full) = (claimed.selected, claimed.is_full);
                format!("{} {tokens:?} {selected} {is_full}", self.records(Ok(claimed.records)))
            }
            Command::RenewClaims { records, lasts, .. } => {
                let ids: Vec<_> = self.unlocked(records).into_iter().map(|(_, id)| id).collect();
                let lost = self.store.renew_claims(owner, lease(*lasts), &ids).await.unwrap();
                let mut lost: Vec<String> = lost.into_iter().map(|id| self.name(id)).collect();
                lost.sort_unstable();
                lost.join(" ")
            }
            Command::SettleClaims { outcomes, .. } => {
                let mut ended: Vec<ClaimOutcome> = Vec::new();
                for (record, is_stale, outcome) in outcomes {
                    let Some(&(number, id)) = self.unlocked(&[*record]).first() else { continue };
                    let token = self.known[number].token - i64::from(*is_stale);
                    if ended.iter().all(|outcome| outcome.id != id) {
                        ended.push(ClaimOutcome { id, token, end: end(number, outcome) });
                    }
                }
                told(self.store.settle_claims(owner, &ended).await)
            }
            other => format!("{other:?}"),
        }
    }
}

fn end(number: usize, outcome: &Outcome) -> ClaimEnd {
    match outcome {
        Outcome::Complete | Outcome::CompleteAndResume | Outcome::Resume => ClaimEnd::Complete,
        Outcome::Retry { later, counted, .. } => {
            ClaimEnd::Retry { delay: lease(*later), error: format!("refused {number}"), counted: *counted }
        }
        Outcome::Fail { counted, .. } => {
            ClaimEnd::Fail { error: format!("spent {number}"), counted: *counted }
        }
        _ => ClaimEnd::Release,
    }
}
