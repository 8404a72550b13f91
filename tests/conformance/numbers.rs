//! PostgreSQL shows by the numbers of transactions when an id is resolved: the number is drawn before the id,
//! in every kind of insert.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicI64, Ordering::SeqCst},
};

use keylane::{
    inner::{IdScan, Pick},
    partition::{Partition, PartitionSet},
};

use crate::{
    fetcher::Fetcher,
    outbox::{ALL, Outbox, a_moment, ids, keys, record},
    target::{SqlTarget, Tx},
};

const INSERT: &str = "INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, \
                      payload) VALUES (gen_random_uuid(), {partition}, 'by-hand', 'bookkeeper', \
                      'order.placed', '{}')";

/// The columns of a scan.
const SCAN: &str = "id, event_id, partition_no, record_key, handler, record_type, content_type, payload, headers, \
                    attempts, age, expires, last_id, seen, server, visible";

async fn run<T: SqlTarget>(outbox: &Outbox<T>, tx: &mut Tx<T>, text: &str) {
    let number = Partition::of("by-hand").number().to_string();
    T::execute(tx, outbox.sql(text).replace("{partition}", &number)).await.unwrap();
}

/// A trigger before the row's insert checks the number: only the default of the id was computed before.
pub(crate) async fn the_number_is_given_out_before_the_id<T: SqlTarget>(outbox: &Outbox<T>) {
    let refuse = "CREATE FUNCTION {outbox}refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                  IF pg_current_xact_id_if_assigned() IS NULL THEN RAISE EXCEPTION 'no number yet'; END IF; \
                  RETURN new; END $$; \
                  CREATE TRIGGER refuse BEFORE INSERT ON {outbox}record \
                  FOR EACH ROW EXECUTE FUNCTION {outbox}refuse()";
    outbox.execute(refuse).await;
    // The trigger works: an insert with a given id draws no number.
    let mut tx = outbox.begin().await;
    let number = Partition::of("by-hand").number().to_string();
    let given = outbox.sql(INSERT).replace("(event_id", "(id, event_id").replace("(gen", "(7, gen");
    let refused = T::execute(&mut tx, given.replace("{partition}", &number)).await.unwrap_err();
    assert!(refused.to_string().contains("no number yet"), "{refused}");
    drop(tx);
    let mut tx = outbox.begin().await;
    run(outbox, &mut tx, INSERT).await;
    outbox.commit(tx).await;
    // One record and many records use different statements of the library.
    outbox.schedule(&[record("order-1")]).await;
    outbox.schedule(&[record("order-2"), record("order-3")]).await;
    assert_eq!(outbox.pending().await.len(), 4);
    let default = "SELECT count(*) FROM (SELECT pg_get_expr(adbin, adrelid) AS d FROM pg_attrdef \
                   WHERE adrelid = '{outbox}record'::regclass) AS x \
                   WHERE d LIKE '%pg_current_xact_id() IS NOT NULL%nextval%'";
    assert_eq!(outbox.number(default).await, 1);
}

pub(crate) async fn rows_by_plain_sql_are_fetched_like_any_other<T: SqlTarget>(outbox: &Outbox<T>) {
    let mut fetcher = Fetcher::join(outbox).await;
    fetcher.until_behind(outbox.schedule_keys(&["first"]).await[0]).await;
    let mut late = outbox.begin().await;
    run(outbox, &mut late, INSERT).await;
    for _ in 0..8 {
        outbox.schedule(&[record("order-1")]).await;
        assert_eq!(keys(&fetcher.fetch().await), ["order-1"]);
        fetcher.settle(ALL).await;
    }
    outbox.commit(late).await;
    assert_eq!(keys(&fetcher.drain().await), ["by-hand"]);
}

/// A transaction that has written other tables, or has undone its insert, adds nothing below the last id. Its
/// locks show it.
pub(crate) async fn who_has_written_no_record_is_a_bystander<T: SqlTarget>(outbox: &Outbox<T>) {
    let (mut one, mut other) = (outbox.begin().await, outbox.begin().await);
    let number = "SELECT pg_current_xact_id()::text::int8";
    let numbers =
        [T::number(&mut one, number.to_owned()).await, T::number(&mut other, number.to_owned()).await];
    let bystanders = async || outbox.store.find_bystanders(&numbers).await.unwrap().unwrap();
    let before = outbox.schedule_keys(&["before"]).await[0];
    let found = bystanders().await;
    assert_eq!((found.last_id, found.server), (before, outbox.store.server().await.unwrap()));
    assert_eq!(found.numbers.into_iter().collect::<BTreeSet<_>>(), numbers.into());
    run(outbox, &mut one, "SAVEPOINT one").await;
    run(outbox, &mut one, INSERT).await;
    run(outbox, &mut other, "SELECT count(*) FROM {outbox}record").await;
    assert_eq!(bystanders().await.numbers, [numbers[1]]);
    run(outbox, &mut one, "ROLLBACK TO one").await;
    run(outbox, &mut other, INSERT).await;
    assert_eq!(bystanders().await.numbers, [numbers[0]]);
    outbox.commit(one).await;
    outbox.commit(other).await;
    assert_eq!(bystanders().await.numbers, [0; 0], "who has ended tells nothing");
}

/// A savepoint has its own number. The number of the whole transaction counts.
pub(crate) async fn an_id_drawn_in_a_savepoint_is_not_passed_over<T: SqlTarget>(outbox: &Outbox<T>) {
    let mut fetcher = Fetcher::join(outbox).await;
    fetcher.until_behind(outbox.schedule_keys(&["first"]).await[0]).await;
    let mut late = outbox.begin().await;
    run(outbox, &mut late, "SAVEPOINT one").await;
    run(outbox, &mut late, INSERT).await;
    run(outbox, &mut late, "ROLLBACK TO one").await;
    run(outbox, &mut late, INSERT).await;
    run(outbox, &mut late, "RELEASE one").await;
    let after = outbox.schedule_keys(&["order-1"]).await[0];
    for _ in 0..8 {
        fetcher.fetch().await;
        fetcher.settle(ALL).await;
        // Many, because a fetch begins up to 128 ids before the first one that it needs.
        outbox.schedule(&std::array::from_fn::<_, 24, _>(|_| record("order-1"))).await;
    }
    fetcher.drain().await;
    assert!(fetcher.next().is_some_and(|from| from > after), "it is held back: {:?}", fetcher.readings);
    outbox.commit(late).await;
    // A later record of the key is visible by now. The fetch that brings it brings both.
    let later = outbox.schedule_keys(&["by-hand"]).await[0];
    let found = ids(&fetcher.fetch().await);
    assert!(found.len() == 2 && found[0] < after && found[1] == later, "{found:?}");
}

/// Like any other transaction with a number, it hides no record and delays no fetch at its own ids.
pub(crate) async fn a_number_without_an_id_holds_back_no_fetch<T: SqlTarget>(outbox: &Outbox<T>) {
    let mut fetcher = Fetcher::join(outbox).await;
    fetcher.until_behind(outbox.schedule_keys(&["first"]).await[0]).await;
    let mut idle = outbox.begin().await;
    run(outbox, &mut idle, "SELECT pg_current_xact_id()").await;
    let first = outbox.schedule_keys(&["order-1"]).await[0];
    for round in 0..100 {
        let new = outbox.schedule_keys(&["order-1", "order-2"]).await;
        assert_eq!(fetcher.fetch().await.len(), 2 + usize::from(round == 0));
        assert!(new.iter().all(|id| fetcher.memory.contains(id)));
        fetcher.settle(ALL).await;
    }
    assert!(fetcher.next().is_some_and(|from| from > first + 30), "{:?}", fetcher.readings);
    outbox.commit(idle).await;
    fetcher.until_behind(first + 200).await;
}

/// The read ids and the horizon are of the same moment, because one statement reads both.
pub(crate) async fn a_scan_and_its_horizon_agree<T: SqlTarget>(outbox: &Outbox<T>) {
    let whole = IdScan {
        partitions: PartitionSet::ALL,
        from: 1,
        reach: 4_096,
        within: &[],
        list: 0,
        open: &[],
        ahead: None,
        pick: Pick::new(&[], ALL),
    };
    for _ in 0..20 {
        let tx = {
            let mut tx = outbox.begin().await;
            outbox.insert(&mut tx, &[record("order-1")]).await;
            tx
        };
        let number = outbox.store.find_head(PartitionSet::ALL, &[]).await.unwrap().number.unwrap();
        let open = outbox.store.scan_by_id(whole).await.unwrap();
        assert!(open.1.open_from().unwrap() < number, "one below is open");
        outbox.commit(tx).await;
        let closed = loop {
            let scanned = outbox.store.scan_by_id(whole).await.unwrap();
            if scanned.1.open_from().unwrap() >= number {
                break scanned;
            }
            a_moment().await;
        };
        assert_eq!(closed.0.len(), open.0.len() + 1);
        assert_eq!(closed.1.last_id, *ids(&closed.0).last().unwrap());
    }
}

/// Sessions use ids that they have drawn in advance in any order, and their numbers do not show it.
pub(crate) async fn ids_drawn_in_advance_are_not_passed_over<T: SqlTarget>(outbox: &Outbox<T>) {
    outbox.execute("ALTER SEQUENCE {outbox}record_id_seq CACHE 10").await;
    let mut fetcher = Fetcher::join(outbox).await;
    let mut sessions = [outbox.begin().await, outbox.begin().await, outbox.begin().await];
    let mut brought = Vec::new();
    // After the first round each session has its stock. The next ids of the first session are lower than the
    // last ids of the others.
    for round in 0..8 {
        for session in &mut sessions {
            run(outbox, session, INSERT).await;
            run(outbox, session, "COMMIT; BEGIN").await;
            brought.extend(ids(&fetcher.fetch().await));
            fetcher.settle(ALL).await;
            assert_eq!(fetcher.scanned, None);
        }
        assert_eq!(brought.len(), (round + 1) * sessions.len(), "{brought:?}");
    }
    assert!(!brought.is_sorted(), "they were drawn in order: {brought:?}");
}

/// The column `last_value` of a sequence is up to 32 ids ahead for a moment. A bound for open transactions that
/// was read then was too high, and a later record passed an earlier one of its key.
pub(crate) async fn the_last_id_is_never_ahead_of_what_was_drawn<T: SqlTarget>(outbox: &Outbox<T>) {
    const DRAW: &str = "SELECT count(nextval('{outbox}record_id_seq')) FROM generate_series(1, 3000)";
    let statement = |name: &str| {
        let statements = outbox.store.statements();
        let sql = statements.iter().find(|(of, _)| *of == name).unwrap().1.to_string();
        let scan = sql.replace("{handlers}", "").replace("$3", "''::bytea");
        scan.replace("$4", "'{}'")
            .replace("$5", "'{}'")
            .replace("$6", "1")
            .replace("$7", "0")
            .replace("$1", "1")
            .replace("$2", "1")
    };
    let ahead = AtomicI64::new(0);
    let read = async {
        for (name, columns) in [("last_id", "last_id, server"), ("scan_by_id", SCAN)] {
            let sql = statement(name);
            let count = "CREATE OR REPLACE FUNCTION {outbox}ahead() RETURNS bigint LANGUAGE plpgsql AS $$ \
                         DECLARE l bigint; bad bigint := 0; BEGIN FOR i IN 1..100000 LOOP \
                         SELECT x.last_id INTO l FROM (@) AS x (#) WHERE x.last_id IS NOT NULL; \
                         IF nextval('{outbox}record_id_seq') <= l THEN bad := bad + 1; END IF; \
                         END LOOP; RETURN bad; END $$";
            outbox.execute(&count.replace('@', &sql).replace('#', columns)).await;
            ahead.fetch_add(outbox.number("SELECT {outbox}ahead()").await, SeqCst);
        }
    };
    let draw = async || loop {
        outbox.number(DRAW).await;
    };
    tokio::select! {
        () = read => {}
        ((), (), ()) = async { tokio::join!(draw(), draw(), draw()) } => {}
    }
    assert_eq!(ahead.into_inner(), 0, "reads that were ahead");
}
