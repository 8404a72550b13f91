//! The subjects that drain, and the options of the command line.

use std::{fmt, num::NonZeroUsize};

use clap::{Args, ValueEnum};

use super::{
    engine::Engine,
    options::{Load, Show, Tuning},
};

/// Records that the slowest references are given.
const FEW: usize = 4_000;

/// Options of `bench drain`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Records of the backlog; without it 200000, 20000 for transactional handlers, 50000 for their batches.
    #[arg(long)]
    pub(super) records: Option<NonZeroUsize>,
    /// The number of handlers. Each event is a record per handler, and the number of records stays the same. Not
    /// for transactional forms.
    #[arg(long, default_value = "1")]
    pub(super) handlers: NonZeroUsize,
    /// Of the references, only the hand-written loop.
    #[arg(long)]
    pub(super) loop_only: bool,
    #[command(flatten)]
    pub(super) load: Load,
    #[command(flatten)]
    pub(super) tuning: Tuning,
    /// What the library calls.
    #[arg(long, value_enum, default_value_t = Form::Single)]
    pub(super) handler_form: Form,
    #[command(flatten)]
    pub(in super::super) show: Show,
}

/// The form of the library's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// One event per call.
    Single,
    /// Up to 500 events of any keys per call.
    Batch,
    /// One event per call, with the transaction of its completion. The handler updates a row in it.
    Transactional,
    /// Up to 500 events of any keys per call, with the transaction of their completions. The handler updates one row
    /// per event in it.
    TransactionalBatch,
}

impl Form {
    pub(super) fn transactional(self) -> bool {
        matches!(self, Self::Transactional | Self::TransactionalBatch)
    }
}

/// A subject that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Library,
    Loop,
    Best,
    /// On this many connections.
    Naive(usize),
}

impl Options {
    /// All subjects, the library first.
    pub(super) fn subjects<E: Engine>(&self) -> Vec<Subject> {
        let mut subjects = vec![Subject::Library, Subject::Loop];
        // A transactional handler takes one record per transaction anyway, so the single references are left out.
        if !self.handler_form.transactional() && !self.loop_only {
            subjects.push(Subject::Best);
            subjects.extend(E::SINGLY.iter().map(|connections| Subject::Naive(*connections)));
        }
        subjects
    }

    /// The number of records for a subject.
    pub(super) fn records_of(&self, subject: Subject) -> usize {
        let by_default = match self.handler_form {
            Form::Single | Form::Batch => 200_000,
            Form::Transactional => 20_000,
            Form::TransactionalBatch => 50_000,
        };
        let records = self.records.map_or(by_default, NonZeroUsize::get);
        let records = match subject {
            Subject::Naive(_) => records.min(FEW),
            _ => records,
        };
        records.next_multiple_of(self.handlers.get())
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "single",
            Self::Batch => "batch",
            Self::Transactional => "transactional",
            Self::TransactionalBatch => "transactional-batch",
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => f.write_str("library"),
            Self::Loop => f.write_str("loop"),
            Self::Best => f.write_str("best"),
            Self::Naive(connections) => write!(f, "naive{connections}"),
        }
    }
}
