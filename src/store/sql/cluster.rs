//! Members and claims.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    SqlStore,
    call::{begin, commit, query},
    driver::{Driver, Kind, Row, Value},
    link::answering,
    statements::{fill, list, safe},
};
use crate::{
    instance::{Claim, ClusterView, Generation, InstanceId, Member},
    partition::{PARTITION_COUNT, Partition},
    rules::horizon::Server,
    store::{ClusterStore, NewInstance, StoreError},
};

/// The lists for claims: `{partitions}` for the index, and `{claims}`, which has the generation and the
/// partition of each claim in one number.
fn claim_lists(claims: &[(Partition, Generation)]) -> [(&'static str, String); 2] {
    let number = |partition: &Partition| i64::from(partition.number());
    let partitions = list(claims.iter().map(|(partition, _)| number(partition)));
    let claims = claims.iter().map(|(p, generation)| generation.0 * PARTITION_COUNT as i64 + number(p));
    [("{partitions}", partitions), ("{claims}", list(claims))]
}

fn id(instance: InstanceId) -> Value {
    instance.to_string().into()
}

const VIEW: &[Kind] = &[Kind::Text, Kind::Text, Kind::Text, Kind::Int, Kind::Int];
/// The first column of the row of a view that says that the beat was written.
const BEATEN: &str = "beaten";

fn view_of(rows: &[Row]) -> ClusterView {
    let mut view = ClusterView { members: Vec::new(), claims: [Claim::default(); PARTITION_COUNT] };
    for row in rows {
        match row.text(0).as_str() {
            "instance" => {
                if let (Ok(id), Ok(state)) = (row.text(1).parse(), row.text(2).parse()) {
                    view.members.push(Member { id, state, beat: row.int(3) });
                }
            }
            "partition" => {
                if let Some(partition) = Partition::new(row.int(4)) {
                    let owner = row.optional_text(1).and_then(|owner| owner.parse().ok());
                    view.claims[partition.index()] = Claim { owner, generation: Generation(row.int(3)) };
                }
            }
            _ => {}
        }
    }
    view
}

#[async_trait]
impl<D: Driver> ClusterStore for SqlStore<D> {
    async fn server(&self) -> Result<Server, StoreError> {
        self.call("server", async {
            let mut conn = self.control.borrow().await?;
            let server = answering::<D>(&mut conn).await?;
            conn.keep();
            Ok(server)
        })
        .await
    }

    async fn join(&self, instance: &NewInstance) -> Result<(), StoreError> {
        self.call("join", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let values =
                vec![id(instance.id), instance.name.as_str().into(), instance.version.as_str().into()];
            D::execute(&mut conn, safe(&self.sql.join_instance), values).await?;
            for slot in 0..instance.fence_rows {
                let values = vec![id(instance.id), Value::Int(i64::from(slot))];
                D::execute(&mut conn, safe(&self.sql.join_fence), values).await?;
            }
            D::execute(&mut conn, safe(&self.sql.count_change), Vec::new()).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(())
        })
        .await
    }

    async fn beat(&self, me: InstanceId) -> Result<Option<ClusterView>, StoreError> {
        self.call("beat", async {
            let mut conn = self.control.borrow().await?;
            let (beaten, rows) = match &self.sql.beat_and_view {
                Some(sql) => {
                    let rows = query::<D>(&mut conn, safe(sql), vec![id(me)], VIEW).await?;
                    (rows.iter().any(|row| row.text(0) == BEATEN), rows)
                }
                None => {
                    let beaten = D::execute(&mut conn, safe(&self.sql.beat), vec![id(me)]).await? == 1;
                    (beaten, query::<D>(&mut conn, safe(&self.sql.view), Vec::new(), VIEW).await?)
                }
            };
            conn.keep();
            Ok(beaten.then(|| view_of(&rows)))
        })
        .await
    }

    async fn view(&self) -> Result<ClusterView, StoreError> {
        Ok(view_of(&self.read("view", safe(&self.sql.view), Vec::new(), VIEW).await?))
    }

    async fn evict(&self, who: InstanceId, beat: Option<i64>) -> Result<bool, StoreError> {
        let mut values = vec![id(who)];
        values.extend(beat.map(Value::Int));
        let sql = if beat.is_some() { &self.sql.evict_silent } else { &self.sql.evict_overdue };
        self.call("evict", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let evicted = D::execute(&mut conn, safe(sql), values).await? == 1;
            if evicted {
                D::execute(&mut conn, safe(&self.sql.close_fences), vec![id(who)]).await?;
                if beat.is_some() {
                    D::execute(&mut conn, safe(&self.sql.count_crash), vec![id(who)]).await?;
                    D::execute(&mut conn, safe(&self.sql.count_crash_of_calls), vec![id(who)]).await?;
                }
                D::execute(&mut conn, safe(&self.sql.count_change), Vec::new()).await?;
            }
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(evicted)
        })
        .await
    }

    async fn claim(
        &self,
        me: InstanceId,
        wanted: &[(Partition, Generation)],
    ) -> Result<Vec<(Partition, Generation)>, StoreError> {
        let sql = fill(&self.sql.claim, &claim_lists(wanted));
        let rows = self
            .call("claim", async {
                let mut conn = self.control.borrow().await?;
                D::execute(&mut conn, sql, vec![id(me), id(me)]).await?;
                let owned = safe(&self.sql.owned);
                let rows = query::<D>(&mut conn, owned, vec![id(me)], &[Kind::Int, Kind::Int]).await?;
                conn.keep();
                Ok(rows)
            })
            .await?;
        let owned = rows.iter().filter_map(|row| Some((Partition::new(row.int(0))?, Generation(row.int(1)))));
        Ok(owned.collect())
    }

    async fn release(&self, me: InstanceId, claims: &[(Partition, Generation)]) -> Result<usize, StoreError> {
        let sql = fill(&self.sql.release, &claim_lists(claims));
        let released = self.call("release", async {
            let mut conn = self.control.borrow().await?;
            let released = D::execute(&mut conn, sql, vec![id(me)]).await?;
            D::execute(&mut conn, safe(&self.sql.count_change), Vec::new()).await?;
            conn.keep();
            Ok(released)
        });
        Ok(released.await? as usize)
    }

    async fn drain(&self, who: InstanceId) -> Result<bool, StoreError> {
        self.call("drain", async {
            let mut conn = self.control.borrow().await?;
            let drained = D::execute(&mut conn, safe(&self.sql.drain_instance), vec![id(who)]).await? == 1;
            D::execute(&mut conn, safe(&self.sql.count_change), Vec::new()).await?;
            conn.keep();
            Ok(drained)
        })
        .await
    }

    async fn leave(&self, me: InstanceId) -> Result<(), StoreError> {
        self.call("leave", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            for sql in [&self.sql.stop_instance, &self.sql.close_fences, &self.sql.release_all] {
                D::execute(&mut conn, safe(sql), vec![id(me)]).await?;
            }
            D::execute(&mut conn, safe(&self.sql.count_change), Vec::new()).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(())
        })
        .await
    }

    async fn purge_instances(&self, silent_for: Duration) -> Result<usize, StoreError> {
        self.purge_some_instances(silent_for).await
    }
}

impl<D: Driver> SqlStore<D> {
    /// Runs one writing statement outside of a transaction.
    pub(super) async fn write(
        &self,
        name: &'static str,
        sql: &std::sync::Arc<str>,
        values: Vec<Value>,
    ) -> Result<u64, StoreError> {
        self.call(name, async {
            let mut conn = self.control.borrow().await?;
            let rows = D::execute(&mut conn, safe(sql), values).await?;
            conn.keep();
            Ok(rows)
        })
        .await
    }
}
