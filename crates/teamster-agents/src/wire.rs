//! What the hub and its launcher say to each other, over a socket that is the launcher's standard input.
//!
//! The hub hands over the agent's standard input and output, sends one line with the [`Order`], and then a line for each
//! [`Request`]. When its side ends, on purpose or because it died, everything is to be killed. The launcher answers with
//! lines of [`Report`], the last of which is `Gone`.

use std::ffi::OsString;
use std::io::{self, BufRead, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::isolation::Failure;
use crate::launch::{Mask, PrivateFile};

/// An order holds a program's arguments and environment, which the kernel limits to some megabytes together.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What to start. It goes over the socket because everyone on the machine can read arguments.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) directory: OsString,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) masked: Vec<Mask>,
    pub(crate) read_only: Vec<OsString>,
    /// A directory of its own, and what is written there.
    pub(crate) private: Option<(OsString, Vec<PrivateFile>)>,
    /// So many bytes of memory it may take, where it has a control group.
    pub(crate) memory_max: Option<u64>,
    /// Whether its stderr goes where its output goes.
    pub(crate) joins_stderr: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    TerminateProgram,
    TerminateGroup,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    Started,
    NotStarted(Failure),
    /// The program ended; its descendants are being ended.
    Ended(Status),
    /// Nothing is left, but for so many processes that we may not kill.
    Gone {
        n_left: usize,
    },
}

/// How a program ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Code(i32),
    Signal(i32),
}

/// The agent's standard input and output, on their way to it.
pub(crate) struct Handed {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
}

/// Open files travel beside a byte; it means nothing else.
const CARRIER: u8 = b'>';

pub(crate) fn hand_over(
    socket: &UnixStream,
    stdin: BorrowedFd<'_>,
    stdout: BorrowedFd<'_>,
) -> io::Result<()> {
    let files = [stdin, stdout];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    attached.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(&[CARRIER])], &mut attached, SendFlags::empty())?;
    Ok(())
}

pub(crate) fn take_over(socket: &UnixStream) -> io::Result<Handed> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = [0];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(socket, &mut [IoSliceMut::new(&mut carrier)], &mut attached, flags)?;
    let mut files = Vec::new();
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(attached) = message {
            files.extend(attached);
        }
    }
    #[cfg(not(target_os = "linux"))]
    for file in &files {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)?;
    }
    let [stdin, stdout] = <[OwnedFd; 2]>::try_from(files)
        .map_err(|_| io::Error::other("the agent's standard input and output did not arrive"))?;
    Ok(Handed { stdin, stdout })
}

/// Returns what is sent for one message.
pub(crate) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

pub(crate) fn say(mut socket: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    socket.write_all(&line(message)?)
}

/// Returns the next message, or nothing if the other side has ended.
pub(crate) fn hear<T: for<'de> Deserialize<'de>>(
    socket: &mut impl BufRead,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    socket.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}
