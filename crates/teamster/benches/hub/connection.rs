//! A connection that sends prepared bytes and reads whole answers: of HTTP/1.1 no more than the bench needs, since
//! whoever makes the load shares the machine with whoever bears it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    body: Vec<u8>,
}

/// What a request was answered with.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) head: &'a str,
    pub(crate) body: &'a str,
}

impl Answer<'_> {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        stream.set_nodelay(true).expect("TCP_NODELAY can be set");
        Self { stream, received: Vec::with_capacity(64 * 1024), body: Vec::new() }
    }

    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Answer<'_> {
        let Self { stream, received, body } = self;
        stream.write_all(request).await.expect("the server takes requests");
        received.clear();
        body.clear();
        let head_bytes = loop {
            if let Some(at) = position(received, b"\r\n\r\n") {
                break at + 4;
            }
            read_more(stream, received).await;
        };
        let head = std::str::from_utf8(&received[..head_bytes]).expect("the head is text");
        let status = head.get(9..12).and_then(|code| code.parse().ok()).expect("a status");
        let length = header(head, "content-length").map(|length| length.parse().expect("a length"));
        match length {
            Some(length) => {
                let length: usize = length;
                while received.len() < head_bytes + length {
                    read_more(stream, received).await;
                }
                body.extend_from_slice(&received[head_bytes..head_bytes + length]);
            }
            None => {
                while !whole_of_chunks(&received[head_bytes..], body) {
                    read_more(stream, received).await;
                }
            }
        }
        let head = std::str::from_utf8(&received[..head_bytes]).expect("the head is text");
        Answer { status, head, body: std::str::from_utf8(body).expect("the body is text") }
    }
}

async fn read_more(stream: &mut TcpStream, received: &mut Vec<u8>) {
    let n_read = stream.read_buf(received).await.expect("the server answers");
    assert!(n_read > 0, "the server closed the connection: {}", String::from_utf8_lossy(received));
}

/// Puts the chunks of a body together, if the last one is there.
fn whole_of_chunks(mut chunks: &[u8], body: &mut Vec<u8>) -> bool {
    body.clear();
    loop {
        let Some(line) = position(chunks, b"\r\n") else { return false };
        let size = std::str::from_utf8(&chunks[..line]).expect("a chunk's size is text");
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        let Some(data) = chunks.get(line + 2..line + 2 + size + 2) else { return false };
        if size == 0 {
            return true;
        }
        body.extend_from_slice(&data[..size]);
        chunks = &chunks[line + 2 + size + 2..];
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

pub(crate) fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Returns the bytes of a request.
pub(crate) fn request(
    method: &str,
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<u8> {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {length}\r\n\r\n{body}")
        .into_bytes()
}
