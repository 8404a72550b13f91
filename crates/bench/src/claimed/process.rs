//! `bench claimant`: one instance or one loop that drains the tables of `bench claimed`, in a process of its own.
//!
//! The process prints `ready`, and begins when it reads a line. Then it prints how many records it has settled, whenever
//! that changes. When its standard input is closed, it stops and prints its [`Share`] as JSON.

use std::{
    env,
    io::{BufRead, stdin},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use clap::Args;
use keylane::{Config, Mode, Registration};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::oneshot,
    time::interval,
};

use super::{
    super::{
        Result,
        engine::Engine,
        handler::{Count, HANDLER},
        processor,
        stage::Stage,
        tally::Tally,
    },
    by_hand::drain,
};

/// Between two looks at what was settled.
const TELL_INTERVAL: Duration = Duration::from_millis(5);
/// What a process prints when it can begin.
const READY: &str = "ready";

/// Options of `bench claimant`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The settings, as JSON.
    #[arg(long, value_parser = |text: &str| serde_json::from_str::<Config>(text))]
    settings: Config,
    /// Records of the backlog.
    #[arg(long)]
    records: usize,
    /// Drains with the loop that is written by hand.
    #[arg(long)]
    by_hand: bool,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// An instance of the library in this mode.
    Instance(Mode),
    Loop,
}

/// What a process has done.
#[derive(Serialize, Deserialize)]
pub(super) struct Share {
    /// From the beginning to the end of the work.
    pub(super) processor: Duration,
    /// One bit per id that was handled.
    pub(super) seen: Vec<u64>,
    /// Records that this process has handled twice, or that were never scheduled.
    pub(super) wrong: usize,
}

/// Drains as the standard input says, and tells of it.
///
/// # Errors
/// If a statement fails.
pub(crate) async fn run<E: Engine>(stage: &Stage<E>, options: Options) -> Result<()> {
    let Options { settings, records, by_hand } = options;
    let tally = stage.tally(records).await?;
    let batch = settings.delivery.batch_size;
    let handler = Registration::typed(HANDLER, Count(Arc::clone(&tally)));
    let outbox = stage.outbox(settings, [handler], &tally).await?;
    println!("{READY}");
    let (begin, end) = commands();
    begin.await?;
    let before = processor::own().ok_or("the processor time of a process cannot be read here")?;
    let stop = AtomicBool::new(false);
    let until_the_end = async {
        tokio::select! {
            end = end => end?,
            () = tell(&tally) => {}
        }
        stop.store(true, Relaxed);
        Result::Ok(processor::own().unwrap_or_default().saturating_sub(before))
    };
    let processor = if by_hand {
        tokio::try_join!(until_the_end, drain::<E>(&stage.pool, &tally, batch, &stop))?.0
    } else {
        let running = outbox.start().await?;
        let processor = until_the_end.await?;
        running.shutdown().await;
        processor
    };
    let (seen, wrong) = tally.seen();
    println!("{}", serde_json::to_string(&Share { processor, seen, wrong })?);
    Ok(())
}

/// Resolve at the first line of the standard input, and at its end.
fn commands() -> (oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let (begin, begun) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    // A thread of its own, because a read cannot be cancelled.
    std::thread::spawn(move || {
        let mut lines = stdin().lock().lines();
        // A parent that has died closes the input, too: then the work begins and ends.
        lines.next();
        // Nobody waits if the work has failed.
        let _ = begin.send(());
        lines.for_each(drop);
        let _ = end.send(());
    });
    (begun, ended)
}

/// Prints what was settled so far, whenever that changes, until it is dropped.
async fn tell(tally: &Tally) {
    let mut ticks = interval(TELL_INTERVAL);
    let mut told = 0;
    loop {
        ticks.tick().await;
        let settled = tally.settled();
        if settled != told {
            println!("{settled}");
            told = settled;
        }
    }
}

/// A process that drains. A drop kills it.
pub(super) struct Process {
    process: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it has told so far.
    settled: usize,
}

impl Process {
    /// Starts this program once more. Returns when the process can begin.
    pub(super) async fn start<E: Engine>(
        stage: &Stage<E>,
        config: &Config,
        work: Work,
        records: usize,
    ) -> Result<Self> {
        let mut settings = config.clone();
        let mut command = Command::new(env::current_exe()?);
        command.args(["bench", "claimant", "--records", &records.to_string()]);
        match work {
            Work::Instance(mode) => settings.mode = mode,
            Work::Loop => drop(command.arg("--by-hand")),
        }
        command.args(["--settings", &serde_json::to_string(&settings)?]);
        // Not an argument: all users of the machine could read it there.
        command.env("DATABASE_URL", E::url(&stage.pool));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let (Some(commands), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the process has no standard input or output".into());
        };
        let mut process = Self { process, commands, lines: BufReader::new(output).lines(), settled: 0 };
        match process.line().await? {
            line if line == READY => Ok(process),
            line => Err(format!("the process is not ready: {line}").into()),
        }
    }

    /// Lets the work begin.
    pub(super) async fn go(&mut self) -> Result<()> {
        self.commands.write_all(b"go\n").await?;
        Ok(self.commands.flush().await?)
    }

    /// Counts what the process settles. A drop loses nothing.
    ///
    /// # Errors
    /// When the process ends. Before that, this method does not return.
    pub(super) async fn follow(&mut self, tally: &Tally) -> Result<()> {
        loop {
            let settled: usize = self.line().await?.parse()?;
            tally.add(settled - self.settled);
            self.settled = settled;
        }
    }

    /// Ends the process. Returns what it has done.
    pub(super) async fn end(mut self) -> Result<Share> {
        drop(self.commands);
        let mut last = None;
        while let Some(line) = self.lines.next_line().await? {
            last = Some(line);
        }
        let status = self.process.wait().await?;
        match last {
            Some(line) if status.success() => Ok(serde_json::from_str(&line)?),
            _ => Err(format!("a process that drains has ended with {status}").into()),
        }
    }

    async fn line(&mut self) -> Result<String> {
        match self.lines.next_line().await? {
            Some(line) => Ok(line),
            None => {
                Err(format!("a process that drains has ended with {}", self.process.wait().await?).into())
            }
        }
    }
}
