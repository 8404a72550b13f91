//! One instance of the library at work, measured.

use std::future::Future;

use keylane::Outbox;

use super::{
    Engine, Result,
    meter::{Cost, Meter},
    stage::Stage,
    tally::Tally,
    watch::{Course, watched},
};

/// Measures an instance from its start until it is `done`: its cost and its course. Then shuts it down.
///
/// # Errors
/// If the instance fails, or if the records of this tally are no longer handled.
pub(super) async fn measured<E: Engine>(
    stage: &Stage<E>,
    outbox: Outbox<E>,
    tally: &Tally,
    done: impl Future<Output = ()>,
) -> Result<(Cost, Course)> {
    let meter = Meter::<E>::open(&stage.pool).await?;
    let start = meter.start().await?;
    let work = async {
        let running = outbox.start().await?;
        done.await;
        Ok(running)
    };
    let (running, course) = watched(work, tally, &stage.bar).await?;
    let cost = meter.stop(start).await?;
    running.shutdown().await;
    Ok((cost, course))
}
