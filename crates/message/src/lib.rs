//! The messages that the sinks of Keylane send and consumers read.
//!
//! A [`Route`] is a pure function from a record to a [`Message`]: target, key, headers and body, in one of
//! five [forms](Form). [`Received::read`] reads a message again.
//!
//! ```
//! use keylane_message::{Binding, Event, Form, Received};
//!
//! let event = Event::new("0198f5f0-1c7e-7000-8000-000000000001", "order.placed", "order-42", b"{\"id\":42}");
//! let (headers, body) = event.write(Form::CloudEventsJson, Binding::Kafka);
//!
//! let headers = headers.iter().map(|(name, value)| (&**name, value.as_bytes()));
//! let received = Received::read(headers, None, &body)?;
//! assert_eq!(received.event_id.as_deref(), Some(&*event.id));
//! assert_eq!(&*received.payload, b"{\"id\":42}");
//! # Ok::<(), keylane_message::ReadError>(())
//! ```
//!
//! Routes come from code ([`Route`]) or from a file ([`RouteConfig`], with [templates](Template)).
//! `docs/messages.md` in the repository shows the forms with their headers and bodies.

mod cause;
mod config;
mod event;
mod form;
mod read;
mod route;
mod routes;
mod sink;
mod template;
mod write;

pub use cause::Cause;
pub use config::{RouteConfig, RouteError, RouteProblem};
pub use event::Event;
pub use form::{Binding, Form};
pub use read::{ReadError, Received, TraceContext};
pub use route::{Message, Route};
pub use routes::Routes;
pub use sink::{Routed, Routing, Sink, route};
pub use template::{Template, TemplateError};
pub use write::MessageHeaders;
