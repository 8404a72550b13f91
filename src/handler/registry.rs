//! The registry: all handlers of an outbox, checked once, then read-only.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    calls::{BatchCall, Call, FallbackCall},
    context::States,
    record_types::{ANY_TEXT, RecordTypes, Route},
    registration::{DeclaredForm, Kind, Options, Registration},
};
use crate::{
    record::{NAME_LIMIT_BYTES, OnFailure},
    rules::{lifecycle::LaneRules, rate::Rate, retry::RetryPolicy},
    store::TransactionalRun,
};

/// The record type under which a handler of every type is published.
pub(crate) const EVERY_TYPE: &str = "*";

/// An error in the handlers given to a builder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two handlers have the same id.
    #[error("handler id {id:?} is used twice; ids are stored with records, so each must be unique")]
    DuplicateHandler {
        /// The handler id.
        id: String,
    },
    /// A handler id or record type is empty, too long, or has a character that is not allowed.
    #[error(
        "{what} {name:?} is not valid: it needs 1 to 128 bytes of letters, digits and . _ - : / (it has {length})"
    )]
    Name {
        /// `handler id` or `record type`.
        what: &'static str,
        /// The name as given.
        name: String,
        /// The length in bytes.
        length: usize,
    },
    /// Two Rust types have the same record type.
    #[error("record type {record_type:?} is declared twice, by {first} and by {second}; rename one of them")]
    DuplicateEvent {
        /// The record type.
        record_type: String,
        /// One Rust type.
        first: &'static str,
        /// The other Rust type.
        second: &'static str,
    },
    /// A handler needs a shared value that the builder does not have.
    #[error("handler {handler:?} needs State<{state}>, but the builder was given none: add .state(value)")]
    MissingState {
        /// The id of the handler, also for its fallback handler.
        handler: String,
        /// The Rust type of the value.
        state: &'static str,
    },
    /// A fallback handler names a handler that is not registered.
    #[error("fallback handler of {of:?}: there is no handler with that id")]
    UnknownHandler {
        /// The handler id that it names.
        of: String,
    },
    /// A handler has two fallback handlers.
    #[error("handler {of:?} has two fallback handlers; keep one")]
    DuplicateFallback {
        /// The handler id, or `every handler` for the default.
        of: String,
    },
    /// A transactional handler was written for another database.
    #[error("handler {handler:?} takes a transaction of {wanted}, but this outbox is on {database}")]
    WrongDatabase {
        /// The handler id.
        handler: String,
        /// The database that the handler was written for.
        wanted: &'static str,
        /// The database of the outbox.
        database: &'static str,
    },
    /// An option of a handler is out of range.
    #[error("handler {handler:?}: {problem}")]
    Option {
        /// The handler id.
        handler: String,
        /// The problem, as a sentence.
        problem: String,
    },
}

/// The options of handlers that do not set their own.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Duration,
    pub(crate) stop_on_first_failure: bool,
    pub(crate) on_failure: Option<OnFailure>,
    /// Whether the records of a key have an order, so that one may stop the others.
    pub(crate) ordered: bool,
}

/// The form of a call.
#[derive(Clone)]
pub(crate) enum Form {
    Single(Arc<dyn Call>),
    Batch { call: Arc<dyn BatchCall>, size: usize, mixed: bool },
    Transactional { call: Arc<dyn TransactionalRun>, size: usize, mixed: bool },
}

impl Form {
    /// The most records of one call, and whether they may be of several lanes. `None`: one record per call.
    pub(crate) fn batch(&self) -> Option<(usize, bool)> {
        match self {
            Self::Batch { size, mixed, .. } | Self::Transactional { size, mixed, .. } => {
                Some((*size, *mixed))
            }
            Self::Single(_) => None,
        }
    }

    /// Whether each call has a separate transaction under a separate fence row.
    pub(crate) fn is_transactional(&self) -> bool {
        matches!(self, Self::Transactional { .. })
    }
}

/// One handler with its options, as calls and their results need them.
pub(crate) struct Entry {
    pub(crate) id: String,
    /// The index of the handler in this registry.
    pub(crate) number: usize,
    pub(crate) takes: RecordTypes,
    pub(crate) form: Form,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Duration,
    /// The most runs of the handler at once.
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<Rate>,
    pub(crate) lane_rules: LaneRules,
    pub(crate) fallback: Option<Arc<dyn FallbackCall>>,
}

/// All handlers of an outbox.
pub(crate) struct Registry {
    entries: BTreeMap<String, Arc<Entry>>,
    pub(crate) states: States,
}

/// Converts a declared transactional handler to the form of the database, or returns the name of the
/// handler's database.
pub(crate) type Adopt<'a> =
    &'a dyn Fn(&(dyn std::any::Any + Send + Sync)) -> Option<Arc<dyn TransactionalRun>>;

impl Registry {
    pub(crate) fn build(
        registrations: Vec<Registration>,
        states: States,
        defaults: &Defaults,
        database: &'static str,
        adopt: Adopt<'_>,
    ) -> Result<Self, Vec<RegistryError>> {
        let mut problems = Vec::new();
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        let mut events: HashMap<String, &'static str> = HashMap::new();
        let mut fallbacks = Vec::new();
        for Registration { kind, needs, options, fallback } in registrations {
            let name = match &kind {
                Kind::Handler { id, .. } => id.clone(),
                Kind::Fallback { of, .. } => {
                    format!("fallback of {}", of.as_deref().unwrap_or("every handler"))
                }
            };
            for (_, state) in needs.iter().filter(|(id, _)| !states.contains(*id)) {
                problems.push(RegistryError::MissingState { handler: name.clone(), state });
            }
            match kind {
                Kind::Fallback { of, call } => fallbacks.push((of, call)),
                Kind::Handler { id, takes, form } => {
                    check_names(&id, &takes, &mut events, &mut problems);
                    check_options(&id, &form, &options, defaults, &mut problems);
                    match adopt_form(&id, form, database, adopt) {
                        Err(problem) => problems.push(problem),
                        Ok(form) => {
                            let entry =
                                Entry { fallback, ..entry(id.clone(), takes, form, options, defaults) };
                            if entries.insert(id.clone(), entry).is_some() {
                                problems.push(RegistryError::DuplicateHandler { id });
                            }
                        }
                    }
                }
            }
        }
        attach_fallbacks(fallbacks, &mut entries, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let numbered = entries.into_iter().enumerate();
        let entries =
            numbered.map(|(number, (id, entry))| (id, Arc::new(Entry { number, ..entry }))).collect();
        Ok(Self { entries, states })
    }

    /// The handler with this id, if it takes the record type.
    pub(crate) fn entry(&self, handler: &str, record_type: &str) -> Option<&Arc<Entry>> {
        let entry = self.entries.get(handler)?;
        entry.takes.takes(record_type).then_some(entry)
    }

    /// Whether there is a handler with this id.
    pub(crate) fn knows(&self, handler: &str) -> bool {
        self.entries.contains_key(handler)
    }

    /// Whether any handler runs in the transaction of its completion.
    pub(crate) fn transactional(&self) -> bool {
        self.entries.values().any(|entry| entry.form.is_transactional())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// The routes of all handlers, as published for producers.
    pub(crate) fn routes(&self) -> BTreeSet<Route> {
        let routes = self.entries.values().flat_map(|entry| {
            let every = || vec![EVERY_TYPE.to_owned()];
            let types = entry.takes.record_types.clone().unwrap_or_else(every);
            types.into_iter().map(|record_type| Route { record_type, handler: entry.id.clone() })
        });
        routes.collect()
    }
}

fn entry(id: String, takes: RecordTypes, form: Form, options: Options, defaults: &Defaults) -> Entry {
    let stop_on_first_failure = options.stop_on_first_failure.unwrap_or(defaults.stop_on_first_failure);
    let by_stop = if stop_on_first_failure { OnFailure::Block } else { OnFailure::Continue };
    let on_failure = options.on_failure.or(defaults.on_failure).unwrap_or(by_stop);
    Entry {
        id,
        number: 0,
        takes,
        form,
        retry: options.retry.unwrap_or_else(|| defaults.retry.clone()),
        timeout: options.timeout.unwrap_or(defaults.timeout),
        concurrency: options.concurrency,
        rate: options.rate,
        lane_rules: LaneRules { stop_on_first_failure, on_failure },
        fallback: None,
    }
}

/// Whether a handler id or record type has 1 to 128 bytes of allowed characters.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    (1..=NAME_LIMIT_BYTES).contains(&name.len()) && name.bytes().all(plain)
}

fn check_names(
    id: &str,
    takes: &RecordTypes,
    events: &mut HashMap<String, &'static str>,
    problems: &mut Vec<RegistryError>,
) {
    let types = takes.record_types.iter().flatten().map(|name| ("record type", name.as_str()));
    let is_valid = |what: &str, name: &str| match what {
        "record type" => name.len() <= NAME_LIMIT_BYTES && is_valid_name(&name.replace(ANY_TEXT, "-")),
        _ => is_valid_name(name),
    };
    for (what, name) in types.chain([("handler id", id)]).filter(|(what, name)| !is_valid(what, name)) {
        problems.push(RegistryError::Name { what, name: name.to_owned(), length: name.len() });
    }
    let Some(second) = takes.event else { return };
    for record_type in takes.record_types.iter().flatten() {
        let first = *events.entry(record_type.clone()).or_insert(second);
        if first != second {
            problems.push(RegistryError::DuplicateEvent { record_type: record_type.clone(), first, second });
        }
    }
}

fn check_options(
    id: &str,
    form: &DeclaredForm,
    options: &Options,
    defaults: &Defaults,
    problems: &mut Vec<RegistryError>,
) {
    let mut problem =
        |problem: String| problems.push(RegistryError::Option { handler: id.to_owned(), problem });
    if let DeclaredForm::Batch { size: 0, .. } | DeclaredForm::Transactional { size: 0, .. } = form {
        problem("batch size is 0, but must be at least 1".to_owned());
    }
    let stops = options.stop_on_first_failure == Some(true) || options.on_failure == Some(OnFailure::Block);
    if stops && !defaults.ordered {
        problem(
            "it stops its key at a failure, but mode is claimed, which keeps no order: leave that out"
                .to_owned(),
        );
    }
    if options.timeout.is_some_and(|timeout| timeout.is_zero()) {
        problem("timeout is 0s: every call would fail; leave it out for the default".to_owned());
    }
    if options.concurrency == Some(0) {
        problem("concurrency is 0: it would never be called; set it to at least 1".to_owned());
    }
    options.rate.iter().filter_map(Rate::problem).for_each(&mut problem);
    options.retry.iter().flat_map(|retry| retry.problems("retry")).for_each(problem);
}

fn adopt_form(
    handler: &str,
    form: DeclaredForm,
    database: &'static str,
    adopt: Adopt<'_>,
) -> Result<Form, RegistryError> {
    Ok(match form {
        DeclaredForm::Single(call) => Form::Single(call),
        DeclaredForm::Batch { call, size, mixed } => Form::Batch { call, size, mixed },
        DeclaredForm::Transactional { call, database: wanted, size, mixed } => {
            let wrong = || RegistryError::WrongDatabase { handler: handler.to_owned(), wanted, database };
            Form::Transactional { call: adopt(&*call).ok_or_else(wrong)?, size, mixed }
        }
    })
}

fn attach_fallbacks(
    fallbacks: Vec<(Option<String>, Arc<dyn FallbackCall>)>,
    entries: &mut BTreeMap<String, Entry>,
    problems: &mut Vec<RegistryError>,
) {
    let mut default = None;
    for (of, call) in fallbacks {
        let Some(of) = of else {
            if default.replace(call).is_some() {
                problems.push(RegistryError::DuplicateFallback { of: "every handler".to_owned() });
            }
            continue;
        };
        match entries.get_mut(&of) {
            None => problems.push(RegistryError::UnknownHandler { of }),
            Some(entry) if entry.fallback.is_some() => problems.push(RegistryError::DuplicateFallback { of }),
            Some(entry) => entry.fallback = Some(call),
        }
    }
    for entry in entries.values_mut().filter(|entry| entry.fallback.is_none()) {
        entry.fallback.clone_from(&default);
    }
}
