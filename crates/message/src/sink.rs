//! A sink and its routes in one expression.

use keylane::{Record, Registration};

use crate::{form::Form, route::Route};

/// A sink: it takes routes and becomes a handler. The sinks for Kafka and for HTTP endpoints implement it.
pub trait Sink: Sized {
    /// Adds a route. A record takes the first route that accepts its type.
    #[must_use]
    fn route(self, route: Route) -> Self;

    /// The sink as a handler with this id.
    fn registration(self, id: impl Into<String>) -> Registration;
}

/// Begins a route of a sink. The record types come first, then the target, then everything else.
///
/// ```
/// use keylane::{Registration, RecordTypes};
/// use keylane_message::{Route, Sink, route};
///
/// # struct Printer(Vec<Route>);
/// # impl keylane::GenericHandler for Printer {
/// #     async fn handle(&self, _: &keylane::Record) -> Result<(), keylane::HandlerError> { Ok(()) }
/// # }
/// # impl Sink for Printer {
/// #     fn route(mut self, route: Route) -> Self { self.0.push(route); self }
/// #     fn registration(self, id: impl Into<String>) -> Registration {
/// #         Registration::generic(id, RecordTypes::all(), self)
/// #     }
/// # }
/// # let printer = Printer(Vec::new());
/// let registration = route(printer) // or KafkaSink::new(config)?, WebhookSink::new(config)?
///     .events(["order.*"])
///     .to("orders")
///     .key(|record| record.delivery.key.to_string())
///     .header("team", "sales")
///     .registration("orders");
/// ```
pub fn route<S: Sink>(sink: S) -> Routing<S> {
    Routing { sink, events: Vec::new() }
}

/// A route of a sink without a target, see [`route`].
#[derive(Debug)]
#[must_use = "say where to, with .to(…)"]
pub struct Routing<S> {
    sink: S,
    events: Vec<String>,
}

impl<S: Sink> Routing<S> {
    /// Like [`Route::events`].
    pub fn events<T: Into<String>>(mut self, patterns: impl IntoIterator<Item = T>) -> Self {
        self.events.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Like [`Route::to`].
    pub fn to(self, target: impl Into<String>) -> Routed<S> {
        self.by(Route::to(target))
    }

    /// Like [`Route::to_by`].
    pub fn to_by(self, target: impl Fn(&Record) -> String + Send + Sync + 'static) -> Routed<S> {
        self.by(Route::to_by(target))
    }

    fn by(self, route: Route) -> Routed<S> {
        let Self { sink, events } = self;
        Routed { sink, route: if events.is_empty() { route } else { route.events(events) } }
    }
}

/// A sink with a route, see [`route`](route()).
#[derive(Debug)]
#[must_use = "register it with .registration(…)"]
pub struct Routed<S> {
    sink: S,
    route: Route,
}

impl<S: Sink> Routed<S> {
    fn with(self, change: impl FnOnce(Route) -> Route) -> Self {
        Self { route: change(self.route), ..self }
    }

    /// Like [`Route::key`].
    pub fn key(self, key: impl Fn(&Record) -> String + Send + Sync + 'static) -> Self {
        self.with(|route| route.key(key))
    }

    /// Like [`Route::header`].
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|route| route.header(name, value))
    }

    /// Like [`Route::header_by`].
    pub fn header_by(
        self,
        name: impl Into<String>,
        value: impl Fn(&Record) -> String + Send + Sync + 'static,
    ) -> Self {
        self.with(|route| route.header_by(name, value))
    }

    /// Like [`Route::form`].
    pub fn form(self, form: Form) -> Self {
        self.with(|route| route.form(form))
    }

    /// Like [`Route::dead_letters`].
    pub fn dead_letters(self, target: impl Into<String>) -> Self {
        self.with(|route| route.dead_letters(target))
    }

    /// Like [`Route::dead_letter_table`].
    pub fn dead_letter_table(self) -> Self {
        self.with(Route::dead_letter_table)
    }

    /// Ends this route and begins the next one of the sink.
    pub fn route(self) -> Routing<S> {
        route(self.sink.route(self.route))
    }

    /// Ends this route. Returns the sink as a handler with this id.
    pub fn registration(self, id: impl Into<String>) -> Registration {
        self.sink.route(self.route).registration(id)
    }
}
