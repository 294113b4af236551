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

use super::command::{self, INPUT_BYTES_MAX, Output};
use super::frames::{Answer, Frames, Request, frame};
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
                Some((Request::Run { id, mut command }, input)) => {
                    command.input = input.into();
                    let (run, handle) = abortable(command::run(*command));
                    handles.insert(id, handle);
                    under_way.push(async move { (id, run.await) });
                }
            },
            Some((id, ended)) = under_way.next(), if !under_way.is_empty() => {
                handles.remove(&id);
                if let Ok(ended) = ended {
                    answers.write_all(&answer(id, ended)?).await?;
                }
            }
        }
    }
    // The hub may have died. What is half done could be in everybody's way.
    let _ = timeout(LINGER, async { while under_way.next().await.is_some() {} }).await;
    Ok(())
}

fn answer(id: u64, ended: io::Result<Output>) -> io::Result<Vec<u8>> {
    match ended {
        Ok(Output { how, stdout, stderr }) => {
            frame(&Answer { id, ended: Ok((how, stdout.len())) }, [&stdout, &stderr])
        }
        Err(error) => frame(&Answer { id, ended: Err(error.to_string()) }, [&[], &[]]),
    }
}
