//! The deputy itself: runs what it is asked to, several at a time, until its standard input ends. Whatever is left then is
//! ended by its launcher.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::timeout;

use super::command::{self, How, INPUT_BYTES_MAX, Output};
use super::files;
use super::frames::{Answer, Frames, Request, Work, frame};
use crate::launch::LINGER;

/// Plays the deputy on its standard input and output.
pub(crate) fn serve() -> io::Result<()> {
    // What it runs is the same user, and is not to speak in its place.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        answer_all(Receiver::from_owned_fd(stdin)?, Sender::from_owned_fd(stdout)?).await
    })
}

async fn answer_all(
    requests: impl AsyncRead + Unpin,
    mut answers: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut requests = Frames::new(requests, INPUT_BYTES_MAX);
    let mut under_way = FuturesUnordered::new();
    let mut handles = HashMap::<u64, AbortHandle>::new();
    loop {
        tokio::select! {
            request = requests.next() => match request? {
                None => break,
                Some((Request::GiveUp { id }, _)) => {
                    if let Some(handle) = handles.remove(&id) {
                        handle.abort();
                    }
                }
                Some((Request::Do { id, work }, input)) => {
                    let (run, handle) = abortable(perform(*work, input.into()));
                    handles.insert(id, handle);
                    under_way.push(async move { (id, run.await) });
                }
            },
            Some((id, ended)) = under_way.next(), if !under_way.is_empty() => {
                handles.remove(&id);
                if let Ok(ended) = ended
                    && answers.write_all(&answer(id, ended)?).await.is_err()
                {
                    // The hub is gone. Others are not done for that.
                    break;
                }
            }
        }
    }
    // The hub may have died. What is half done could be in everybody's way.
    let _ = timeout(LINGER, async { while under_way.next().await.is_some() {} }).await;
    Ok(())
}

async fn perform(work: Work, input: Vec<u8>) -> io::Result<Output> {
    match work {
        Work::Command(command) => command::run(command::Command { input, ..command }).await,
        Work::File(task) => {
            let stdout = files::perform(&task)?;
            Ok(Output { how: How::Code(0), stdout, stderr: Vec::new() })
        }
    }
}

fn answer(id: u64, ended: io::Result<Output>) -> io::Result<Vec<u8>> {
    match ended {
        Ok(Output { how, stdout, stderr }) => {
            frame(&Answer { id, ended: Ok((how, stdout.len())) }, [&stdout, &stderr])
        }
        Err(error) => frame(&Answer { id, ended: Err(error.to_string()) }, [&[], &[]]),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::super::command::Command;
    use super::*;

    /// What a hub that has died leaves: nobody reads.
    struct Broken;

    impl AsyncWrite for Broken {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A git that is killed in the middle leaves its locks.
    #[tokio::test]
    async fn commands_finish_although_the_answer_to_another_reaches_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let run = |id, script: &str| {
            let command = Command::new("sh", directory.path()).args(["-c", script]);
            frame(&Request::Do { id, work: Box::new(Work::Command(command)) }, [&[], &[]]).unwrap()
        };
        let (mut hub, requests) = tokio::io::duplex(64 * 1024);
        let quick = "while ! test -e begun; do sleep 0.01; done";
        hub.write_all(&run(1, "touch begun; sleep 0.2; touch done")).await.unwrap();
        hub.write_all(&run(2, quick)).await.unwrap();
        answer_all(requests, Broken).await.unwrap();
        assert!(directory.path().join("done").exists());
    }
}
