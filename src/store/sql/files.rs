//! The files of a connection: certificates and keys of TLS.

use std::{fs::File, io::ErrorKind};

use sqlx::ConnectOptions;

/// Names the file in an error of connecting that comes from a file that cannot be read. Waiting does not fix
/// this error, and the text of the system does not name the file. `names` are the parameters of an address
/// that name files.
pub(super) fn blame<O: ConnectOptions>(error: sqlx::Error, options: &O, names: &[&str]) -> sqlx::Error {
    let of_a_file = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::PermissionDenied);
    match &error {
        sqlx::Error::Io(cause) if of_a_file(cause.kind()) => {}
        _ => return error,
    }
    let address = options.to_url_lossy();
    let unreadable = address.query_pairs().find_map(|(name, path)| {
        // The parameter may also hold the certificate itself.
        let is_file = names.contains(&&*name) && !path.starts_with("-----BEGIN");
        let cause = File::open(&*path).err().filter(|_| is_file)?;
        Some(format!("{name} is {path:?}, which cannot be read ({cause}): give the path of a file that this process may read"))
    });
    unreadable.map_or(error, |problem| sqlx::Error::Configuration(problem.into()))
}
