//! The trace of a request: taken from its headers or made, and known to all code that runs in its task.

mod layer;
mod parent;

use std::{collections::BTreeMap, fmt, sync::Arc};

use http::{HeaderMap, HeaderName};

pub use layer::{TraceIdLayer, TraceIdService};
use parent::Parent;

/// The header of a trace id, in requests and in responses.
pub const TRACE_ID_HEADER: HeaderName = HeaderName::from_static("x-trace-id");
/// The longest trace id, in bytes.
pub(crate) const LONGEST_TRACE_ID: usize = 64;

tokio::task_local! {
    static CURRENT: Trace;
}

/// The trace that a request belongs to. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    id: Arc<str>,
    parent: Option<Arc<Parent>>,
}

impl Trace {
    /// The trace of a request: the id of `X-Trace-Id`, else that of a W3C `traceparent`, else a new one. A value that
    /// is not valid counts as absent.
    pub fn of(headers: &HeaderMap) -> Self {
        let parent = Parent::of(headers);
        let given = single(headers, "x-trace-id").filter(|id| is_valid(id));
        let id = match (given, &parent) {
            (Some(given), _) => Arc::from(given),
            (None, Some(parent)) => Arc::from(parent.trace_id()),
            (None, None) => return Self::new(),
        };
        Self { id, parent: parent.map(Arc::new) }
    }

    /// A trace with a new id of 32 hexadecimal digits.
    pub fn new() -> Self {
        Self { id: uuid::Uuid::now_v7().simple().to_string().into(), parent: None }
    }

    /// The trace of the task that calls, if a [`TraceIdLayer`] or [`scope`](Self::scope) has set one. A task that is
    /// spawned has none of its own: run it in the scope of this one.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The trace id: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs a future with this as the current trace.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The headers of the trace for an event or a call: `trace_id`, and `traceparent` and `tracestate` as they came.
    pub fn headers(&self) -> BTreeMap<String, String> {
        let mut headers = BTreeMap::from([("trace_id".to_owned(), self.id.to_string())]);
        if let Some(parent) = &self.parent {
            headers.insert("traceparent".to_owned(), parent.text().to_owned());
            headers.extend(parent.state().map(|state| ("tracestate".to_owned(), state.to_owned())));
        }
        headers
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.id)
    }
}

/// The headers of the current trace, or none: for `default_headers` of an outbox, which then schedules each event
/// with the trace of the request.
pub fn event_headers() -> BTreeMap<String, String> {
    Trace::current().map(|trace| trace.headers()).unwrap_or_default()
}

/// Whether a text may be a trace id. It stands in log lines and headers, so it has no other characters.
fn is_valid(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_TRACE_ID).contains(&id.len()) && id.bytes().all(plain)
}

/// The text of a header that comes once.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(pairs: &[(&'static str, &str)]) -> Trace {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        Trace::of(&headers)
    }

    #[test]
    fn an_id_is_taken_as_given() {
        assert_eq!(of(&[("x-trace-id", "4bf92f35")]).id(), "4bf92f35");
        let longest = "a".repeat(64);
        assert_eq!(of(&[("x-trace-id", &longest)]).id(), longest);
    }

    #[test]
    fn what_is_no_id_gives_way_to_a_new_one() {
        for bad in ["", "a b", "a\"b", "{}", &"a".repeat(65), "a%0ab", "a:b"] {
            let trace = of(&[("x-trace-id", bad)]);
            assert!(trace.id() != bad && trace.id().len() == 32 && is_valid(trace.id()), "{bad:?}");
        }
        let twice = of(&[("x-trace-id", "one"), ("x-trace-id", "two")]);
        assert_eq!(twice.id().len(), 32);
        assert_ne!(of(&[]).id(), of(&[]).id());
    }

    #[test]
    fn a_parent_gives_its_id_and_goes_on() {
        let trace = of(&[("traceparent", PARENT), ("tracestate", "vendor=1")]);
        assert_eq!(trace.id(), "0af7651916cd43dd8448eb211c80319c");
        let headers = trace.headers();
        assert_eq!(headers["trace_id"], trace.id());
        assert_eq!((headers["traceparent"].as_str(), headers["tracestate"].as_str()), (PARENT, "vendor=1"));
        let both = of(&[("traceparent", PARENT), ("x-trace-id", "mine")]);
        assert_eq!((both.id(), both.headers()["traceparent"].as_str()), ("mine", PARENT));
    }

    #[test]
    fn there_is_no_current_trace_outside_of_a_scope() {
        assert_eq!((Trace::current(), event_headers().len()), (None, 0));
    }
}
