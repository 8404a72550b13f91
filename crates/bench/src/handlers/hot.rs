//! A hot key: more records of one key than of all others, and all before them.
//!
//! That order is the hard one: a consumer that takes records in their order has only the hot key in memory. The bench
//! does not wait for the last hundredth of the other records: a 256th of them share the partition of the hot key and
//! lie behind it.

use std::{sync::Arc, time::Duration};

use keylane::Registration;

use super::{
    super::{
        engine::Engine,
        handler::{Apart, HANDLER, Slow},
        meter::Figure,
        stage::Stage,
        tally::Event,
        trial,
    },
    Options, Report, Result,
};

/// The longest wait for handlers of the hot key that still run in the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns at the end of the measured time.
enum Until {
    Others,
    Hot,
}

/// The others without and with the hot key beside them, with handlers that wait; the hot key with
/// handlers that do nothing.
pub(super) async fn measure<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    hot: usize,
    report: &mut Report,
) -> Result<()> {
    let delay = options.delay();
    let alone = rate(stage, options, 0, delay, Until::Others).await?;
    let beside = rate(stage, options, hot, delay, Until::Others).await?;
    let hot_key = rate(stage, options, hot, Duration::ZERO, Until::Hot).await?;
    report.add_all("others alone", &[alone]);
    report.add_all("others beside", &[beside]);
    report.add_all("beside / alone", &[beside.over(&alone)]);
    report.add_all("hot key", &[hot_key]);
    Ok(())
}

async fn rate<E: Engine>(
    stage: &Stage<E>,
    options: &Options,
    hot: usize,
    delay: Duration,
    until: Until,
) -> Result<Figure> {
    let keys = options.load.keys;
    let others = options.records.get();
    let all = stage
        .fill_with(hot + others, |number| match number.checked_sub(hot) {
            Some(number) => Event::numbered(number, options.load),
            None => Event::of_key(keys.get(), options.load),
        })
        .await?;
    let handler = Apart {
        hot_key: Event::key_of(keys.get()),
        hot: Arc::new(all.part(hot)),
        others: Arc::new(all.part(others - others / 100)),
    };
    let tally = Arc::clone(match until {
        Until::Others => &handler.others,
        Until::Hot => &handler.hot,
    });
    let registration = match delay {
        Duration::ZERO => Registration::typed(HANDLER, handler),
        delay => Registration::typed(HANDLER, Slow { delay, handler }),
    };
    let mut config = options.tuning.applied_to(stage.config.clone());
    config.cluster.graceful_shutdown_timeout = PATIENCE;
    let outbox = stage.outbox(config, [registration], &all).await?;
    let (cost, _) = trial::measured(stage, outbox, &tally, tally.all_handled()).await?;
    tally.check_part()?;
    let [rate, ..] = cost.per_record(tally.records());
    Ok(rate)
}
