//! A replica: one process that handles flights until it is told to stop, or killed.

use std::{error::Error, io::Read, path::Path, pin::pin};

use keylane::{
    Delivery, Failure, HandlerError, Outbox, State, handlers, outbox_fallback_handler, outbox_handler,
};

use keylane_checker::{CallKind, End};

use crate::{database::Place, flights::Flight, ledger::Ledger, settings};

/// Enters flights into the books. Cancelled ones it refuses; some it fails to enter at once.
#[outbox_handler(id = "bookkeeper", retry(exponential, initial = "1s", max_retries = 3), timeout = "3s")]
async fn keep_books(
    flight: Flight,
    delivery: &Delivery,
    State(ledger): State<Ledger>,
) -> Result<(), HandlerError> {
    let call = ledger.begin(CallKind::Single, delivery)?;
    tokio::time::sleep(flight.work()).await;
    if flight.departed.is_none() {
        call.end(&[End::Permanent])?;
        return Err(HandlerError::permanent("cancelled: this flight never departed"));
    }
    if flight.stumbles() && delivery.attempt == 1 {
        call.end(&[End::Failed])?;
        return Err(HandlerError::new("somebody else had the books"));
    }
    Ok(call.end(&[End::Ok])?)
}

/// Takes what the bookkeeper has refused.
#[outbox_fallback_handler(of = "bookkeeper")]
async fn note_cancelled(_: Flight, failure: &Failure, State(ledger): State<Ledger>) -> std::io::Result<()> {
    ledger.begin(CallKind::Fallback, &failure.delivery)?.end(&[End::Ok])
}

/// Delivers until standard input is closed, which the death of the parent does as well.
pub(crate) async fn run<DB: Place>(
    number: usize,
    url: &str,
    prefix: &str,
    dir: &Path,
) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let ledger = Ledger::open(dir, number)?;
    let outbox = Outbox::builder(DB::connect(url).await?)
        .config(settings::of(prefix, number))
        .observer(ledger.clone())
        .state(ledger)
        .handlers(handlers![keep_books, note_cancelled])
        .build()
        .await?;
    let mut told_to_stop = pin!(end_of_input());
    let running = tokio::select! {
        running = outbox.start() => running?,
        () = &mut told_to_stop => return Ok(()),
    };
    told_to_stop.await;
    let report = running.shutdown().await;
    match report.graceful {
        true => Ok(()),
        false => Err(format!("no graceful shutdown: {report:?}").into()),
    }
}

/// Returns when standard input ends. Read in a thread of its own, which holds nothing up at the end.
async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    let _ = end.await;
}
