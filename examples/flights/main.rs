//! A week of real departures through three replicas that share one database, and nothing else.
//!
//! ```text
//! cargo run --example quickstart
//! cargo run --example quickstart -- --database-url postgres://user:password@host/database
//! cargo run --example quickstart -- --database-url mysql://user:password@host/database
//! ```
//!
//! 6,099 flights are scheduled in the order in which they happened, each in a transaction with its
//! business row, keyed by aircraft. Three processes deliver them to a handler that keeps books. In the
//! middle of it one process is killed; the others take over, and a fourth joins. At the end the books
//! are compared with the week: is every flight there, and in order? The exit code says so too.
//!
//! `replica.rs` is what a service would write; `stage.rs` what its producer would. All the rest is the
//! show around it.
#![allow(clippy::print_stdout)]

mod database;
mod fleet;
mod flights;
mod ledger;
mod replica;
mod report;
mod settings;
mod show;
mod stage;
mod verdict;
mod view;
mod watch;

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use keylane::sqlx;

use crate::{database::Place, fleet::Fleet, show::Show, stage::Stage};

const USAGE: &str =
    "usage: quickstart [--database-url URL]    URL: postgres://… or mysql://…, else a SQLite file";

/// What the command line says.
#[derive(Default)]
struct Arguments {
    database_url: Option<String>,
    /// The rest is only given by this program to its children.
    replica: Option<usize>,
    prefix: String,
    dir: PathBuf,
}

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut arguments = Self::default();
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let value = given.next().ok_or(USAGE)?;
            match name.as_str() {
                "--database-url" => arguments.database_url = Some(value),
                "--replica" => arguments.replica = Some(value.parse()?),
                "--prefix" => arguments.prefix = value,
                "--dir" => arguments.dir = value.into(),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(arguments)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match start().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let causes = std::iter::successors(error.source(), |&cause| cause.source());
            let causes: String = causes.map(|cause| format!(": {cause}")).collect();
            eprintln!("quickstart: {error}{causes}");
            ExitCode::FAILURE
        }
    }
}

/// False: the verdict was bad.
async fn start() -> Result<bool, Box<dyn Error>> {
    let mut arguments = Arguments::read()?;
    if arguments.replica.is_none() {
        // Names of its own, so that runs do not meet in one database, even if they begin in the same millisecond.
        let (time, process) = (SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis(), std::process::id());
        arguments.prefix = format!("quickstart_{time:x}_{process:x}_");
        arguments.dir = std::env::temp_dir().join(format!("keylane-quickstart-{time:x}-{process:x}"));
        std::fs::create_dir(&arguments.dir)?;
    }
    let file = format!("sqlite://{}", arguments.dir.join("outbox.db").display());
    let url = arguments.database_url.clone().unwrap_or(file);
    match url.split(':').next() {
        Some("sqlite") => run::<sqlx::Sqlite>(arguments, url).await,
        Some("postgres" | "postgresql") => run::<sqlx::Postgres>(arguments, url).await,
        Some("mysql" | "mariadb") => run::<sqlx::MySql>(arguments, url).await,
        _ => Err(USAGE.into()),
    }
}

async fn run<DB: Place>(arguments: Arguments, url: String) -> Result<bool, Box<dyn Error>> {
    let Arguments { replica, prefix, dir, .. } = arguments;
    if let Some(number) = replica {
        return replica::run::<DB>(number, &url, &prefix, &dir).await.map(|()| true);
    }
    let good = play::<DB>(url, prefix, &dir).await;
    if matches!(good, Ok(true)) {
        std::fs::remove_dir_all(&dir)?;
    } else if std::fs::remove_dir(&dir).is_err() {
        // It is not empty.
        println!("\nThe logs of the replicas and their ledgers are in {}", dir.display());
    }
    good
}

/// The show, from the tables to the verdict. False: it was bad.
async fn play<DB: Place>(url: String, prefix: String, dir: &Path) -> Result<bool, Box<dyn Error>> {
    let flights = flights::week()?;
    let stage = Stage::<DB>::set_up(&url, &prefix, dir).await?;
    let show = Show::new(&stage, &flights, Fleet::new(url, prefix, dir.to_owned())).run();
    let course = tokio::select! {
        course = show => course,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    stage.tear_down().await?;
    let course = course?;
    let verdict = verdict::weigh(&flights, &course);
    Ok(report::print(&verdict, &course))
}
