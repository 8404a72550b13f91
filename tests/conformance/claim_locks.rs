//! Claimed mode on servers: who claims waits for nobody, whatever others have locked.

use std::sync::Arc;

use keylane::{RecordId, admin::InstanceId, inner::Source, rules::claim::Reading};

use crate::{
    claimed::{LONG, SHORT, of, pending, schedule},
    outbox::{ALL, Outbox, ids, promptly},
    target::{Server, Tx},
};

/// The transaction of a server's session with this isolation level.
const LEVELS: [&str; 2] = ["READ COMMITTED", "REPEATABLE READ"];

/// The statement with this name, for an owner of its own.
fn filled(statements: &[(&'static str, Arc<str>)], name: &str, values: &[(&str, &str)]) -> String {
    let (_, sql) = statements.iter().find(|(known, _)| *known == name).unwrap();
    let all: Vec<String> = (0..256).map(|number: u32| number.to_string()).collect();
    let common = [
        ("{from}", "0"),
        ("{to}", "256"),
        ("{partitions}", &*all.join(",")),
        ("{handlers}", ""),
        ("{suspected}", "IS NULL"),
    ];
    let values = common.iter().chain(values);
    values.fold(sql.to_string(), |sql, (token, value)| sql.replace(token, value))
}

/// The first steps, and what a claim of the library names them.
fn first_steps() -> [(&'static str, Source); 3] {
    [
        ("claimed_find_pending", pending()),
        ("claimed_find_by_id", Source::Pending(Reading::Ids { from: 1 })),
        ("claimed_find_due", Source::Due),
    ]
}

/// The first step. Where candidates are read without locks, those that are free are locked then.
async fn step_one<T: Server>(
    tx: &mut Tx<T>,
    statements: &[(&'static str, Arc<str>)],
    find: &str,
    limit: usize,
) -> Result<Vec<RecordId>, sqlx::Error> {
    let limit = [("{limit}", &*limit.to_string()), ("{candidates}", "40")];
    let found = T::numbers(tx, filled(statements, find, &limit)).await?;
    let locks = statements.iter().any(|(name, _)| *name == "claimed_lock") && find != "claimed_find_by_id";
    if !locks || found.is_empty() {
        return Ok(found);
    }
    let values = [("{ids}", &*list(&found)), limit[0]];
    T::numbers(tx, filled(statements, "claimed_lock", &values)).await
}

fn list(ids: &[RecordId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A session with the locks of the first step, and what it has found.
async fn holding<T: Server>(outbox: &Outbox<T>, level: &str, find: &str) -> (Tx<T>, Vec<RecordId>) {
    let mut tx = outbox.begin().await;
    let begin = format!("{}; {}", T::WAIT_ONE_SECOND, T::BEGIN_AGAIN.replace("READ COMMITTED", level));
    T::execute(&mut tx, begin).await.unwrap();
    let held = promptly(step_one::<T>(&mut tx, &outbox.store.statements(), find, 10)).await.unwrap();
    (tx, held)
}

/// The second step for these records.
fn take(statements: &[(&'static str, Arc<str>)], ids: &[RecordId]) -> String {
    let values = [("{ids}", &*list(ids)), ("{instance}", "'other'"), ("{lease}", "3600000000")];
    filled(statements, "claimed_take", &values)
}

/// Pending records and due ones.
async fn schedule_both<T: Server>(outbox: &Outbox<T>) {
    schedule(outbox, 60).await;
    outbox.store.claim_records(of(InstanceId::generate(), pending(), SHORT, ALL)).await.unwrap();
    schedule(outbox, 90).await;
}

/// A session holds the locks of the first step while others claim.
pub(crate) async fn no_claim_waits_for_another<T: Server>(outbox: &Outbox<T>) {
    schedule_both(outbox).await;
    for level in T::LEVELS_WITHOUT_GAPS {
        for (find, source) in first_steps() {
            let (mut holder, held) = holding(outbox, level, find).await;
            assert_eq!(held.len(), 10, "{find}, {level}");
            let claimed = outbox.store.claim_records(of(InstanceId::generate(), source, LONG, 10));
            let claimed = ids(&promptly(claimed).await.unwrap().records);
            assert_eq!(claimed.len(), 10, "{find}, {level}");
            assert!(claimed.iter().all(|id| !held.contains(id)), "{find}, {level}");
            T::execute(&mut holder, "ROLLBACK".to_owned()).await.unwrap();
        }
    }
}

/// Two sessions have their locks of the first step. Each can take the second one while the other is open.
pub(crate) async fn no_second_step_waits_for_a_first_one<T: Server>(outbox: &Outbox<T>) {
    let statements = outbox.store.statements();
    schedule_both(outbox).await;
    for (one, _) in first_steps() {
        for (other, _) in first_steps() {
            let (mut first, held) = holding(outbox, LEVELS[0], one).await;
            let (mut second, more) = holding(outbox, LEVELS[0], other).await;
            assert_eq!((held.len(), more.len()), (10, 10), "{one}, {other}");
            assert!(more.iter().all(|id| !held.contains(id)), "{one}, {other}");
            for (tx, ids) in [(&mut first, held), (&mut second, more)] {
                let taken = T::execute(tx, take(&statements, &ids)).await;
                assert_eq!(taken.expect("no wait"), 10, "{one}, {other}");
            }
            for tx in [&mut first, &mut second] {
                T::execute(tx, "ROLLBACK".to_owned()).await.unwrap();
            }
        }
    }
}

/// The second step checks again, although the first one has locked its rows.
pub(crate) async fn a_second_step_takes_nothing_that_is_claimed<T: Server>(outbox: &Outbox<T>) {
    let free = schedule(outbox, 3).await;
    let claimed = outbox.store.claim_records(of(InstanceId::generate(), pending(), LONG, 2)).await.unwrap();
    let mut tx = outbox.begin().await;
    let taken = T::execute(&mut tx, take(&outbox.store.statements(), &free)).await.unwrap();
    assert_eq!((claimed.selected, taken), (2, 1));
}

/// Sessions that run the three steps under other isolation levels than the workers do.
pub(crate) async fn sessions_of_any_isolation_level_never_hold_one_record<T: Server>(outbox: &Outbox<T>) {
    let scheduled = schedule(outbox, 300).await.len();
    let statements = outbox.store.statements();
    let sessions = LEVELS.map(|level| {
        let statements = &statements;
        async move {
            let mut taken = 0;
            loop {
                let mut tx = outbox.begin().await;
                T::execute(&mut tx, T::BEGIN_AGAIN.replace("READ COMMITTED", level)).await.unwrap();
                // PostgreSQL fails a step that meets a row which has changed since its snapshot.
                let step = step_one::<T>(&mut tx, statements, "claimed_find_pending", 7).await;
                let Ok(found) = step else { continue };
                if found.is_empty() {
                    outbox.commit(tx).await;
                    return taken;
                }
                let updated = T::execute(&mut tx, take(statements, &found)).await.unwrap();
                assert_eq!(updated, found.len() as u64, "{level}");
                outbox.commit(tx).await;
                taken += updated;
            }
        }
    });
    let library = async {
        let (me, mut taken) = (InstanceId::generate(), 0);
        loop {
            let claimed = outbox.store.claim_records(of(me, pending(), LONG, 7)).await.unwrap();
            assert_eq!(claimed.records.len(), claimed.selected);
            if claimed.selected == 0 {
                return taken;
            }
            taken += claimed.selected as u64;
        }
    };
    let [committed, repeatable] = sessions;
    let (one, two, three) = promptly(async { tokio::join!(committed, repeatable, library) }).await;
    assert_eq!(one + two + three, scheduled as u64, "each record has one owner");
    assert_eq!(outbox.number("SELECT count(*) FROM {outbox}record WHERE lock_token <> 1").await, 0);
}
