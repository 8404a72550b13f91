//! The numbers of transactions of PostgreSQL.

use sqlx::PgConnection;

use super::statements::{Statements, safe};
use crate::rules::{
    horizon::{Bystanders, Server},
    witnesses::{Snapshot, Witness},
};

/// Reads the last id, then draws a number. `None` if two different servers have answered.
pub(super) async fn draw_number(
    conn: &mut PgConnection,
    sql: &Statements,
) -> Result<Option<(Witness, Server)>, sqlx::Error> {
    let Some(draw) = &sql.draw_number else { return Ok(None) };
    let (last_id, before): (i64, i64) = sqlx::query_as(safe(&sql.last_id)).fetch_one(&mut *conn).await?;
    let (number, server): (i64, i64) = sqlx::query_as(safe(draw)).fetch_one(conn).await?;
    Ok((before == server).then_some((Witness { last_id, number }, Server(server))))
}

/// Parses the text `end of the resolved part:end:open,open`.
pub(super) fn snapshot(text: &str) -> Result<Snapshot, sqlx::Error> {
    let parsed = || {
        let mut parts = text.splitn(3, ':').skip(1);
        let end = parts.next()?.parse().ok()?;
        let open = parts.next()?.split(',').filter(|number| !number.is_empty());
        let mut open: Vec<i64> = open.map(|number| number.parse().ok()).collect::<Option<_>>()?;
        open.sort_unstable();
        Some(Snapshot { end, open })
    };
    parsed().ok_or_else(|| sqlx::Error::Decode(format!("no snapshot: {text:?}").into()))
}

/// Those of the given transactions that have written no record. `None` if sessions draw ids in advance,
/// because such ids are used in any order.
pub(super) async fn find_bystanders(
    conn: &mut PgConnection,
    sql: &Statements,
    given: &[i64],
) -> Result<Option<Bystanders>, sqlx::Error> {
    let Some(bystanders) = &sql.bystanders else { return Ok(None) };
    let (last_id, server): (i64, i64) = sqlx::query_as(safe(&sql.last_id)).fetch_one(&mut *conn).await?;
    let numbers = sqlx::query_scalar(safe(bystanders)).bind(given).fetch_all(conn).await?;
    Ok((last_id > 0).then_some(Bystanders { server: Server(server), last_id, numbers }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_from_its_text() {
        let of = |text| snapshot(text).ok().map(|Snapshot { end, open }| (end, open));
        assert_eq!(of("795:799:795,797"), Some((799, vec![795, 797])));
        assert_eq!(of("800:800:"), Some((800, vec![])));
        assert_eq!(of("4294967295:4294967300:4294967295"), Some((4_294_967_300, vec![4_294_967_295])));
        assert_eq!(["", "1:2", "1:2:x"].map(of), [None, None, None]);
    }
}
