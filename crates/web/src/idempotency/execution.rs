//! One request under its key, in a task of its own. If the client goes away, the handler goes on, and the
//! store still gets its end.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, StatusCode, header};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tower_service::Service;

use super::{Answer, Begun, Claim, IdempotencyStore, rules};
use crate::{
    StoreError,
    body::{BoxError, GuardBody, Read, boxed, read},
    refusal::{Refusal, code},
    service::caught,
};

/// Pauses between the attempts to write the end of an execution to the store.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A request with a key, and all that its execution needs.
pub(super) struct Execution {
    pub(super) store: Arc<dyn IdempotencyStore>,
    pub(super) claim: Claim,
    /// The most bytes of an answer that is kept.
    pub(super) answer_limit: usize,
}

/// The end of an execution, as it is given to the store.
enum End {
    Kept(Answer),
    Freed,
}

impl Execution {
    /// Claims the key, and executes the request unless it was executed or is under way.
    ///
    /// # Errors
    /// Those of the service.
    pub(super) async fn run<S, B>(
        self,
        mut inner: S,
        request: Request<GuardBody>,
    ) -> Result<Response<GuardBody>, S::Error>
    where
        S: Service<Request<GuardBody>, Response = Response<B>>,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // The lease counts from before the store was called.
        let begun_at = Instant::now();
        match self.store.begin(&self.claim).await {
            Ok(Begun::Execute) => {}
            Ok(Begun::InProgress) => return Ok(in_progress().response()),
            Ok(Begun::OtherRequest) => return Ok(other_request().response()),
            Ok(Begun::Done(answer)) => return Ok(answer.replay()),
            Err(error) => {
                away(&error);
                // The key may be claimed nevertheless.
                tokio::spawn(self.settled_until(End::Freed, begun_at));
                return Ok(unavailable().response());
            }
        }
        let end = begun_at + rules::time_of_handler(self.claim.lease);
        let limit = self.answer_limit;
        // The call is made inside, because it may panic before it returns a future.
        let work = caught(async move {
            match inner.call(request).await {
                Ok(response) => Ok(taken(response.map(boxed), limit).await),
                Err(error) => Err(error),
            }
        });
        let (response, end) = match timeout_at(end, work).await {
            Ok(Ok(Ok((response, end)))) => (Ok(response), end),
            Ok(Ok(Err(error))) => (Err(error), End::Freed),
            Ok(Err(_)) => {
                tracing::error!(target: "keylane_web", "a handler has panicked");
                (Ok(failed().response()), End::Freed)
            }
            Err(_) => {
                tracing::error!(target: "keylane_web", lease = ?self.claim.lease, "a handler was stopped: too slow");
                (Ok(too_slow().response()), End::Freed)
            }
        };
        // Before the client gets the answer, because it may repeat the request at once.
        if let Err(error) = self.settle(&end).await {
            away(&error);
            tokio::spawn(self.settled_until(end, begun_at));
        }
        response
    }

    /// Writes the end to the store once.
    async fn settle(&self, end: &End) -> Result<(), StoreError> {
        let is_ours = match end {
            End::Kept(answer) => self.store.finish(&self.claim, answer).await?,
            End::Freed => self.store.free(&self.claim).await?,
        };
        if !is_ours {
            tracing::warn!(target: "keylane_web", "an execution has ended after its lease: its key is another's");
        }
        Ok(())
    }

    /// Writes the end to the store, until it answers or the lease is over.
    async fn settled_until(self, end: End, begun_at: Instant) {
        let lease = self.claim.lease.saturating_sub(begun_at.elapsed());
        let work = async {
            let mut pause = SHORTEST_PAUSE;
            loop {
                sleep(pause).await;
                match self.settle(&end).await {
                    Ok(()) => return,
                    Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
                }
            }
        };
        if timeout(lease, work).await.is_err() {
            tracing::error!(target: "keylane_web", "the store was not told how an execution has ended");
        }
    }
}

/// Reads the answer of the service, and decides whether it is kept.
async fn taken(response: Response<GuardBody>, limit: usize) -> (Response<GuardBody>, End) {
    if !rules::is_kept(response.status()) {
        return (response, End::Freed);
    }
    let (head, body) = response.into_parts();
    match read(body, limit).await {
        Ok(Read::Whole(bytes)) => {
            let answer = Answer::new(head.status, head.headers.clone(), bytes.clone());
            let response = Response::from_parts(head, crate::body::full(bytes));
            match answer.length() <= limit {
                true => (response, End::Kept(answer)),
                false => too_large(response, limit),
            }
        }
        Ok(Read::TooLong(body)) => too_large(Response::from_parts(head, body), limit),
        Err(error) => {
            let error = &*error as &dyn std::error::Error;
            tracing::error!(target: "keylane_web", error, "the body of an answer has failed");
            (failed().response(), End::Freed)
        }
    }
}

fn too_large(response: Response<GuardBody>, limit: usize) -> (Response<GuardBody>, End) {
    tracing::warn!(target: "keylane_web", limit, "an answer is too large to be kept: a repeat will be told so");
    let status = response.status();
    (response, End::Kept(Answer::not_kept(status)))
}

fn away(error: &StoreError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(target: "keylane_web", error, "the store of idempotency keys has not done it");
}

fn in_progress() -> Refusal {
    let message = "a request with this idempotency key is in progress: do not resubmit";
    Refusal::new(StatusCode::CONFLICT, code::IN_PROGRESS, message)
        .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

fn other_request() -> Refusal {
    let message = "another request had this idempotency key: take a new key";
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, code::OTHER_REQUEST, message)
}

fn unavailable() -> Refusal {
    let message = "the idempotency key cannot be checked at the moment: try again with the same key";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code::DEPENDENCY, message)
        .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

pub(super) fn failed() -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, code::SERVICE, "Internal Server Error")
}

fn too_slow() -> Refusal {
    Refusal::new(StatusCode::GATEWAY_TIMEOUT, code::TIMED_OUT, "the request took too long and was stopped")
}
