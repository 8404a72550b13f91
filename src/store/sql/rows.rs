//! Many rows in one statement, for databases that take no arrays.

/// Splits into parts whose sizes are powers of two, the largest first. The number of different texts stays
/// low enough that all can stay prepared. On MySQL, a text that is prepared anew is closed after use. The
/// packet that closes it has no reply, and the next packet on the connection waits 40 ms for its
/// acknowledgement.
pub(crate) fn kept_parts<T>(mut all: &[T]) -> impl Iterator<Item = &[T]> {
    const LARGEST: usize = 128;
    std::iter::from_fn(move || {
        let size = 1 << all.len().checked_ilog2()?;
        let (part, rest) = all.split_at(LARGEST.min(size));
        all = rest;
        Some(part)
    })
}

/// `insert_rows` of databases without arrays.
macro_rules! sqlx_insert {
    ($connection:ty) => {
        fn insert_rows<'c>(
            conn: &'c mut $connection,
            insert: crate::store::sql::insert::Insert<'c>,
        ) -> crate::store::sql::driver::DriverResult<'c, ()> {
            use crate::store::sql::{rows::kept_parts, statements::safe};
            Box::pin(async move {
                for rows in kept_parts(insert.rows) {
                    let sql = safe(&insert.text(&Self::DIALECT, rows.len()));
                    let values = rows.iter().flat_map(|row| insert.values(Self::FAMILY, row)).collect();
                    bind(sqlx::query(sql), values).execute(&mut *conn).await?;
                }
                Ok(())
            })
        }
    };
}

pub(crate) use sqlx_insert;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_the_order_and_have_few_sizes() {
        let sizes = |count: usize| -> Vec<usize> {
            let all: Vec<usize> = (0..count).collect();
            assert_eq!(kept_parts(&all).flatten().copied().collect::<Vec<_>>(), all);
            kept_parts(&all).map(<[usize]>::len).collect()
        };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(99), [64, 32, 2, 1]);
        assert_eq!(sizes(300), [128, 128, 32, 8, 4]);
    }
}
