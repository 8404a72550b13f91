//! Watches a run while it goes on: progress, rate over time, and whether it goes on at all.

use std::{future::Future, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Result, tally::Tally};

/// Between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// A run fails if no record is handled for this time.
const STALL: Duration = Duration::from_secs(60);

/// The records handled so far, by the seconds since the start.
pub(super) type Course = Vec<(f64, usize)>;

/// A bar on stderr; nothing if that is no terminal.
pub(super) fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg:30} {bar:40} {human_pos}/{human_len}") {
        bar.set_style(style);
    }
    bar
}

/// Runs the work to its end.
///
/// # Errors
/// That of the work, or that it stands still.
pub(super) async fn watched<T>(
    work: impl Future<Output = Result<T>>,
    tally: &Tally,
    bar: &ProgressBar,
) -> Result<(T, Course)> {
    let started = Instant::now();
    let mut course = vec![(0.0, 0)];
    let samples = async {
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut moved = started;
        loop {
            ticks.tick().await;
            let handled = tally.handled();
            if course.last().is_some_and(|last| last.1 != handled) {
                moved = Instant::now();
            }
            course.push((started.elapsed().as_secs_f64(), handled));
            bar.set_position(handled as u64);
            if moved.elapsed() > STALL {
                return format!("nothing happens: {handled} of {} records are handled", tally.records());
            }
        }
    };
    let done = tokio::select! {
        done = work => done?,
        stall = samples => return Err(stall.into()),
    };
    course.push((started.elapsed().as_secs_f64(), tally.handled()));
    Ok((done, course))
}

/// The course as records per second, between samples that lie far enough apart.
pub(super) fn rates(course: &Course) -> Vec<(f64, f64)> {
    const STEPS: usize = 100;
    let every = course.len().div_ceil(STEPS).max(2);
    let samples: Vec<_> = course.iter().step_by(every).chain(course.last()).collect();
    let rate = |pair: &[&(f64, usize)]| {
        let (seconds, records) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        (seconds > 0.0).then(|| (pair[1].0, records as f64 / seconds))
    };
    samples.windows(2).filter_map(rate).collect()
}
