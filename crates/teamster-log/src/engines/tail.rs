//! The tail of any engine that can be read by page and tells when something was appended.

use std::collections::VecDeque;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;

use crate::{Commit, Error};

/// How many commits to ask for at once while catching up; the page's bound in bytes usually ends it earlier.
pub(super) const TAIL_PAGE: usize = 1_000;

struct Tail<Read> {
    read: Read,
    appended: watch::Receiver<()>,
    page: VecDeque<Commit>,
    after: u64,
}

/// Streams the commits after `after`, which `read` returns by page, and ends when the sender of `appended` is gone and all
/// is delivered.
pub(super) fn tail<'a>(
    read: impl Fn(u64) -> BoxFuture<'a, Result<Vec<Commit>, Error>> + Send + 'a,
    appended: watch::Receiver<()>,
    after: u64,
) -> BoxStream<'a, Result<Commit, Error>> {
    let start = Tail { read, appended, page: VecDeque::new(), after };
    stream::try_unfold(start, |mut tail| async move {
        loop {
            if let Some(commit) = tail.page.pop_front() {
                tail.after = commit.number;
                return Ok(Some((commit, tail)));
            }
            // Before reading: what is appended during the read then wakes us again, instead of being missed.
            tail.appended.borrow_and_update();
            let page = (tail.read)(tail.after);
            tail.page = page.await?.into();
            let caught_up = tail.page.is_empty();
            if caught_up && tail.appended.changed().await.is_err() {
                return Ok(None);
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt;

    use super::*;
    use crate::{CommitId, Head};

    #[test]
    fn what_is_appended_while_the_end_is_being_read_is_not_missed() {
        let commit = Head::EMPTY.next(CommitId([1; 16]), Vec::new());
        let (wake, appended) = watch::channel(());
        // The first read finds nothing, and before it is heard the commit is there.
        let pages = Mutex::new(vec![vec![commit.clone()], vec![]]);
        let read = |_| {
            let page = pages.lock().unwrap().pop().unwrap_or_default();
            async {
                wake.send_replace(());
                Ok(page)
            }
            .boxed()
        };
        let seen = tail(read, appended, 0).next().now_or_never();
        assert_eq!(seen.expect("it woke").expect("it goes on").unwrap(), commit);
    }
}
