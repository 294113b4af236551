//! Waits for files that other processes make.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a deadline needs a clock, and a broken fixture should panic"
)]

use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::io::retry_on_intr;

use crate::hub::DEADLINE;

/// Waits until a file is there whose directory is; fails after a minute with what `told` says.
pub(crate) fn until_exists(path: &Path, told: impl Fn() -> String) {
    let since = Instant::now();
    let watch = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("files can be watched");
    let directory = path.parent().expect("it is in a directory");
    let comes = WatchFlags::CREATE | WatchFlags::MOVED_TO;
    add_watch(&watch, directory, comes).expect("its directory is there");
    // It is looked for only once it is watched for, so nothing is missed.
    while !path.exists() {
        let left = DEADLINE.checked_sub(since.elapsed());
        let left = left.unwrap_or_else(|| panic!("{} does not come: {}", path.display(), told()));
        let left = Timespec::try_from(left).expect("a deadline is a time");
        // The runtimes of other tests get signals of ended children.
        let comes = retry_on_intr(|| poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&left)));
        comes.expect("it can be waited for");
        // What happened does not matter; the file is looked for again.
        let mut events = [0; 4096];
        while rustix::io::read(&watch, &mut events).is_ok_and(|n_bytes| n_bytes > 0) {}
    }
}
