//! `keylane-checker [--expect FILE] FILES...`: judges a history.
//!
//! Prints how often each invariant was judged and what was reached, and exits with 1 if one does not hold, with the lines
//! that show it; with 2 if there is nothing to judge. The file of `--expect` has what to expect, in JSON.

#![allow(clippy::print_stdout, reason = "the answer")]

use std::{error::Error, fs, path::PathBuf, process::ExitCode};

use keylane_checker::{Expect, Invariant, Judge, Report, Violation, history};

const USAGE: &str = "usage: keylane-checker [--expect FILE] FILES...";

fn main() -> ExitCode {
    match start() {
        Ok(Ok(report)) => {
            print(&report);
            ExitCode::SUCCESS
        }
        Ok(Err(violation)) => {
            println!("{violation}");
            ExitCode::from(1)
        }
        Err(error) => {
            let causes = std::iter::successors(error.source(), |&cause| cause.source());
            let causes: String = causes.map(|cause| format!(": {cause}")).collect();
            eprintln!("keylane-checker: {error}{causes}");
            ExitCode::from(2)
        }
    }
}

fn start() -> Result<Result<Report, Violation>, Box<dyn Error>> {
    let (mut expect, mut files) = (Expect::default(), Vec::new());
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--expect" {
            let file = arguments.next().ok_or(USAGE)?;
            expect = serde_json::from_slice(&fs::read(file)?)?;
        } else {
            files.push(PathBuf::from(argument));
        }
    }
    if files.is_empty() {
        return Err(USAGE.into());
    }
    let mut judge = Judge::new(expect);
    for event in history::read(files)? {
        if let Err(violation) = judge.take(&event) {
            return Ok(Err(violation));
        }
    }
    Ok(judge.finish())
}

fn print(report: &Report) {
    println!("{} events, no violation", report.events);
    for invariant in Invariant::ALL {
        let count = report.judged.get(&invariant).copied().unwrap_or_default();
        println!("{:>4}  {:<28}{count:>10}", invariant.number(), invariant.name());
    }
    for (what, count) in &report.reached {
        println!("reached  {what:<29}{count:>10}");
    }
}
