//! Keys and answers in Redis: `idempotent:{scope}:{key}`, by one script.

use std::{sync::LazyLock, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use redis::Script;

use super::{Answer, Begun, Claim, IdempotencyStore, rules};
use crate::{Redis, error::StoreError};

static RECORD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("record.lua")));

impl Redis {
    /// Runs the script: the status after it, whether the fingerprint is the same, and the result.
    async fn record(
        &self,
        verb: &'static str,
        claim: &Claim,
        kept_for: Duration,
        result: &str,
    ) -> Result<(String, bool, String), StoreError> {
        let Claim { scope, key, token, fingerprint, trace_id, .. } = claim;
        let mut script = RECORD.key(format!("idempotent:{scope}:{key}"));
        script.arg(verb).arg(&**token).arg(&**fingerprint).arg(&**key).arg(trace_id.as_deref().unwrap_or(""));
        script.arg(kept_for.as_millis() as u64).arg(result);
        self.run(verb, &script).await
    }
}

impl IdempotencyStore for Redis {
    fn begin<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Begun, StoreError>> {
        async move {
            let (status, is_same, result) = self.record("begin", claim, claim.lease, "").await?;
            let begun = match status.as_str() {
                "STARTED" => Some(Begun::Execute),
                status => rules::begun(status, is_same, &result),
            };
            begun.ok_or_else(|| StoreError::Answer { call: "begin", problem: format!("status {status:?}") })
        }
        .boxed()
    }

    fn finish<'a>(&'a self, claim: &'a Claim, answer: &'a Answer) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            let (status, ..) = self.record("finish", claim, claim.keep, &answer.to_text()).await?;
            Ok(status == "KEPT")
        }
        .boxed()
    }

    fn free<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            let (status, ..) = self.record("free", claim, Duration::ZERO, "").await?;
            Ok(status == "FREED")
        }
        .boxed()
    }
}
