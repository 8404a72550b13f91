//! `bench worker`: one more instance on the tables of a bench, in a process that can be killed.

use std::{
    io::{Read, stdin},
    process::{Child, Command, Stdio},
};

use clap::Args;
use keylane::{Config, Outbox, Registration};

use super::{Engine, Result, arrivals::Enter, handler::HANDLER, stage::Stage};

/// Options of `bench worker`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The settings, as JSON.
    #[arg(long, value_parser = |text: &str| serde_json::from_str::<Config>(text))]
    settings: Config,
}

/// Delivers until the other end of the standard input is closed.
pub(super) async fn run<E: Engine>(pool: E::Pool, options: Options) -> Result<()> {
    let handler = Registration::typed(HANDLER, Enter(None));
    let outbox: Outbox<E> = Outbox::builder(pool).config(options.settings).handler(handler).build().await?;
    let running = outbox.start().await?;
    tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await??;
    running.shutdown().await;
    Ok(())
}

/// Starts this program again as a worker. A drop kills that process. If this process ends, that process ends, too.
pub(super) struct Worker(Child);

impl Worker {
    pub(super) fn start<E: Engine>(stage: &Stage<E>, settings: &Config) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "worker", "--settings", &serde_json::to_string(settings)?]);
        // Not an argument: all users of the machine could read it there.
        command.env("DATABASE_URL", E::url(&stage.pool)).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    /// Whether the process has ended by itself.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // This is SIGKILL: the process can do nothing more.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
