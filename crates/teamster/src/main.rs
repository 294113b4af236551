//! The `teamster` program. Everything is in the library; see `cli/mod.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    teamster::cli::main()
}
