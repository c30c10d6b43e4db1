//! A server that says what the test wants: canned replies, in order. It hangs up on the first
//! request it has no reply for.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use disque::proto::reply_reader::{ReplyReader, Value};

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

fn answer(mut stream: TcpStream, answers: Vec<Answer>, requests: &Sender<Words>) {
    let mut reader = ReplyReader::default();
    let mut answers = answers.into_iter().peekable();
    let mut buffer = [0; 4096];
    while !matches!(answers.peek(), Some(Answer::HangUp)) {
        if let Some(request) = reader.next_value().expect("a well-formed request") {
            // A test that has ended takes no more requests.
            let _ = requests.send(words(&request));
            let reply = match answers.next() {
                Some(Answer::Say(reply)) => reply,
                Some(Answer::SayAfter(pause, reply)) => {
                    std::thread::sleep(pause);
                    reply
                }
                Some(Answer::HangUp) | None => return,
            };
            if stream.write_all(&reply).is_err() {
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
