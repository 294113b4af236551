//! What the hub and its deputy say to each other: frames of two lengths, a header in JSON, and bytes.

use std::io::{self, ErrorKind};

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::command::{Command, How};
use super::files::FileTask;

/// Arguments and environment, which the kernel limits to some megabytes together; JSON writes bytes as numbers.
const HEADER_BYTES_MAX: usize = 16 * 1024 * 1024;
const LENGTHS_BYTES: usize = 8;
/// So much is read at a time.
const READ_BYTES: usize = 64 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// What a command can read follows.
    Do { id: u64, work: Box<Work> },
    /// Nobody waits for it any more.
    GiveUp { id: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    Command(Command),
    File(FileTask),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: u64,
    /// How it ended, and how many of the bytes that follow are its stdout, the rest being its stderr; or why it could not be
    /// started.
    pub(super) ended: Result<(How, usize), String>,
}

/// Returns what is sent for one message and its bytes.
pub(super) fn frame(header: &impl Serialize, parts: [&[u8]; 2]) -> io::Result<Vec<u8>> {
    let header = serde_json::to_vec(header)?;
    let n_bytes: usize = parts.iter().map(|part| part.len()).sum();
    let too_long = |_| io::Error::new(ErrorKind::InvalidInput, "it is too long for a command");
    if header.len() > HEADER_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is too long for a command"));
    }
    let mut frame = Vec::with_capacity(LENGTHS_BYTES + header.len() + n_bytes);
    for length in [header.len(), n_bytes] {
        frame.extend(u32::try_from(length).map_err(too_long)?.to_be_bytes());
    }
    for part in [&header, parts[0], parts[1]] {
        frame.extend_from_slice(part);
    }
    Ok(frame)
}

/// The frames that the other side sends.
pub(super) struct Frames<R> {
    reader: R,
    buffer: BytesMut,
    /// More bytes than that after a header are a mistake.
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader, buffer: BytesMut::new(), bytes_max }
    }

    /// Returns the next message, or nothing at the end. It may be given up at any time; nothing is lost then.
    pub(super) async fn next<H: for<'de> Deserialize<'de>>(
        &mut self,
    ) -> io::Result<Option<(H, Bytes)>> {
        loop {
            if let Some((n_header, n_bytes)) = self.lengths()? {
                let n_all = LENGTHS_BYTES + n_header + n_bytes;
                if self.buffer.len() >= n_all {
                    let mut frame = self.buffer.split_to(n_all).freeze();
                    frame.advance(LENGTHS_BYTES);
                    let header = frame.split_to(n_header);
                    return Ok(Some((serde_json::from_slice(&header)?, frame)));
                }
            }
            self.buffer.reserve(READ_BYTES);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn lengths(&self) -> io::Result<Option<(usize, usize)>> {
        let length = |at: usize| {
            let bytes = self.buffer.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?) as usize)
        };
        match (length(0), length(4)) {
            (Some(n_header), Some(n_bytes)) => {
                if n_header > HEADER_BYTES_MAX || n_bytes > self.bytes_max {
                    return Err(io::Error::new(ErrorKind::InvalidData, "a frame is too long"));
                }
                Ok(Some((n_header, n_bytes)))
            }
            _ => Ok(None),
        }
    }
}
