//! Bodies: the type that all guards answer with, and the reading of a body up to a limit.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};

/// An error of any body or service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body that a guard returns: of the service behind it, of a stored answer, or of a refusal.
#[derive(Debug)]
pub struct GuardBody(UnsyncBoxBody<Bytes, BoxError>);

impl Body for GuardBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A body of these bytes.
pub(crate) fn full(bytes: impl Into<Bytes>) -> GuardBody {
    GuardBody(Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync())
}

/// Any body as one of a guard.
pub(crate) fn boxed<B>(body: B) -> GuardBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    GuardBody(body.map_err(Into::into).boxed_unsync())
}

/// The result of reading a body.
pub(crate) enum Read {
    /// All of it, without its trailers.
    Whole(Bytes),
    /// It is longer than the limit. The body is as it was.
    TooLong(GuardBody),
}

/// Reads a body up to a limit of bytes.
///
/// # Errors
/// The body's own.
pub(crate) async fn read(mut body: GuardBody, limit: usize) -> Result<Read, BoxError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        bytes.extend_from_slice(&data);
        if bytes.len() > limit {
            let begun = futures::stream::iter([Ok(Frame::data(bytes.freeze()))]);
            let whole = futures::StreamExt::chain(begun, BodyStream::new(body));
            return Ok(Read::TooLong(GuardBody(StreamBody::new(whole).boxed_unsync())));
        }
    }
    Ok(Read::Whole(bytes.freeze()))
}
