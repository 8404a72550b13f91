//! The table of dead letters. The database copies records into it and back.

use async_trait::async_trait;

use super::{
    SqlStore,
    call::{begin, commit, query},
    driver::{Driver, Kind, Value},
    overview::{Page, lane, micros},
    records::numbers,
    statements::{fill, list},
};
use crate::{
    record::RecordId,
    store::{DeadLetter, DeadLetterCause, DeadLetterStore, ErrorClass, Filter, StoreError},
};

#[async_trait]
impl<D: Driver> DeadLetterStore for SqlStore<D> {
    async fn copy_to_dead_letters(&self, id: RecordId, cause: &DeadLetterCause) -> Result<(), StoreError> {
        let DeadLetterCause { attempts, target, error, class, kind } = cause;
        let class = class.as_deref().map_or(Value::Null, Value::from);
        let (attempts, target, error) = (i64::from(*attempts), target.as_str(), error.as_str());
        let values = vec![attempts.into(), target.into(), error.into(), class, (*kind).into(), id.into()];
        match self.write("copy to dead letters", &self.sql.copy_to_dead_letters, values).await {
            // An earlier owner has copied the record.
            Err(StoreError { class: ErrorClass::Duplicate, .. }) => Ok(()),
            copied => copied.map(drop),
        }
    }

    async fn dead_letters(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        const KINDS: &[Kind] = &[
            Kind::Int,
            Kind::Uuid,
            Kind::Int,
            Kind::Text,
            Kind::Text,
            Kind::Text,
            Kind::Text,
            Kind::Bytes,
            Kind::Text,
            Kind::Int,
            Kind::Text,
            Kind::Text,
            Kind::Text,
            Kind::Text,
            Kind::Int,
            Kind::Int,
        ];
        // The ids are read first, as for failed records, so that the database does not sort payloads.
        let ids = self.dead_letter_ids(filter, after, limit).await?;
        let sql = fill(&self.sql.dead_letters, &[("{ids}", list(ids))]);
        let rows = self.read("dead letters", sql, Vec::new(), KINDS).await?;
        let letters = rows.iter().filter_map(|row| {
            let headers = row.optional_text(8);
            Some(DeadLetter {
                id: row.int(0),
                event_id: row.uuid(1)?,
                lane: lane(row, 2)?,
                record_type: row.text(5),
                content_type: row.text(6),
                payload: row.bytes(7),
                headers: headers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                attempts: u32::try_from(row.int(9)).unwrap_or(u32::MAX),
                target: row.text(10),
                error: row.text(11),
                error_class: row.optional_text(12),
                error_kind: row.text(13),
                age: micros(row.int(14)),
                since: micros(row.int(15)),
            })
        });
        Ok(letters.collect())
    }

    async fn dead_letter_ids(
        &self,
        filter: &Filter,
        after: RecordId,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError> {
        let (matching, values) = Page { filter, after, limit }.conditions(&D::DIALECT, "", "id");
        let lists = [("{matching}", matching), ("{partitions}", numbers(filter.partitions()))];
        let sql = fill(&self.sql.dead_letter_ids, &lists);
        let rows = self.read("dead letter ids", sql, values, &[Kind::Int]).await?;
        Ok(rows.iter().map(|row| row.int(0)).collect())
    }

    async fn take_dead_letters(&self, ids: &[RecordId], schedule: bool) -> Result<usize, StoreError> {
        self.call("take dead letters", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let lock = fill(&self.sql.lock_dead_letters, &[("{ids}", list(ids.iter().copied()))]);
            let rows = query::<D>(&mut conn, lock, Vec::new(), &[Kind::Int]).await?;
            if !rows.is_empty() {
                let there = [("{ids}", list(rows.iter().map(|row| row.int(0))))];
                if schedule {
                    let again = fill(&self.sql.schedule_dead_letters, &there);
                    D::execute(&mut conn, again, Vec::new()).await?;
                }
                D::execute(&mut conn, fill(&self.sql.delete_dead_letters, &there), Vec::new()).await?;
            }
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(rows.len())
        })
        .await
    }
}
