//! The error of a handler, and the failure that a fallback handler receives.

use std::{borrow::Cow, error::Error, fmt, time::Duration};

use crate::{record::Delivery, rules::retry::Fault, unwind::caught};

/// An error that declares how it is retried.
///
/// The macros find an implementation of this trait. Plain handlers call [`HandlerError::classified`].
///
/// ```
/// # use std::time::Duration;
/// use keylane::{ClassifiedError, HandlerError};
///
/// #[derive(Debug, thiserror::Error)]
/// enum MailError {
///     #[error("no such address")]
///     NoSuchAddress,
///     #[error("the server is busy")]
///     Busy,
/// }
///
/// impl ClassifiedError for MailError {
///     fn is_permanent(&self) -> bool {
///         matches!(self, Self::NoSuchAddress)
///     }
///
///     fn retry_after(&self) -> Option<Duration> {
///         matches!(self, Self::Busy).then_some(Duration::from_secs(30))
///     }
/// }
///
/// assert!(HandlerError::classified(MailError::NoSuchAddress).fault().permanent);
/// ```
pub trait ClassifiedError: Error + Send + Sync + 'static {
    /// The class that `retry_on` and `never_on` lists name, such as `"timeout"`.
    fn class(&self) -> Option<&'static str> {
        None
    }

    /// Whether no retry can succeed. If so, the policy is not asked.
    fn is_permanent(&self) -> bool {
        false
    }

    /// The delay until the next attempt, such as the `Retry-After` of a server.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Whether the handler's target is unreachable, so that no attempt counts; see
    /// [`HandlerError::unavailable`].
    fn is_unavailable(&self) -> bool {
        false
    }
}

/// A failed attempt. `?` turns any error into one. The handler's policy then decides about retries.
///
/// ```
/// # use std::time::Duration;
/// use keylane::HandlerError;
///
/// fn send(address: &str) -> Result<(), HandlerError> {
///     let port = address.parse::<u16>()?; // any error: the policy decides
///     match port {
///         0 => Err(HandlerError::permanent("port 0 cannot be reached")),
///         25 => Err(HandlerError::new("busy").class("busy").retry_after(Duration::from_secs(30))),
///         _ => Err(HandlerError::new("connection refused").uncounted(Duration::from_secs(5))),
///     }
/// }
/// # assert!(send("0").is_err() && send("x").is_err());
/// ```
pub struct HandlerError(Box<Facts>);

/// What is known of a failed attempt. Boxed, so that the result of a call that succeeds is one word: it is
/// moved several times.
struct Facts {
    source: Source,
    class: Option<Cow<'static, str>>,
    permanent: bool,
    unavailable: bool,
    retry_after: Option<Duration>,
    kind: FailureKind,
}

/// What ended an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The handler returned an error.
    Error,
    /// The handler took longer than its timeout.
    Timeout,
    /// The handler panicked.
    Panic,
    /// The payload could not be decoded into the handler's event.
    Decode,
    /// The deadline of the record had passed, and the handler was not called.
    Expired,
}

impl FailureKind {
    /// The word used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Decode => "decode",
            Self::Expired => "expired",
        }
    }
}

impl HandlerError {
    /// An error that the retry policy decides about.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Facts::of(error).into_error()
    }

    /// An error that no retry can fix: the fallback handler is called, or the record is FAILED.
    pub fn permanent(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Facts { permanent: true, ..Facts::of(error) }.into_error()
    }

    /// An error that declares how it is retried.
    pub fn classified<E: ClassifiedError>(error: E) -> Self {
        let facts = Facts {
            class: error.class().map(Cow::Borrowed),
            permanent: error.is_permanent(),
            unavailable: error.is_unavailable(),
            retry_after: error.retry_after(),
            ..Facts::of(error)
        };
        facts.into_error()
    }

    /// The handler's target is unreachable (a broker, a mail server). No attempt counts, the lane waits, and
    /// the record is tried again `after` this time, at least 100 ms and at most the policy's `max_delay`.
    /// Once the record has waited for the policy's `max_unavailable`, the failure counts like any other. After
    /// the policy's `unavailable_alarm` an alarm is raised.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use keylane::HandlerError;
    ///
    /// fn publish(connected: bool) -> Result<(), HandlerError> {
    ///     if !connected {
    ///         return Err(HandlerError::unavailable(Duration::from_secs(5)));
    ///     }
    ///     Ok(())
    /// }
    /// # assert!(publish(false).is_err());
    /// ```
    pub fn unavailable(after: Duration) -> Self {
        Self::new("the target is unavailable").uncounted(after)
    }

    /// Makes this error uncounted as [`HandlerError::unavailable`] is, with this error's text.
    #[must_use]
    pub fn uncounted(mut self, after: Duration) -> Self {
        (self.0.unavailable, self.0.retry_after) = (true, Some(after));
        self
    }

    /// Sets the class that `retry_on` and `never_on` lists name.
    #[must_use]
    pub fn class(mut self, class: impl Into<Cow<'static, str>>) -> Self {
        self.0.class = Some(class.into());
        self
    }

    /// Sets the delay before the next attempt. The policy's `max_delay` is the upper limit.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.0.retry_after = Some(delay);
        self
    }

    pub(crate) fn of_kind(kind: FailureKind, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let permanent = matches!(kind, FailureKind::Decode | FailureKind::Expired);
        Facts { kind, permanent, ..Facts::of(error) }.into_error()
    }

    pub(crate) fn timed_out(limit: Duration) -> Self {
        Self::of_kind(FailureKind::Timeout, format!("no result within {} ms", limit.as_millis()))
    }

    /// The failure of a record that has expired, in place of a call.
    pub(crate) fn expired() -> Self {
        let text = "expired: the deadline of the record passed before this call";
        Self::of_kind(FailureKind::Expired, text).class("expired")
    }

    /// The failure of a call that panicked.
    pub(crate) fn panicked(text: String) -> Self {
        Self::of_kind(FailureKind::Panic, text)
    }

    /// What ended the attempt.
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// The facts of the failure for the retry rule.
    pub fn fault(&self) -> Fault<'_> {
        let Facts { class, permanent, unavailable, retry_after, kind, .. } = &*self.0;
        Fault {
            permanent: *permanent,
            class: class.as_deref(),
            retry_after: *retry_after,
            unavailable: *unavailable,
            undecodable: *kind == FailureKind::Decode,
            expired: *kind == FailureKind::Expired,
        }
    }

    /// The texts of the error's sources, outermost first, without the error itself.
    pub fn chain(&self) -> Vec<String> {
        let mut texts = Vec::new();
        let mut source = self.0.source.cause();
        while let Some(error) = source.filter(|_| texts.len() < CHAIN_LIMIT) {
            texts.push(text_of(error));
            source = caught(|| error.source()).ok().flatten();
        }
        texts
    }

    /// The error and its sources in one line without control characters, cut to `limit` bytes.
    pub fn text(&self, limit: usize) -> String {
        one_line(&self.to_string(), &self.chain(), limit)
    }
}

/// An error and its causes, cut to `limit` bytes.
fn one_line(error: &str, chain: &[String], limit: usize) -> String {
    let mut text = error.to_owned();
    for cause in chain {
        text.push_str(": ");
        text.push_str(cause);
    }
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.truncate(text.floor_char_boundary(limit));
    text
}

impl Facts {
    fn of(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: Source(Some(error.into())),
            class: None,
            permanent: false,
            unavailable: false,
            retry_after: None,
            kind: FailureKind::Error,
        }
    }

    fn into_error(self) -> HandlerError {
        HandlerError(Box::new(self))
    }
}

/// The longest chain of causes that is read, because an error may name itself as its source.
const CHAIN_LIMIT: usize = 32;

/// An error of the user. Its text, its causes and its drop may panic.
struct Source(Option<Box<dyn Error + Send + Sync>>);

impl Source {
    fn error(&self) -> Option<&(dyn Error + 'static)> {
        self.0.as_deref().map(|error| error as &(dyn Error + 'static))
    }

    fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.error().and_then(|error| caught(|| error.source()).ok().flatten())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let error = self.0.take();
        // The result of the drop does not matter.
        let _ = caught(move || drop(error));
    }
}

fn text_of(error: &dyn Error) -> String {
    caught(|| error.to_string()).unwrap_or_else(|panic| format!("(the text of the error {panic})"))
}

impl<E: Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.source.error().map(text_of).unwrap_or_default())
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { source, class, permanent, unavailable, retry_after, kind } = &*self.0;
        let source = caught(|| format!("{:?}", source.0)).unwrap_or_else(|panic| panic);
        f.debug_struct("HandlerError")
            .field("source", &format_args!("{source}"))
            .field("class", class)
            .field("permanent", permanent)
            .field("unavailable", unavailable)
            .field("retry_after", retry_after)
            .field("kind", kind)
            .finish()
    }
}

/// The failure of a record, for its fallback handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The delivery of the record, as the handler received it.
    pub delivery: Delivery,
    /// The number of attempts of the handler.
    pub attempts: u32,
    /// The text of the last error.
    pub error: String,
    /// The texts of the last error's sources, outermost first.
    pub chain: Vec<String>,
    /// The class that the last error declared.
    pub class: Option<String>,
    /// What ended the last attempt.
    pub kind: FailureKind,
    /// Whether the retries were spent. If not, the error was one that is not retried.
    pub retries_exhausted: bool,
    /// The age of the record at its fetch, by the database's clock, plus the duration of the last attempt.
    pub since_scheduled: Duration,
    /// The duration of the last attempt.
    pub last_attempt_took: Duration,
}

impl Failure {
    /// The error and its sources in one line of at most 1,000 bytes, without control characters.
    pub fn text(&self) -> String {
        one_line(&self.error, &self.chain, FAILURE_LIMIT_BYTES)
    }
}

/// The longest text of a failure, in bytes.
const FAILURE_LIMIT_BYTES: usize = 1000;
