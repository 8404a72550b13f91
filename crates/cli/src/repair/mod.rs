//! `keylane failed` and `keylane dead-letters`: list failed records and dead letters, deliver them
//! again, correct and delete them.

mod listed;
mod page;
mod selection;
mod target;

use std::{
    error::Error,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::Subcommand;
use keylane::{RecordId, admin::Admin};

use self::{page::Page, selection::Selection, target::Target};

type Answer = Result<(), Box<dyn Error + Send + Sync>>;

/// The subcommands for failed records.
#[derive(Debug, Subcommand)]
pub(crate) enum Failed {
    /// Lists failed records by their ids.
    List(Page),
    /// Delivers failed records again, from attempt 1. A lane that such a record blocks goes on after it.
    Retry(Selection),
    /// Gives one failed record another payload and delivers it again.
    Replace {
        /// The record.
        #[arg(value_parser = selection::id)]
        id: RecordId,
        /// A file with the payload, in the media type of the record; - for the standard input.
        #[arg(long)]
        payload: PathBuf,
    },
    /// Deletes failed records. A lane that such a record blocks goes on without it.
    Discard {
        #[command(flatten)]
        selection: Selection,
        /// Deletes the records that a filter or --all selects. Without --yes these records are only counted.
        #[arg(long)]
        yes: bool,
    },
}

/// The subcommands for dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// Lists dead letters by the ids of their records.
    List(Page),
    /// Schedules dead letters again: as new records of the same events, behind the pending records of their keys.
    Retry(Selection),
    /// Deletes dead letters.
    Discard {
        #[command(flatten)]
        selection: Selection,
        /// Deletes the dead letters that a filter or --all selects. Without --yes they are only counted.
        #[arg(long)]
        yes: bool,
    },
}

/// Does it.
///
/// # Errors
/// An error of the database, or the ids that do not exist.
pub(crate) async fn failed(admin: &Admin, command: Failed) -> Answer {
    let target = Target::Failed;
    match command {
        Failed::List(page) => page.print(admin, target).await,
        Failed::Retry(selection) => selection.retry(admin, target).await,
        Failed::Discard { selection, yes } => selection.discard(admin, target, yes).await,
        Failed::Replace { id, payload } => {
            if !admin.replace_payload(id, read(&payload)?).await? {
                return Err(target.none_with(&[id], 1).into());
            }
            println!("the record has its new payload and is delivered again");
            Ok(())
        }
    }
}

/// Does it.
///
/// # Errors
/// An error of the database, or the ids that do not exist.
pub(crate) async fn dead_letters(admin: &Admin, command: DeadLetters) -> Answer {
    let target = Target::DeadLetters;
    match command {
        DeadLetters::List(page) => page.print(admin, target).await,
        DeadLetters::Retry(selection) => selection.retry(admin, target).await,
        DeadLetters::Discard { selection, yes } => selection.discard(admin, target, yes).await,
    }
}

/// The largest payload that is read, in bytes. No database takes so many in one statement.
const LARGEST_PAYLOAD: u64 = 1 << 30;

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut payload = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(LARGEST_PAYLOAD).read_to_end(&mut payload),
        false => {
            std::fs::File::open(path).and_then(|file| file.take(LARGEST_PAYLOAD).read_to_end(&mut payload))
        }
    };
    read.map_err(|error| format!("the payload {} cannot be read: {error}", path.display()))?;
    Ok(payload)
}
