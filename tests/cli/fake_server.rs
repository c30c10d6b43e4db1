//! Servers that say what the test wants: canned replies, in order, or a reply to each request
//! by a rule. The former hang up on the first request they have no reply for.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use disque::proto::reply_reader::{ReplyReader, Value};

use crate::support::program::PATIENCE;

/// What the fake server does on one request.
#[derive(Clone)]
pub enum Answer {
    Say(Vec<u8>),
    /// Thinks first.
    SayAfter(Duration, Vec<u8>),
    /// Hangs up without waiting for one.
    HangUp,
}

/// One request, as words.
pub type Words = Vec<String>;

pub struct FakeServer {
    pub port: u16,
    requests: Receiver<Words>,
}

impl FakeServer {
    /// Serves one connection after the other, each with its own answers.
    pub fn with_answers(connections: Vec<Vec<Answer>>) -> FakeServer {
        let (sender, requests) = channel();
        let port = listen(move |stream, index| {
            let answers = connections.get(index).cloned().unwrap_or_default();
            answer(stream, answers, &sender);
        });
        FakeServer { port, requests }
    }

    /// Serves one connection with these replies.
    pub fn with_replies(replies: &[&[u8]]) -> FakeServer {
        let answers = replies.iter().map(|reply| Answer::Say(reply.to_vec())).collect();
        FakeServer::with_answers(vec![answers])
    }

    /// Serves any number of connections at the same time, and answers each request by a rule.
    /// Without an answer it hangs up.
    pub fn with_rule(
        rule: impl Fn(&Words) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> FakeServer {
        let (sender, requests) = channel();
        let rule = Arc::new(rule);
        let port = listen(move |stream, _| {
            let (rule, sender) = (Arc::clone(&rule), sender.clone());
            let answer = move |request: &Words| Some((rule(request)?, Then::Listen));
            std::thread::spawn(move || obey(stream, answer, &sender));
        });
        FakeServer { port, requests }
    }

    /// Waits for the next request.
    pub fn wait_for_request(&self) -> Words {
        self.requests.recv_timeout(PATIENCE).expect("a request comes")
    }

    /// Returns all requests that came, once the client is gone.
    pub fn requests(self) -> Vec<Words> {
        self.requests.try_iter().collect()
    }
}

/// Accepts connections for ever, one at a time. Returns the port.
pub fn listen(mut serve: impl FnMut(TcpStream, usize) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            serve(stream.expect("an accepted connection"), index);
        }
    });
    port
}

/// Whether a server goes on after a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Listen,
    HangUp,
}

fn answer(stream: TcpStream, answers: Vec<Answer>, requests: &Sender<Words>) {
    let mut answers = answers.into_iter().peekable();
    if matches!(answers.peek(), Some(Answer::HangUp)) {
        return;
    }
    let next = |_: &Words| {
        let reply = match answers.next()? {
            Answer::Say(reply) => reply,
            Answer::SayAfter(pause, reply) => {
                std::thread::sleep(pause);
                reply
            }
            Answer::HangUp => return None,
        };
        let is_last = matches!(answers.peek(), Some(Answer::HangUp));
        Some((reply, if is_last { Then::HangUp } else { Then::Listen }))
    };
    obey(stream, next, requests);
}

fn obey(
    mut stream: TcpStream,
    mut rule: impl FnMut(&Words) -> Option<(Vec<u8>, Then)>,
    requests: &Sender<Words>,
) {
    let mut reader = ReplyReader::default();
    let mut buffer = [0; 4096];
    loop {
        if let Some(request) = reader.next_value().expect("a well-formed request") {
            let request = words(&request);
            // A test that has ended takes no more requests.
            let _ = requests.send(request.clone());
            let Some((reply, then)) = rule(&request) else { return };
            if stream.write_all(&reply).is_err() || then == Then::HangUp {
                return;
            }
        } else {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(len) => reader.feed(&buffer[..len]),
            }
        }
    }
}

fn words(request: &Value) -> Words {
    let Value::Array(items) = request else { panic!("a request is an array: {request:?}") };
    items
        .iter()
        .map(|item| match item {
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("an argument is a bulk string: {other:?}"),
        })
        .collect()
}

/// Encodes a bulk string.
pub fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// Encodes an array of values that are encoded already.
pub fn array(items: &[Vec<u8>]) -> Vec<u8> {
    [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat()
}
