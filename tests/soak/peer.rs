//! A connection of the soak: it can be left waiting, and looked at without waiting.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd as _;

use disque::proto::reply_reader::{ReplyReader, Value};

use crate::support::{PATIENCE, TestServer, integer, request};

pub struct Peer {
    stream: TcpStream,
    replies: ReplyReader,
    /// What CLIENT ID answered.
    pub number: i64,
    pub manner: Manner,
}

/// What a connection is at.
pub enum Manner {
    Idle,
    /// It waits in GETJOB for jobs of these queues; without a timeout that is 0.
    Waiting {
        queues: Vec<String>,
        timeout_ms: u32,
    },
    /// It has asked for more than it will ever read.
    Deaf,
}

/// The ways a connection can end.
pub enum Farewell {
    Close,
    Reset,
    HalfRequest,
}

impl Peer {
    pub fn connect(server: &TestServer) -> Self {
        let stream = server.connect();
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let replies = ReplyReader::default();
        let mut peer = Self { stream, replies, number: 0, manner: Manner::Idle };
        peer.number = integer(peer.call("CLIENT ID"));
        peer
    }

    pub fn address(&self) -> String {
        self.stream.local_addr().expect("it is connected").to_string()
    }

    pub fn send(&mut self, words: &str) {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        self.stream.write_all(&request(&words)).expect("the server reads");
    }

    pub fn call(&mut self, words: &str) -> Value {
        self.send(words);
        self.reply().expect("the connection is open")
    }

    /// Waits for the next reply; `None` when the server has closed the connection.
    pub fn reply(&mut self) -> Option<Value> {
        loop {
            if let Some(value) = self.replies.next_value().expect("well-formed replies") {
                return Some(value);
            }
            if !self.read().expect("a reply in time") {
                return None;
            }
        }
    }

    /// The next reply, if it is there.
    pub fn reply_if_there(&mut self) -> Option<Value> {
        self.stream.set_nonblocking(true).expect("a socket");
        let read = self.read();
        self.stream.set_nonblocking(false).expect("a socket");
        match read {
            Ok(is_open) => assert!(is_open, "nobody closes who waits"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        self.replies.next_value().expect("well-formed replies")
    }

    /// Reads what there is; tells whether the connection is open.
    fn read(&mut self) -> std::io::Result<bool> {
        let mut bytes = [0; 16_384];
        match self.stream.read(&mut bytes) {
            Ok(len) => {
                self.replies.feed(&bytes[..len]);
                Ok(len > 0)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends as much of a request, many times over, as the sockets between take.
    pub fn stuff(&mut self, words: &[&[u8]], times: usize) {
        self.stream.set_nonblocking(true).expect("a socket");
        // How much is taken, and whether in whole requests, is all the same to a deaf one.
        let _sent = self.stream.write(&request(words).repeat(times));
        self.stream.set_nonblocking(false).expect("a socket");
        self.manner = Manner::Deaf;
    }

    pub fn leave(mut self, farewell: &Farewell) {
        match farewell {
            // A deaf one's goodbye may be in vain.
            Farewell::Close => drop(self.stream.shutdown(Shutdown::Write)),
            Farewell::Reset => self.reset_on_close(),
            Farewell::HalfRequest => {
                self.stream.set_nonblocking(true).expect("a socket");
                let _sent = self.stream.write(b"*2\r\n$4\r\nPING\r\n$536870912\r\nthe rest is");
            }
        }
    }

    fn reset_on_close(&self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: setsockopt reads one linger of the size it is told.
        let set = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                libc::socklen_t::try_from(size_of_val(&linger)).expect("a few bytes"),
            )
        };
        assert_eq!(set, 0);
    }
}
