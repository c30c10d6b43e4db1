//! A client of the HTTP port that takes nothing for granted: answers are read to the byte.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::support::{PATIENCE, TestServer, eventually, free_port};

/// A server with an HTTP port, and that port.
pub fn server_with_http(options: &[&str]) -> (TestServer, u16) {
    let port = free_port();
    let text = port.to_string();
    let options: Vec<&str> = options.iter().copied().chain(["--http-port", &text]).collect();
    (TestServer::start_with(&options), port)
}

/// A connection to the HTTP port.
pub struct HttpClient {
    stream: TcpStream,
    /// What came and is not read yet.
    input: Vec<u8>,
}

/// An answer, its body in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl HttpReply {
    /// The value of a header; empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.next().map_or("", |(_, value)| value)
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

impl HttpClient {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above 0");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout above 0");
        Self { stream, input: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
        self
    }

    /// Sends a GET with further header lines, each with its line end, and reads the answer.
    #[track_caller]
    pub fn get_with(&mut self, target: &str, headers: &str) -> HttpReply {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"));
        self.reply()
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> HttpReply {
        self.get_with(target, "")
    }

    /// Reads the answer to a GET.
    #[track_caller]
    pub fn reply(&mut self) -> HttpReply {
        let head = self.head();
        let status = head[9..12].parse().expect("a status");
        let mut reply = HttpReply { status, head, body: Vec::new() };
        if reply.header("transfer-encoding") == "chunked" {
            while let Some(chunk) = self.chunk() {
                reply.body.extend(chunk);
            }
        } else if let Ok(len) = reply.header("content-length").parse() {
            reply.body = self.exactly(len);
        } else {
            assert_eq!(reply.header("connection"), "close", "{}", reply.head);
            while self.read_more() {}
            reply.body = std::mem::take(&mut self.input);
        }
        reply
    }

    /// Reads a status line and headers.
    #[track_caller]
    pub fn head(&mut self) -> String {
        loop {
            let end = self.input.windows(4).position(|part| part == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8(self.exactly(end + 4)).expect("text");
                assert!(head.starts_with("HTTP/1.1 "), "{head}");
                return head;
            }
            assert!(self.read_more(), "closed after {:?}", String::from_utf8_lossy(&self.input));
        }
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(self.exactly(1));
        }
        let digits = std::str::from_utf8(&line).expect("text").trim_end();
        let len = usize::from_str_radix(digits, 16).expect("a length");
        let chunk = self.exactly(len);
        assert_eq!(self.exactly(2), b"\r\n");
        (len > 0).then_some(chunk)
    }

    fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.input.len() < len {
            assert!(self.read_more(), "closed in the middle of an answer");
        }
        let rest = self.input.split_off(len);
        std::mem::replace(&mut self.input, rest)
    }

    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 65_536];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(len) => {
                self.input.extend_from_slice(&bytes[..len]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Tells that the server closes the connection, and sends nothing before.
    pub fn is_closed(&mut self) -> bool {
        self.input.is_empty() && !self.read_more()
    }
}

/// Asks on a connection of its own.
#[track_caller]
pub fn get(port: u16, target: &str) -> HttpReply {
    HttpClient::connect(port).get(target)
}

/// Waits until the answers of the port say what they have to.
#[track_caller]
pub fn until(is_so: impl FnMut() -> bool) {
    eventually(is_so, |is_so| *is_so);
}

/// The value of a sample, given with its labels.
#[track_caller]
pub fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("{name} is not in\n{metrics:.3000}"));
    line.parse().expect("a number")
}
