//! The routes of a sink, and the choice of a record's route.

use keylane::{
    Failure, HandlerError, Record, RecordTypes, State,
    handler::{Context, DeadLetterTable},
};

use crate::{
    form::Binding,
    route::{Message, Route},
};

/// The routes of a sink, in order. A record takes the first route that accepts its type.
///
/// ```
/// use keylane_message::{Route, Routes};
///
/// let mut routes = Routes::default();
/// routes.add(Route::to("orders").events(["order.placed"]));
/// routes.add(Route::to("everything").dead_letters("dead"));
/// assert!(routes.has_dead_letters());
/// ```
#[derive(Debug, Default)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// Adds a route after the others.
    pub fn add(&mut self, route: Route) {
        self.0.push(route);
    }

    /// The route of a record. `None` if no route accepts its type.
    pub fn of(&self, record: &Record) -> Option<&Route> {
        self.0.iter().find(|route| route.takes(&record.delivery.record_type))
    }

    /// The record types for which to register a sink: the types of its routes, or all types if a route names
    /// none.
    pub fn record_types(&self) -> RecordTypes {
        let types = self.0.iter().map(|route| route.record_types().clone());
        types.reduce(RecordTypes::or).unwrap_or_else(RecordTypes::all)
    }

    /// Whether a route has dead letters. The sink then needs a fallback.
    pub fn has_dead_letters(&self) -> bool {
        self.0.iter().any(Route::has_dead_letters)
    }

    /// Writes a record that has failed for good into the table of dead letters. `None` if its route does not
    /// use that table. `source` is the source of its CloudEvent.
    pub async fn keep_dead_letter(
        &self,
        context: Context<'_>,
        failure: &Failure,
        source: &str,
        binding: Binding,
    ) -> Option<Result<(), HandlerError>> {
        let record = context.record();
        let target = self.of(record)?.target_in_table(record, source, binding)?;
        Some(match context.state::<DeadLetterTable>() {
            Ok(State(table)) => table.keep(record, failure, &target).await,
            Err(error) => Err(error),
        })
    }

    /// The dead letter of a record that has failed for good. `None` if its route has no dead letters, or
    /// keeps them in the table.
    pub fn dead_letter<'a>(
        &'a self,
        record: &'a Record,
        failure: &'a Failure,
        source: &'a str,
        binding: Binding,
    ) -> Option<Message<'a>> {
        self.of(record)?.dead_letter(record, failure, source, binding)
    }

    /// The number of routes.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}
