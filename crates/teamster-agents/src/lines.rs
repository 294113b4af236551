//! An agent's output in lines, pulled by whoever reads them: what is not read yet stays in the pipe, and a reader that
//! is slow slows the agent and nobody else.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::dialogue::{Said, Source};

/// So much is read at a time.
const READ_BYTES: usize = 16 * 1024;

/// What an agent wrote up to a newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A whole line, without its newline.
    Whole(Bytes),
    /// A line longer than the limit. All of it is thrown away, also what is still to come.
    TooLong,
    /// What came after the last newline when the output ended: the agent was cut off in the middle.
    Unfinished(Bytes),
}

/// The lines of an output.
#[derive(Debug)]
pub struct Lines<R> {
    output: R,
    line_bytes_max: usize,
    /// What has been read and not returned; no more than a line and what is read at a time.
    buffer: BytesMut,
    /// So much of the buffer has no newline.
    n_searched: usize,
    /// The rest of a line that was too long is being thrown away.
    discarding: bool,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(output: R, line_bytes_max: usize) -> Self {
        Self {
            output,
            line_bytes_max,
            buffer: BytesMut::new(),
            n_searched: 0,
            discarding: false,
            ended: false,
        }
    }

    /// Returns the output itself, for whoever does not read it in lines. What was read of it before is lost.
    pub fn into_output(self) -> R {
        self.output
    }

    /// Returns the next line, or nothing at the end. It may be given up at any time; nothing is lost then.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        // A buffer full of short lines would keep the others of this thread waiting.
        tokio::task::consume_budget().await;
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.ended {
                let rest = std::mem::take(&mut self.buffer).freeze();
                let cut_off = !rest.is_empty() && !self.discarding;
                return Ok(cut_off.then_some(Line::Unfinished(rest)));
            }
            self.buffer.reserve(READ_BYTES);
            self.ended = self.output.read_buf(&mut self.buffer).await? == 0;
        }
    }

    /// Takes what is decided already off the buffer.
    fn take_line(&mut self) -> Option<Line> {
        loop {
            let unsearched = self.buffer.get(self.n_searched..).unwrap_or_default();
            let Some(newline) = memchr::memchr(b'\n', unsearched) else {
                self.n_searched = self.buffer.len();
                if self.discarding || self.n_searched > self.line_bytes_max {
                    // A buffer that has grown for nothing is given back.
                    self.buffer = BytesMut::new();
                    self.n_searched = 0;
                    return (!std::mem::replace(&mut self.discarding, true))
                        .then_some(Line::TooLong);
                }
                return None;
            };
            let mut line = self.buffer.split_to(self.n_searched + newline + 1);
            self.n_searched = 0;
            if std::mem::take(&mut self.discarding) {
                continue;
            }
            line.truncate(line.len() - 1);
            let too_long = line.len() > self.line_bytes_max;
            return Some(if too_long { Line::TooLong } else { Line::Whole(line.freeze()) });
        }
    }
}

impl<R: AsyncRead + Unpin + Send> Source for Lines<R> {
    async fn next(&mut self) -> io::Result<Option<Said>> {
        Ok(Self::next(self).await?.map(|line| match line {
            Line::Whole(line) => Said::Line(line),
            Line::TooLong => Said::TooLong,
            Line::Unfinished(rest) => Said::CutOff(rest),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 5;

    /// Reads `output` in pieces of every size, which must make no difference.
    fn check(output: &str, expected: &[Line]) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for piece in 1..=output.len().max(1) {
            let (mut writer, reader) = tokio::io::duplex(piece);
            let mut lines = Lines::new(reader, LIMIT);
            let written = output.to_owned();
            let found = runtime.block_on(async {
                let write = async move {
                    tokio::io::AsyncWriteExt::write_all(&mut writer, written.as_bytes()).await
                };
                let read = async {
                    let mut found = Vec::new();
                    while let Some(line) = lines.next().await.unwrap() {
                        found.push(line);
                    }
                    found
                };
                tokio::join!(write, read).1
            });
            assert_eq!(found, expected, "in pieces of {piece}");
        }
    }

    fn whole(line: &'static str) -> Line {
        Line::Whole(Bytes::from_static(line.as_bytes()))
    }

    #[test]
    fn lines_come_whole_and_empty_ones_too() {
        check("one\n\ntwo\r\n", &[whole("one"), whole(""), whole("two\r")]);
        check("", &[]);
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit() {
        check("12345\n", &[whole("12345")]);
    }

    #[test]
    fn of_a_line_that_is_too_long_nothing_is_left_and_the_next_is_whole() {
        check("123456\nnext\n", &[Line::TooLong, whole("next")]);
        check("1234567890123\n\nnext\n", &[Line::TooLong, whole(""), whole("next")]);
        check("1234567890123", &[Line::TooLong]);
    }

    #[test]
    fn what_was_cut_off_is_told_apart() {
        check("one\ntw", &[whole("one"), Line::Unfinished(Bytes::from_static(b"tw"))]);
    }
}
