//! `bench scale`: the assignment of partitions in a cluster too large to start, in memory alone.
//!
//! In each tick all instances read the view at the same moment, then act on it. First one instance owns everything
//! and all others join. Then half of them die. Then as many join again.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use clap::Args;
use keylane::{
    admin::{Generation, InstanceId},
    inner::Claim,
    partition::PARTITION_COUNT,
    rules::assignment::{Moves, assign, moves},
};
use tokio::time::Instant;

use super::{Result, meter::Figure, options::Show, report::Report};

/// The bench fails if a change takes more ticks, because the rules then do not come to an end.
const LIMIT: usize = 100;

/// Options of `bench scale`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Instances of the cluster.
    #[arg(long, default_value = "1000")]
    instances: NonZeroUsize,
    #[command(flatten)]
    pub(super) show: Show,
}

/// Lets the cluster settle, as many times as `--runs` says.
///
/// # Errors
/// If it never settles.
pub(super) fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("scale", "memory");
    let newcomers = |count| std::iter::repeat_with(InstanceId::generate).take(count);
    let instances = options.instances.get();
    for _ in 0..options.show.runs.get() {
        let mut cluster = Cluster::default();
        cluster.live.insert(InstanceId::generate());
        settle("one starts", &mut cluster, &mut report)?;
        cluster.live.extend(newcomers(instances - 1));
        settle("all others come", &mut cluster, &mut report)?;
        let mut survives = false;
        cluster.live.retain(|_| {
            survives = !survives;
            survives
        });
        settle("half die", &mut cluster, &mut report)?;
        cluster.live.extend(newcomers(instances / 2));
        settle("half come", &mut cluster, &mut report)?;
        let longest = cluster.ticks.iter().copied().max().unwrap_or(0);
        let assign = cluster.assigning.as_secs_f64() * 1e3 / cluster.assignments as f64;
        report.add_all("any change", &[ticks(longest)]);
        report.add_all("each instance", &[Figure { name: "assign", unit: "ms", value: Some(assign) }]);
    }
    report.note(format!("{instances} instances, {PARTITION_COUNT} partitions"));
    Ok(report)
}

fn settle(change: &str, cluster: &mut Cluster, report: &mut Report) -> Result<()> {
    let count = (1..LIMIT).find(|_| !cluster.tick()).ok_or_else(|| format!("{change}: not settled"))?;
    cluster.ticks.push(count);
    report.add_all(change, &[ticks(count)]);
    Ok(())
}

/// The last tick is the one that finds nothing to do.
fn ticks(count: usize) -> Figure {
    Figure { name: "until settled", unit: "ticks", value: Some(count as f64) }
}

/// The view of every instance, and the time of its decisions.
struct Cluster {
    live: BTreeSet<InstanceId>,
    claims: [Claim; PARTITION_COUNT],
    ticks: Vec<usize>,
    assigning: Duration,
    assignments: usize,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            live: BTreeSet::new(),
            claims: [Claim::default(); PARTITION_COUNT],
            ticks: Vec::new(),
            assigning: Duration::ZERO,
            assignments: 0,
        }
    }
}

impl Cluster {
    /// Every instance acts once. Returns whether there was anything to do.
    fn tick(&mut self) -> bool {
        let seen = self.claims;
        let mut busy = false;
        for me in &self.live {
            let started = Instant::now();
            let assignment = assign(&self.live, &seen);
            self.assigning += started.elapsed();
            self.assignments += 1;
            let mine = moves(*me, &assignment, &self.live, &seen);
            busy |= mine != Moves::default();
            for partition in mine.release.iter() {
                self.claims[partition.index()].owner = None;
            }
            for partition in mine.claim.iter() {
                let claim = &mut self.claims[partition.index()];
                *claim = Claim { owner: Some(*me), generation: Generation(claim.generation.0 + 1) };
            }
        }
        busy
    }
}
