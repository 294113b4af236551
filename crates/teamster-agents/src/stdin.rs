//! An agent's standard input. Whoever writes waits while the agent does not read; nothing is queued in between.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

type Pipe = Pin<Box<dyn AsyncWrite + Send>>;

/// The writing end of an agent's standard input. It can be closed from elsewhere, which fails a write that waits.
#[derive(Debug)]
pub struct Stdin(Closer);

/// Closes a standard input.
#[derive(Debug, Clone)]
pub(crate) struct Closer(Arc<Mutex<Shared>>);

struct Shared {
    /// Gone once it was closed.
    pipe: Option<Pipe>,
    /// Whoever waits to write, and has to hear that it was closed.
    waiting: Option<Waker>,
}

impl Stdin {
    pub(crate) fn new(pipe: impl AsyncWrite + Send + 'static) -> Self {
        let pipe: Option<Pipe> = Some(Box::pin(pipe));
        Self(Closer(Arc::new(Mutex::new(Shared { pipe, waiting: None }))))
    }

    pub(crate) fn closer(&self) -> Closer {
        self.0.clone()
    }

    fn with_pipe<T>(
        &self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut (dyn AsyncWrite + Send)>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut shared = self.0.lock();
        let Some(pipe) = &mut shared.pipe else {
            let why = "the agent's standard input was closed";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why)));
        };
        let written = write(pipe.as_mut(), context);
        if written.is_pending() {
            shared.waiting = Some(context.waker().clone());
        }
        written
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("is_open", &self.pipe.is_some()).finish_non_exhaustive()
    }
}

impl Closer {
    pub(crate) fn close(&self) {
        let mut shared = self.lock();
        shared.pipe = None;
        if let Some(waiting) = shared.waiting.take() {
            waiting.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with_pipe(context, |pipe, context| pipe.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_pipe(context, |pipe, context| pipe.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn closing_fails_a_write_that_waits() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let writer = tokio::net::unix::pipe::Sender::from_owned_fd(writer.into()).unwrap();
        let mut stdin = Stdin::new(writer);
        let closer = stdin.closer();
        let more_than_a_pipe_holds = vec![0; 10_000_000];
        let write = stdin.write_all(&more_than_a_pipe_holds);
        let (written, ()) = tokio::join!(biased; write, async { closer.close() });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
