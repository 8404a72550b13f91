//! `bench goals`: the figures that the library is to reach, each as one line of JSON.
//!
//! A goal names its measurement as a user would call it, so that each figure can be measured again with all others of
//! its report. Goals with the same measurement share its runs.

mod table;

use std::num::NonZeroUsize;

use clap::{Args, Parser};
use serde::Serialize;

use self::table::{CHECK, GOALS, Goal, Measurement};
use super::{
    Result,
    engine::Engine,
    report::{Report, Sample},
    stage::Stage,
};

/// Options of `bench goals`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Only the goals of these names.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// The number of runs. Default: that of the measurement.
    #[arg(long)]
    runs: Option<NonZeroUsize>,
    /// Measures few records, which shows that the measurements run, but not what the library reaches.
    #[arg(long)]
    quick: bool,
    /// Further options of the measurements.
    #[arg(last = true)]
    further: Vec<String>,
}

/// Options of `bench check`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CheckOptions {
    /// The number of runs.
    #[arg(long, default_value = "3")]
    runs: NonZeroUsize,
}

/// The words after `keylane bench`. An option that is given again replaces the earlier one.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, args_override_self = true)]
struct CommandLine {
    #[command(subcommand)]
    measurement: super::Measurement,
}

/// A goal and what was measured.
#[derive(Serialize)]
struct Line<'a> {
    goal: &'a str,
    /// The median.
    value: Option<f64>,
    unit: Option<&'a str>,
    min: Option<f64>,
    max: Option<f64>,
    runs: usize,
    bound: String,
    holds: bool,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Measures all goals of this database, or those asked for.
///
/// # Errors
/// If there is no such goal. If a measurement fails, the lines of its goals say so.
pub(super) async fn run<E: Engine>(stage: Stage<E>, options: Options) -> Result<()> {
    let asked = |goal: &&Goal| options.only.is_empty() || options.only.iter().any(|name| name == goal.name);
    let goals: Vec<&Goal> = GOALS.iter().filter(|goal| goal.database == E::NAME).filter(asked).collect();
    let mut measurements: Vec<&Measurement> = Vec::new();
    for goal in &goals {
        if !measurements.contains(&goal.measurement) {
            measurements.push(goal.measurement);
        }
    }
    if measurements.is_empty() {
        let names: Vec<&str> =
            GOALS.iter().filter(|goal| goal.database == E::NAME).map(|goal| goal.name).collect();
        return Err(format!("no such goal on {}; there are {}", E::NAME, names.join(", ")).into());
    }
    for measurement in measurements {
        let words = if options.quick { measurement.quick } else { measurement.words };
        let measured = measure(&stage, words, options.runs, &options.further).await;
        for goal in goals.iter().filter(|goal| goal.measurement == measurement) {
            print(&stage, &goal.line(&measured))?;
        }
    }
    Ok(())
}

/// Drains a little, and fails only if the library is far from the loop written by hand.
///
/// # Errors
/// If it is.
pub(super) async fn check<E: Engine>(stage: Stage<E>, options: CheckOptions) -> Result<()> {
    let measured = measure(&stage, CHECK.measurement.quick, Some(options.runs), &[]).await;
    let line = CHECK.line(&measured);
    print(&stage, &line)?;
    match (line.holds, line.error) {
        (true, _) => Ok(()),
        (false, Some(error)) => Err(error.into()),
        (false, None) => Err(format!("{} is not {}", CHECK.name, CHECK.bound).into()),
    }
}

async fn measure<E: Engine>(
    stage: &Stage<E>,
    words: &str,
    runs: Option<NonZeroUsize>,
    further: &[String],
) -> Result<Report> {
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    words.extend(runs.into_iter().flat_map(|runs| ["--runs".to_owned(), runs.to_string()]));
    words.extend_from_slice(further);
    let CommandLine { measurement } = CommandLine::try_parse_from(words)?;
    let (report, _) = super::measure(stage.clone(), measurement).await?;
    Ok(report)
}

fn print<E: Engine>(stage: &Stage<E>, line: &Line<'_>) -> Result<()> {
    let line = serde_json::to_string(line)?;
    stage.bar.suspend(|| println!("{line}"));
    Ok(())
}

impl Goal {
    fn line<'a>(&'a self, measured: &'a Result<Report>) -> Line<'a> {
        let sample = measured.as_ref().map(|report| report.sample(self.subject, self.figure));
        let error = match &sample {
            Ok(Some(_)) => None,
            Ok(None) => Some("cannot be read here".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let sample = sample.ok().flatten();
        let value = sample.map(Sample::median);
        Line {
            goal: self.name,
            value,
            unit: sample.map(|sample| sample.unit),
            min: sample.map(Sample::min),
            max: sample.map(Sample::max),
            runs: sample.map_or(0, |sample| sample.values.len()),
            bound: self.bound.to_string(),
            holds: value.is_some_and(|value| self.bound.holds(value)),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_names_a_measurement_that_can_be_called() {
        for goal in GOALS {
            for words in [goal.measurement.words, goal.measurement.quick] {
                let words = format!("{words} --runs 1");
                let parsed = CommandLine::try_parse_from(words.split_whitespace());
                assert!(parsed.is_ok(), "{}: {words}", goal.name);
            }
        }
    }

    #[test]
    fn names_are_given_once() {
        let mut names: Vec<&str> = GOALS.iter().map(|goal| goal.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GOALS.len());
    }
}
