//! The form of a handler function. The attribute and the arguments must agree.

use syn::{Error, Result, Type};

use crate::{
    arguments::{Batch, HandlerArguments},
    call,
    signature::{Function, Given, Taken},
};

/// The call trait that fits.
pub(crate) enum Form<'a> {
    Single,
    Transactional(&'a Type),
    Batch(&'a Type, Batch),
    TransactionalBatch { event: &'a Type, connection: &'a Type, batch: Batch },
}

impl<'a> Form<'a> {
    /// The form of the function, or the reason why it has none.
    pub(crate) fn of(arguments: &HandlerArguments, function: &'a Function) -> Result<Self> {
        let mut connections = function.given.iter().filter_map(|(given, ty)| match given {
            Given::Connection(connection) => Some((connection, ty)),
            _ => None,
        });
        let connection = connections.next();
        if let Some((_, ty)) = connections.next() {
            return Err(Error::new_spanned(ty, "there is one transaction: take one `&mut` connection"));
        }
        check_takes(arguments, function)?;
        let form = Self::fitting(arguments, function, connection)?;
        function.given.iter().try_for_each(|(given, ty)| form.check(&function.takes, given, ty))?;
        Ok(form)
    }

    fn fitting(
        arguments: &HandlerArguments,
        function: &'a Function,
        connection: Option<(&'a Type, &Type)>,
    ) -> Result<Self> {
        let refuse = |span, advice: &str| Err(Error::new(span, advice));
        let refuse_type = |ty: &Type, advice: &str| Err(Error::new_spanned(ty, advice));
        match (&function.takes, arguments.batch, connection, arguments.transactional) {
            (Taken::Events(event), None, ..) => refuse_type(
                event,
                "a `Vec` of events is for a batch handler: add `batch = 100`, or take a single event",
            ),
            (Taken::Event(_) | Taken::Record, Some((_, span)), ..) => {
                refuse(span, "a batch handler takes several events: make the first argument a `Vec<E>`")
            }
            (_, _, Some((_, ty)), None) => {
                refuse_type(ty, "only a transactional handler is given a connection: add `transactional`")
            }
            (_, _, None, Some(span)) => refuse(
                span,
                "a transactional handler writes through its connection: \
                 take `&mut` of it, such as `tx: &mut sqlx::PgConnection`",
            ),
            (Taken::Events(event), Some((batch, _)), Some((connection, _)), Some(_)) => {
                check_returns(&function.returns)?;
                Ok(Self::TransactionalBatch { event, connection, batch })
            }
            (Taken::Events(event), Some((batch, _)), None, None) => Ok(Self::Batch(event, batch)),
            (_, None, Some((connection, _)), Some(_)) => Ok(Self::Transactional(connection)),
            (_, None, None, None) => Ok(Self::Single),
        }
    }

    fn check(&self, takes: &Taken, given: &Given, ty: &Type) -> Result<()> {
        let refuse = |advice: &str| Err(Error::new_spanned(ty, advice));
        match (given, self) {
            (Given::Failure, _) => refuse("only a fallback handler is told about a failure: take it out"),
            (Given::Delivery, _) if matches!(takes, Taken::Record) => {
                refuse("the delivery is in the record: use `record.delivery`")
            }
            (Given::Delivery, Form::Batch(..) | Form::TransactionalBatch { .. }) => {
                refuse("a batch has a delivery for each of its records: take `&[&Delivery]`")
            }
            (Given::Deliveries, Form::Single | Form::Transactional(_)) => {
                refuse("only a batch handler has several deliveries: take `&Delivery`")
            }
            _ => Ok(()),
        }
    }
}

/// Records that are committed together have one result.
fn check_returns(returns: &Type) -> Result<()> {
    match call::one_result_each(returns) {
        true => Err(Error::new_spanned(
            returns,
            "a transaction is committed as a whole: return `Result<(), E>` for all of the batch",
        )),
        false => Ok(()),
    }
}

fn check_takes(arguments: &HandlerArguments, function: &Function) -> Result<()> {
    match (&function.takes, &arguments.record_types) {
        (Taken::Record, None) => {
            let advice = "which records does it take? Add `every`, or `types(\"order.placed\", …)`";
            Err(Error::new(function.name.span(), advice))
        }
        (Taken::Event(_) | Taken::Events(_), Some((_, span))) => {
            let advice = "its event says which records it takes: take this out, or make the first argument a `&Record`";
            Err(Error::new(*span, advice))
        }
        _ => Ok(()),
    }
}
