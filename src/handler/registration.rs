//! A registration: one handler or fallback handler with everything the outbox must know of it.

use std::{
    any::{Any, TypeId, type_name},
    sync::Arc,
    time::Duration,
};

use super::{
    calls::{
        Batch, BatchCall, BatchInTransaction, Call, Each, FallbackCall, Generic, GenericBatch, InTransaction,
        TransactionalBatchCall, TransactionalCall, Typed,
    },
    dead_letters::KeepAll,
    forms::{
        BatchHandler, FallbackHandler, GenericBatchHandler, GenericFallbackHandler, GenericHandler, Handler,
        TransactionalBatchHandler, TransactionalHandler,
    },
    record_types::RecordTypes,
};
use crate::{
    database::Database,
    record::OnFailure,
    rules::{rate::Rate, retry::RetryPolicy},
};

/// What the macros generate: a type that declares its handler.
pub trait Declare {
    /// The handler with its options.
    fn declare() -> Registration;
}

/// One handler or fallback handler with its options.
///
/// ```
#[doc = include_str!("../doc/outbox.txt")]
/// use keylane::handler::Declare;
///
/// let registration = send_mail::declare() // or Registration::typed("mailer", Mailer) and its like
///     .retry(RetryPolicy::default())
///     .timeout(Duration::from_secs(5))
///     .stop_on_first_failure(true)
///     .on_failure(OnFailure::Continue);
/// let outbox = Outbox::builder(pool).handler(registration).build().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "give it to the builder with .handlers(…)"]
pub struct Registration {
    pub(crate) kind: Kind,
    pub(crate) needs: Vec<(TypeId, &'static str)>,
    pub(crate) options: Options,
    /// That of this handler, if it was given with it.
    pub(crate) fallback: Option<Arc<dyn FallbackCall>>,
}

pub(crate) enum Kind {
    Handler { id: String, takes: RecordTypes, form: DeclaredForm },
    Fallback { of: Option<String>, call: Arc<dyn FallbackCall> },
}

/// A handler's form before the database type is known.
pub(crate) enum DeclaredForm {
    Single(Arc<dyn Call>),
    Batch {
        call: Arc<dyn BatchCall>,
        size: usize,
        mixed: bool,
    },
    /// Holds an `Arc<dyn TransactionalBatchCall<DB>>`.
    Transactional {
        call: Box<dyn Any + Send + Sync>,
        database: &'static str,
        size: usize,
        mixed: bool,
    },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<Rate>,
    pub(crate) stop_on_first_failure: Option<bool>,
    pub(crate) on_failure: Option<OnFailure>,
}

impl Registration {
    fn handler(id: impl Into<String>, takes: RecordTypes, form: DeclaredForm) -> Self {
        Self {
            kind: Kind::Handler { id: id.into(), takes, form },
            needs: Vec::new(),
            options: Options::default(),
            fallback: None,
        }
    }

    /// A handler of one event type.
    pub fn typed<H: Handler>(id: impl Into<String>, handler: H) -> Self {
        Self::single(id, RecordTypes::event::<H::Event>(), Typed(handler))
    }

    /// A handler of raw records.
    pub fn generic<H: GenericHandler>(id: impl Into<String>, takes: RecordTypes, handler: H) -> Self {
        Self::single(id, takes, Generic(handler))
    }

    /// A handler of up to `size` records at once: a contiguous run of one lane.
    pub fn batch<H: BatchHandler>(id: impl Into<String>, size: usize, handler: H) -> Self {
        Self::batch_call(id, RecordTypes::event::<H::Event>(), size, false, Batch(handler))
    }

    /// A handler of up to `size` records at once, from several lanes, each lane's in order.
    pub fn mixed_batch<H: BatchHandler>(id: impl Into<String>, size: usize, handler: H) -> Self {
        Self::batch_call(id, RecordTypes::event::<H::Event>(), size, true, Batch(handler))
    }

    /// A handler of up to `size` raw records at once, from several lanes, each lane's in order.
    pub fn generic_batch<H: GenericBatchHandler>(
        id: impl Into<String>,
        takes: RecordTypes,
        size: usize,
        handler: H,
    ) -> Self {
        Self::batch_call(id, takes, size, true, GenericBatch(handler))
    }

    /// A handler inside the transaction of its completion.
    pub fn transactional<DB: Database, H: TransactionalHandler<DB>>(
        id: impl Into<String>,
        handler: H,
    ) -> Self {
        Self::transactional_call(id, RecordTypes::event::<H::Event>(), InTransaction::<DB, H>::new(handler))
    }

    /// A handler of up to `size` records inside the transaction of their completions: a contiguous run
    /// of one lane.
    pub fn transactional_batch<DB: Database, H: TransactionalBatchHandler<DB>>(
        id: impl Into<String>,
        size: usize,
        handler: H,
    ) -> Self {
        let call = BatchInTransaction::<DB, H>::new(handler);
        Self::transactional_batch_call(id, RecordTypes::event::<H::Event>(), size, false, call)
    }

    /// A handler of up to `size` records inside the transaction of their completions, from several
    /// lanes, each lane's in order.
    pub fn transactional_mixed_batch<DB: Database, H: TransactionalBatchHandler<DB>>(
        id: impl Into<String>,
        size: usize,
        handler: H,
    ) -> Self {
        let call = BatchInTransaction::<DB, H>::new(handler);
        Self::transactional_batch_call(id, RecordTypes::event::<H::Event>(), size, true, call)
    }

    /// The fallback handler of the handler `of`.
    pub fn fallback<H: FallbackHandler>(of: impl Into<String>, handler: H) -> Self {
        Self::fallback_call(Some(of.into()), Typed(handler))
    }

    /// The fallback handler of all handlers that have none of their own.
    pub fn default_fallback<H: GenericFallbackHandler>(handler: H) -> Self {
        Self::fallback_call(None, Generic(handler))
    }

    /// Gives this handler a fallback handler of its own, of any record type: for crates that make a registration for
    /// others, such as a sink with its dead letters.
    pub fn with_fallback<H: GenericFallbackHandler>(mut self, handler: H) -> Self {
        self.fallback = Some(Arc::new(Generic(handler)));
        self
    }

    /// As [`with_fallback`](Self::with_fallback), in its object-safe form.
    pub fn with_fallback_call(mut self, call: impl FallbackCall) -> Self {
        self.fallback = Some(Arc::new(call));
        self
    }

    /// What fails for good goes to the table `outbox_dead_letter` with its cause, and its key goes on: the handler has
    /// the table as its fallback. [`Admin::dead_letters`](crate::admin::Admin::dead_letters) lists them.
    ///
    /// ```
    #[doc = include_str!("../doc/outbox.txt")]
    /// use keylane::handler::Declare;
    ///
    /// let registration = send_mail::declare().dead_letter_table();
    /// let outbox = Outbox::builder(pool).handler(registration).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dead_letter_table(self) -> Self {
        self.with_fallback_call(KeepAll)
    }

    /// A handler in its object-safe form.
    pub fn single(id: impl Into<String>, takes: RecordTypes, call: impl Call) -> Self {
        Self::handler(id, takes, DeclaredForm::Single(Arc::new(call)))
    }

    /// A batch handler in its object-safe form. `mixed`: records of several lanes in one call.
    pub fn batch_call(
        id: impl Into<String>,
        takes: RecordTypes,
        size: usize,
        mixed: bool,
        call: impl BatchCall,
    ) -> Self {
        Self::handler(id, takes, DeclaredForm::Batch { call: Arc::new(call), size, mixed })
    }

    /// A transactional handler in its object-safe form.
    pub fn transactional_call<DB: Database>(
        id: impl Into<String>,
        takes: RecordTypes,
        call: impl TransactionalCall<DB>,
    ) -> Self {
        Self::transactional_batch_call(id, takes, 1, false, Each(call))
    }

    /// A transactional batch handler in its object-safe form. `mixed`: records of several lanes in one
    /// transaction.
    pub fn transactional_batch_call<DB: Database>(
        id: impl Into<String>,
        takes: RecordTypes,
        size: usize,
        mixed: bool,
        call: impl TransactionalBatchCall<DB>,
    ) -> Self {
        let call: Arc<dyn TransactionalBatchCall<DB>> = Arc::new(call);
        let form = DeclaredForm::Transactional { call: Box::new(call), database: DB::NAME, size, mixed };
        Self::handler(id, takes, form)
    }

    /// A fallback handler in its object-safe form; `of` is a handler id, or `None` for the default.
    pub fn fallback_call(of: Option<String>, call: impl FallbackCall) -> Self {
        Self {
            kind: Kind::Fallback { of, call: Arc::new(call) },
            needs: Vec::new(),
            options: Options::default(),
            fallback: None,
        }
    }

    /// Declares that the handler needs a shared value. If the builder has none, `build` returns an error.
    pub fn needs<T: Clone + Send + Sync + 'static>(mut self) -> Self {
        self.needs.push((TypeId::of::<T>(), type_name::<T>()));
        self
    }

    /// Sets this handler's retry policy instead of the outbox's.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self
    }

    /// Sets how long one call may take, instead of the outbox's setting.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Sets how many calls of this handler may be under way at once in one instance, beside the limits of the outbox
    /// (`delivery.concurrency`, `delivery.transactional_concurrency`). Its other records wait and hold up no other
    /// handler. A batch is one call. `build` refuses 0.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.options.concurrency = Some(calls);
        self
    }

    /// Sets how often this handler may be called by one instance: with three replicas, the target sees three times as
    /// many calls. Retries count, fallbacks do not. A batch is one call. Its other records wait and hold up no other
    /// handler. `build` refuses a rate of zero.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.options.rate = Some(rate);
        self
    }

    /// Sets whether a failing record stops the later ones of its lane.
    pub fn stop_on_first_failure(mut self, stop: bool) -> Self {
        self.options.stop_on_first_failure = Some(stop);
        self
    }

    /// Sets what becomes of the lane when a record has failed for good.
    pub fn on_failure(mut self, lane: OnFailure) -> Self {
        self.options.on_failure = Some(lane);
        self
    }
}
