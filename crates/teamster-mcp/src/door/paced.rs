//! Reads a connection of lines no faster than its agent may send.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use teamster_core::token::Token;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

use super::http::{PACE_WAIT_MAX, Served};

pub(super) struct Paced<R> {
    read: R,
    served: Arc<Served>,
    token: Arc<Token>,
    /// Until when nothing is read.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<R> Paced<R> {
    pub(super) fn new(read: R, served: Arc<Served>, token: Arc<Token>) -> Self {
        Self { read, served, token, pause: None }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Paced<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.read).poll_read(cx, buffer))?;
        let wait = self.served.pace(&self.token, buffer.filled().len() - before);
        if !wait.is_zero() {
            self.pause = Some(Box::pin(tokio::time::sleep(wait.min(PACE_WAIT_MAX))));
        }
        Poll::Ready(Ok(()))
    }
}
