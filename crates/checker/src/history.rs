//! Files of events: one event per line, one file per process.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::Event;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
    /// A line is not an event. Only the last line of a file may be cut short, by a process that was killed.
    #[error("{}:{line} is no event", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
}

/// Reads files and merges them by time. Events of one time stay in the order of the files and of their lines.
///
/// # Errors
/// A file that cannot be read, or a line that is not an event.
pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Vec<Event>, HistoryError> {
    let mut events = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|source| HistoryError::File { path: path.to_owned(), source })?;
        parse(&bytes, &mut events).map_err(|(line, source)| HistoryError::Line {
            path: path.to_owned(),
            line,
            source,
        })?;
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

/// An event as a line, with the line's end.
///
/// # Errors
/// None in practice: every event can be written.
pub fn line(event: &Event) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads all lines. Text after the last line's end was cut short, unless it is a whole event.
///
/// # Errors
/// The first line that is not an event, from 1, and the error.
pub fn parse(bytes: &[u8], events: &mut Vec<Event>) -> Result<(), (usize, serde_json::Error)> {
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            Err(_) if !line.ends_with(b"\n") => {}
            Err(source) => return Err((number + 1, source)),
        }
    }
    Ok(())
}
