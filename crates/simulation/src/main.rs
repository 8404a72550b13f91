//! `simulate`: plays seeds, reports the failing ones, and plays one again. See `dev/simulate`.

use std::{
    fs, io,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use keylane_simulation::{Campaign, Failure, Plan, REPLAYS, play, shrink};

/// Plays seeds of the simulation.
#[derive(Debug, Parser)]
#[command(name = "dev/simulate")]
struct Options {
    /// How many seeds to play.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Goes on for so long instead, from the seed where the last such campaign has ended (see --counted-in).
    #[arg(long)]
    minutes: Option<u64>,
    /// The file that counts the seeds of campaigns.
    #[arg(long, default_value = "target/simulation/campaign")]
    counted_in: PathBuf,
    /// Plays one seed and says what is wrong with it.
    #[arg(long)]
    replay: Option<u64>,
    /// With --replay: only these faults of the plan, by their numbers (such as 0,3); nothing after it: none.
    #[arg(long, value_delimiter = ',', num_args = 0..)]
    only: Option<Vec<usize>>,
    /// With --replay: writes the history to this file, as lines for keylane-checker.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Stops after so many failures.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// One of so many seeds is played twice, to see that both runs are the same.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    twice: u64,
    /// Threads; default: one per processor.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if !REPLAYS {
        println!("note: built without --cfg tokio_unstable, so a seed is not played the same way twice");
    }
    match options.replay {
        Some(seed) => replay(seed, &options),
        None => campaign(&options),
    }
}

fn replay(seed: u64, options: &Options) -> ExitCode {
    let all = Plan::draw(seed);
    let plan = options.only.as_ref().map_or_else(|| all.clone(), |places| all.only(places));
    println!("{plan:#?}");
    let outcome = play(&plan, options.history.is_some(), true);
    if let Some(path) = &options.history {
        let mut lines = Vec::new();
        for event in &outcome.history {
            if serde_json::to_writer(&mut lines, event).is_ok() {
                lines.push(b'\n');
            }
        }
        if let Err(error) = fs::write(path, lines) {
            eprintln!("{}: {error}", path.display());
        }
    }
    println!("{} events, hash {:016x}", outcome.events, outcome.hash.unwrap_or_default());
    match outcome.verdict {
        Ok(_) => {
            println!("seed {seed}: nothing wrong");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn campaign(options: &Options) -> ExitCode {
    let counted = || fs::read_to_string(&options.counted_in).ok()?.trim().parse().ok();
    let limit = options.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let first = limit.and_then(|_| counted()).unwrap_or(options.first_seed);
    let processors = || thread::available_parallelism().map_or(1, Into::into);
    let threads = options.threads.unwrap_or_else(processors);
    let began = now();
    let go_on = |begun| match limit {
        Some(limit) => began.elapsed() < limit,
        None => begun < options.seeds,
    };
    let progress = |seeds, failures| eprintln!("{seeds} seeds, {failures} failures");
    let campaign = Campaign::run(first, threads, options.failures, options.twice, go_on, progress);
    let vacuous = campaign.vacuous();
    let (seeds, report, failures) = campaign.into_parts();
    let (took, events) = (began.elapsed().as_secs_f64(), report.events);
    println!("{seeds} seeds from {first} on in {took:.1} s on {threads} threads, {events} events; judged:");
    report.judged.iter().for_each(|(invariant, count)| println!("  {invariant}: {count}"));
    println!("reached:");
    report.reached.iter().for_each(|(what, count)| println!("  {what}: {count}"));
    failures.iter().for_each(tell);
    if let Some(vacuous) = &vacuous {
        println!("{vacuous}");
    }
    if !failures.is_empty() || vacuous.is_some() {
        return ExitCode::FAILURE;
    }
    if limit.is_some()
        && let Err(error) = count(options, first + seeds)
    {
        eprintln!("{}: {error}", options.counted_in.display());
        return ExitCode::FAILURE;
    }
    println!("nothing wrong");
    ExitCode::SUCCESS
}

/// Prints the problem, the faults it needs, and the command that plays the seed again.
fn tell(failure: &Failure) {
    println!("\nseed {}: {}", failure.seed, failure.what);
    let plan = Plan::draw(failure.seed);
    let needed = shrink(&plan);
    for place in &needed {
        println!("  needs fault {place}: {}", plan.faults[*place]);
    }
    let only: Vec<String> = needed.iter().map(ToString::to_string).collect();
    println!("again: dev/simulate --replay {} --only {}", failure.seed, only.join(","));
}

/// Writes the seed with which the next campaign begins.
fn count(options: &Options, next: u64) -> io::Result<()> {
    options.counted_in.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(&options.counted_in, format!("{next}\n"))
}

#[expect(clippy::disallowed_methods, reason = "a campaign takes real time")]
fn now() -> Instant {
    Instant::now()
}
