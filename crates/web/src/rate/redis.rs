//! Buckets in Redis: `ratelimit:{name}` with `tokens` and `lastRefillTime`, by one script and the server's clock.

use std::sync::LazyLock;

use futures::{FutureExt, future::BoxFuture};
use redis::Script;

use super::{BucketStore, Limit, Taken};
use crate::{Redis, error::StoreError};

static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("take.lua")));

impl BucketStore for Redis {
    fn take<'a>(&'a self, key: &'a str, limit: Limit) -> BoxFuture<'a, Result<Taken, StoreError>> {
        async move {
            let mut script = TAKE.key(format!("ratelimit:{key}"));
            script.arg(limit.capacity).arg(limit.rate.to_string()).arg(limit.kept_seconds());
            let (allowed, tokens): (bool, f64) = self.run("rate limit", &script).await?;
            Ok(Taken::new(allowed, tokens))
        }
        .boxed()
    }
}
