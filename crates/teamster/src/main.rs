//! The `teamster` program. Everything is in the library; see `cli/mod.rs`.

use std::process::ExitCode;

/// A call allocates in one thread and frees in another, and about a quarter of a write was spent in the system's
/// allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    teamster::cli::main()
}
