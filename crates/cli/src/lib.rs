//! The `keylane` command: creates the schema, repairs failed records, relays records, and measures the library.
//!
//! It is a library beside its binary, so that the fuzzer reads files of settings as the command does.

#![allow(clippy::print_stdout, reason = "a command prints its answers")]

#[cfg(feature = "kafka")]
mod relay;
mod repair;
mod settings;

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use keylane::{
    Config, Outbox,
    admin::Rights,
    database::{Database, Pool},
    sqlx::{MySqlPool, PgPool, SqlitePool},
};

use crate::settings::Settings;

/// Runs the command with the arguments of the process.
#[tokio::main]
pub async fn main() -> ExitCode {
    match dispatch(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            eprintln!("keylane: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the text of a file of settings as every command does, and with a table `[relay]` as the relay does.
/// `variable` has the values of the environment.
///
/// # Errors
/// The sentence for the user.
pub fn check_settings(
    text: &str,
    file: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Config, String> {
    let settings = Settings::parse(text, file, variable).map_err(|error| error.to_string())?;
    let config = settings.config.clone();
    #[cfg(feature = "kafka")]
    if settings.relay.is_some() {
        relay::check_settings(settings, file)?;
    }
    Ok(config)
}

/// Manages the tables of an outbox.
#[derive(Debug, Parser)]
#[command(name = "keylane", version)]
struct Arguments {
    /// postgres://…, mysql://… or sqlite://…
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// A TOML file with the settings of the outbox and of the relay; the defaults if not given.
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates the tables or brings them up to this build's version.
    Migrate {
        /// Prints the statements for a DBA to run, and does not connect. Without an address, --database names the
        /// database.
        #[arg(long)]
        print: bool,
        /// The version of the existing tables, as in outbox_meta; without it the whole schema is printed.
        #[arg(long, default_value_t = 0, requires = "print")]
        from: i64,
        /// postgres, mysql (MariaDB too) or sqlite.
        #[arg(long, requires = "print", value_parser = ["postgres", "mysql", "sqlite"])]
        database: Option<String>,
    },
    /// Prints the statements that give a database user the rights of a role, for a DBA to run, and does not connect.
    /// Without an address, --database names the database.
    Grants {
        /// The role of the user.
        #[arg(value_parser = ["producer", "worker", "admin"])]
        role: String,
        /// The user, in the form of a GRANT: app, or 'app'@'10.0.%'.
        #[arg(long)]
        to: String,
        /// postgres or mysql (MariaDB too).
        #[arg(long, value_parser = ["postgres", "mysql"])]
        database: Option<String>,
    },
    /// Counts records by status and stopped lanes by reason.
    Status,
    /// Lists records that have failed for good, delivers them again, corrects and deletes them.
    #[command(subcommand)]
    Failed(repair::Failed),
    /// Lists dead letters of the table outbox_dead_letter, schedules them again and deletes them.
    #[command(subcommand)]
    DeadLetters(repair::DeadLetters),
    /// Joins the cluster and relays records to Kafka and to HTTP endpoints, by the routes of the file.
    #[cfg(feature = "kafka")]
    Relay(relay::Command),
    /// Measures the library on this database, beside references written by hand.
    #[cfg(feature = "bench")]
    Bench(keylane_bench::Command),
}

async fn run<P>(pool: P, config: Config, command: Command) -> Result<(), Box<dyn Error + Send + Sync>>
where
    P: Pool,
    P::Database: Database<Pool = P>,
{
    let outbox = Outbox::builder(pool).config(config).build().await?;
    match command {
        #[cfg(feature = "bench")]
        Command::Bench(_) => {}
        #[cfg(feature = "kafka")]
        Command::Relay(_) => {}
        Command::Grants { role, to, .. } => {
            let rights = match role.as_str() {
                "producer" => Rights::Producer,
                "worker" => Rights::Worker,
                _ => Rights::Admin,
            };
            print!("{}", outbox.grant_script(rights, &to));
        }
        Command::Migrate { print: true, from, .. } => print!("{}", outbox.migration_script(from)),
        Command::Migrate { print: false, .. } => {
            outbox.migrate().await?;
            println!("the outbox schema is up to date");
        }
        Command::Failed(command) => repair::failed(&outbox.admin(), command).await?,
        Command::DeadLetters(command) => repair::dead_letters(&outbox.admin(), command).await?,
        Command::Status => {
            let counts = outbox.admin().counts().await?;
            for (status, count) in &counts.records {
                println!("records {status}: {count}");
            }
            for (reason, count) in &counts.stopped_lanes {
                println!("lanes {reason}: {count}");
            }
        }
    }
    Ok(())
}

async fn dispatch(arguments: Arguments) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    #[cfg(feature = "kafka")]
    if let Command::Relay(command) = &arguments.command {
        return relay::run(command, arguments.database_url, arguments.config.as_deref()).await;
    }
    let settings = Settings::read(arguments.config.as_deref())?;
    // Printing needs no address, but a pool has one, even if it is never used.
    let nowhere = match &arguments.command {
        Command::Migrate { print: true, database: Some(database), .. }
        | Command::Grants { database: Some(database), .. } => Some(format!("{database}://localhost/x")),
        _ => None,
    };
    let url = nowhere.or_else(|| arguments.database_url.clone()).or_else(|| settings.database_url());
    let url = url.ok_or("give --database-url, or set DATABASE_URL")?;
    #[cfg(feature = "bench")]
    if let Command::Bench(bench) = arguments.command {
        keylane_bench::run(&url, settings.config, bench).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = settings.config.clone();
    #[cfg(feature = "kafka")]
    let lists_relay = matches!(arguments.command, Command::Migrate { print: false, .. });
    match url.split(':').next() {
        Some("postgres" | "postgresql") => {
            run(PgPool::connect_lazy(&url)?, config, arguments.command).await?
        }
        Some("mysql" | "mariadb") => run(MySqlPool::connect_lazy(&url)?, config, arguments.command).await?,
        Some("sqlite") => run(SqlitePool::connect_lazy(&url)?, config, arguments.command).await?,
        _ => return Err("the database url must begin with postgres://, mysql:// or sqlite://".into()),
    }
    #[cfg(feature = "kafka")]
    if lists_relay && settings.relay.is_some() {
        relay::publish(settings, &url).await?;
        println!("producers find the routes of the relay");
    }
    Ok(ExitCode::SUCCESS)
}
