//! The `keylane` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    keylane_cli::main()
}
