//! Keys and answers in the service's own database.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use keylane_sql::{SqlDatabase, Tables};
use keylane_web::{
    Answer, Begun, BoxError, Claim, GuardBody, IdempotencyLayer, IdempotencyStore, ResultEnvelope, SqlStore,
    StoreError,
};
use tokio::{task::JoinSet, time::Instant};
use tower::{Layer, Service, service_fn};

use crate::{
    failures::{claim, late_owner},
    processes::Worker,
    stage::{Calls, PATIENCE, code, counting, header, post, send, until},
    target::{self, OnMariaDb, OnMySql, OnPostgres, OnSqlite, Target, on_each},
};

on_each!(
    repeats_at_once_have_their_effect_once,
    an_answer_commits_with_its_effect_whatever_is_killed,
    a_late_owner_commits_nothing,
    a_late_owner_changes_nothing_of_the_next_one,
    a_repeat_is_answered_and_a_failure_frees_the_key,
    a_purge_deletes_what_has_expired_and_nothing_else,
    tables_are_made_once_and_have_a_version,
);

const REPEATS: usize = 200;
const LEASE: Duration = Duration::from_secs(2);

/// A store with tables of its own, and a table of effects.
struct Stage<T: Target> {
    store: SqlStore<T::Db>,
    pool: sqlx::Pool<T::Db>,
    prefix: String,
}

impl<T: Target> Clone for Stage<T> {
    fn clone(&self) -> Self {
        let Self { store, pool, prefix } = self;
        Self { store: store.clone(), pool: pool.clone(), prefix: prefix.clone() }
    }
}

impl<T: Target> Stage<T> {
    async fn new() -> Option<Self> {
        let stage = Self::at(target::prefix("tw")).await?;
        stage.store.migrate().await.unwrap();
        let table = "CREATE TABLE {}effect (name VARCHAR(255) NOT NULL)";
        target::execute(&stage.pool, &stage.prefix, table).await.unwrap();
        Some(stage)
    }

    async fn at(prefix: String) -> Option<Self> {
        let pool = T::open(&prefix, "READ COMMITTED").await?;
        let builder = SqlStore::builder(pool.clone()).table_prefix(prefix.as_str()).timeout(PATIENCE);
        Some(Self { store: builder.build().unwrap(), pool, prefix })
    }

    fn layer(&self) -> IdempotencyLayer {
        self.layer_of(LEASE)
    }

    fn layer_of(&self, lease: Duration) -> IdempotencyLayer {
        IdempotencyLayer::builder(self.store.clone(), "orders").lease(lease).build().unwrap()
    }

    /// A handler that has an effect and stores its answer, in one transaction.
    fn handler(
        &self,
    ) -> impl Service<Request<GuardBody>, Response = Response<GuardBody>, Error = BoxError, Future: Send>
    + Clone
    + Send
    + use<T> {
        let stage = self.clone();
        service_fn(move |request: Request<GuardBody>| {
            let (stage, claim) = (stage.clone(), request.extensions().get::<Claim>().unwrap().clone());
            async move { stage.place(&claim, "commit").await }.boxed()
        })
    }

    async fn place(&self, claim: &Claim, until: &str) -> Result<Response<GuardBody>, BoxError> {
        let mut tx = self.pool.begin_with(T::Db::DIALECT.begin).await?;
        let effect = format!("INSERT INTO {}effect (name) VALUES ('{}')", self.prefix, claim.key);
        T::Db::script(&mut tx, &effect).await?;
        let answer = Answer::json(StatusCode::CREATED, &ResultEnvelope::ok(&*claim.token))?;
        self.store.finish_in(&mut tx, claim, &answer).await?;
        if until == "answer" {
            eprintln!("there");
            std::future::pending::<()>().await;
        }
        tx.commit().await?;
        if until == "committed" {
            eprintln!("there");
            std::future::pending::<()>().await;
        }
        Ok(answer.response())
    }

    async fn count(&self, from: &str) -> i64 {
        target::number(&self.pool, &self.prefix, &format!("SELECT count(*) FROM {from}")).await
    }

    async fn end(self) {
        target::end(&self.pool, &self.prefix, &["effect", "request", "meta"]).await;
    }
}

/// What a process does that is killed: a request whose handler hangs before its commit, or after.
pub(crate) async fn work(target: &str, what: &str) {
    let (prefix, until) = what.split_once(' ').unwrap();
    match target {
        name if name.ends_with("OnPostgres") => hang::<OnPostgres>(prefix, until).await,
        name if name.ends_with("OnMariaDb") => hang::<OnMariaDb>(prefix, until).await,
        name if name.ends_with("OnMySql") => hang::<OnMySql>(prefix, until).await,
        _ => hang::<OnSqlite>(prefix, until).await,
    }
}

async fn hang<T: Target>(prefix: &str, until: &str) {
    let stage = Stage::<T>::at(prefix.to_owned()).await.unwrap();
    let (handler, until) = (stage.clone(), until.to_owned());
    let handler = service_fn(move |request: Request<GuardBody>| {
        let (stage, until) = (handler.clone(), until.clone());
        let claim = request.extensions().get::<Claim>().unwrap().clone();
        async move { stage.place(&claim, &until).await }.boxed()
    });
    send(&stage.layer().layer(handler), post("key", "order")).await;
}

async fn repeats_at_once_have_their_effect_once<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    // On a busy machine the handler waits for a connection behind all repeats: no lease is to end meanwhile.
    let service = stage.layer_of(30 * LEASE).layer(stage.handler());
    let mut repeats = JoinSet::new();
    for _ in 0..REPEATS {
        let service = service.clone();
        repeats.spawn(async move { send(&service, post("key", "order")).await });
    }
    let answers = repeats.join_all().await;
    let (placed, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status() == StatusCode::CREATED);
    assert!(refused.iter().all(|answer| code(answer) == "A0401"), "{refused:?}");
    assert!(
        !placed.is_empty() && placed.iter().all(|answer| answer.body() == placed[0].body()),
        "{placed:?}"
    );
    let first = placed.iter().filter(|answer| header(answer, "idempotent-replayed").is_none());
    assert_eq!((first.count(), stage.count("{}effect").await), (1, 1));
    stage.end().await;
}

async fn an_answer_commits_with_its_effect_whatever_is_killed<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let name = std::any::type_name::<T>();
    // Killed before its commit: neither is there, and the key is free after the lease.
    let mut worker = Worker::start(name, &format!("{} answer", stage.prefix));
    worker.says("there").await;
    worker.child.kill().await.unwrap();
    let service = stage.layer().layer(counting(&Calls::default()));
    let begun = Instant::now();
    until(async || send(&service, post("key", "order")).await.status() == StatusCode::OK).await;
    assert!(begun.elapsed() < 10 * LEASE, "{:?}", begun.elapsed());
    assert_eq!(stage.count("{}effect").await, 0);
    // Killed after its commit, before its client had the answer: the repeat has it at once.
    target::execute(&stage.pool, &stage.prefix, "DELETE FROM {}request").await.unwrap();
    let mut worker = Worker::start(name, &format!("{} committed", stage.prefix));
    worker.says("there").await;
    worker.child.kill().await.unwrap();
    let calls = Calls::default();
    let repeat = send(&stage.layer().layer(counting(&calls)), post("key", "order")).await;
    assert_eq!(
        (repeat.status(), header(&repeat, "idempotent-replayed")),
        (StatusCode::CREATED, Some("true"))
    );
    assert_eq!((calls.count(), stage.count("{}effect").await), (0, 1));
    stage.end().await;
}

async fn a_late_owner_commits_nothing<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let late = claim(stage.store.clone(), "orders").await;
    let next = claim(stage.store.clone(), "orders").await;
    assert_eq!(stage.store.begin(&late).await.unwrap(), Begun::Execute);
    until(async || stage.store.begin(&next).await.unwrap() == Begun::Execute).await;
    let lost = stage.place(&late, "commit").await.unwrap_err();
    let lost = lost.downcast_ref::<StoreError>().unwrap();
    assert!(matches!(lost, StoreError::Lost { key } if key == "key"), "{lost}");
    assert_eq!(stage.count("{}effect").await, 0);
    assert_eq!(stage.place(&next, "commit").await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(stage.count("{}effect").await, 1);
    stage.end().await;
}

async fn a_late_owner_changes_nothing_of_the_next_one<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    late_owner(stage.store.clone(), "orders").await;
    stage.end().await;
}

async fn a_repeat_is_answered_and_a_failure_frees_the_key<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let calls = Calls::default();
    let handler = service_fn({
        let calls = calls.clone();
        move |_: Request<GuardBody>| {
            let call = calls.add();
            let mut response = Response::new(Full::new(Bytes::from(vec![0, 0xff, call as u8])));
            if call == 1 {
                *response.status_mut() = StatusCode::BAD_GATEWAY;
            }
            async move { Ok::<_, BoxError>(response) }
        }
    });
    let service = stage.layer().layer(handler);
    let body = async |key, order: &'static str| send(&service, post(key, order)).await.into_body().to_vec();
    assert_eq!(send(&service, post("key", "order")).await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!([body("key", "order").await, body("key", "order").await], [[0, 0xff, 2], [0, 0xff, 2]]);
    // It is kept for a day by default, however short the lease is.
    let in_23_hours = T::Db::DIALECT.render("{later:82800000}", &Tables::of("web"));
    assert_eq!(stage.count(&format!("{{}}request WHERE expires_at > {in_23_hours}")).await, 1);
    assert_eq!(code(&send(&service, post("key", "other")).await), "A0402");
    // Keys are compared byte by byte.
    assert_eq!([body("KEY", "order").await, body("key-", "order").await], [[0, 0xff, 3], [0, 0xff, 4]]);
    // A key whose time is over is new, and nothing of before is left.
    let over = format!("UPDATE {{}}request SET expires_at = {}", target::past::<T::Db>());
    target::execute(&stage.pool, &stage.prefix, &over).await.unwrap();
    assert_eq!([body("key", "other").await, body("key", "other").await], [[0, 0xff, 5], [0, 0xff, 5]]);
    assert_eq!((code(&send(&service, post("key", "order")).await).as_str(), calls.count()), ("A0402", 5));
    stage.end().await;
}

async fn a_purge_deletes_what_has_expired_and_nothing_else<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let service = stage.layer().layer(counting(&Calls::default()));
    for key in ["a", "b", "c"] {
        send(&service, post(key, "order")).await;
    }
    assert_eq!(stage.store.purge().await.unwrap(), 0);
    let over =
        format!("UPDATE {{}}request SET expires_at = {} WHERE status = 'SUCCESS'", target::past::<T::Db>());
    target::execute(&stage.pool, &stage.prefix, &over).await.unwrap();
    send(&service, post("d", "order")).await;
    assert_eq!(stage.store.purge().await.unwrap(), 3);
    assert_eq!(stage.count("{}request").await, 1);
    stage.end().await;
}

async fn tables_are_made_once_and_have_a_version<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    stage.store.migrate().await.unwrap();
    let claim = claim(stage.store.clone(), "orders").await;
    let mut conn = stage.pool.acquire().await.unwrap();
    let answer = Answer::json(StatusCode::OK, &1).unwrap();
    let outside = stage.store.finish_in(&mut conn, &claim, &answer).await;
    assert!(matches!(outside, Err(StoreError::NoTransaction)), "{outside:?}");
    drop(conn);
    target::execute(&stage.pool, &stage.prefix, "UPDATE {}meta SET schema_version = 2").await.unwrap();
    let newer = stage.store.migrate().await;
    assert!(matches!(newer, Err(StoreError::Schema { found: 2, needed: 1 })), "{newer:?}");
    let nowhere = SqlStore::builder(stage.pool.clone()).table_prefix("nowhere_").build().unwrap();
    let none = nowhere.check().await;
    assert!(matches!(none, Err(StoreError::Schema { found: 0, needed: 1 })), "{none:?}");
    let refused = SqlStore::builder(stage.pool.clone()).table_prefix("a;b").build();
    assert!(matches!(refused, Err(keylane_web::SettingError::Tables { .. })));
    stage.end().await;
}
