//! The requests a run sends, built once. What differs from one job to the next, the
//! queue's number, the time and the connection, is written over a few bytes of a copy.
//!
//! The bytes of a request are never computed while the load runs: at depth 16 a request
//! costs this tool one copy and one number.

use super::options::{AckCommand, BenchmarkOptions};
use super::peer::{BenchmarkPeer, HeldJob, STAMP_LEN};

/// What is written into a copy of a [`Template`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// Number of the queue; used when there are several.
    pub queue: u32,
    /// Goes into the body; used when it is long enough.
    pub stamp: u64,
    /// Number of the connection; Redis streams name their consumers.
    pub client: u32,
}

/// A request with its variable bytes marked.
#[derive(Clone, Debug, Default)]
pub struct Template {
    bytes: Vec<u8>,
    queue_at: Option<Span>,
    stamp_at: Option<usize>,
    client_at: Option<Span>,
}

/// Digits of fixed width inside a template.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: usize,
    digits: usize,
}

/// A word of a RESP request.
#[derive(Clone, Copy)]
enum Word<'a> {
    Text(&'a str),
    Queue,
    Body,
    Client,
}

/// Digits of a connection's number.
const CLIENT_DIGITS: usize = 6;
/// The group of a Redis stream, and the list of jobs being processed.
const GROUP: &str = "workers";
const PROCESSING: &str = "processing";

/// All requests of one run.
#[derive(Debug)]
pub struct Requests {
    pub add: Template,
    pub fetch: Template,
    pub fetch_or_wait: Template,
    /// GETJOB on a queue that stays empty, with a timeout.
    pub wait: Template,
    ack: Ack,
    /// Sent once on each connection before the load, with the number of its replies.
    pub hello: (Vec<u8>, usize),
}

/// How fetched jobs are acknowledged.
#[derive(Debug)]
enum Ack {
    /// Fetching was enough.
    Nothing,
    /// ACKJOB and FASTACK with so many IDs, by number of IDs.
    Ids { ackjob: Vec<Vec<u8>>, fastack: Vec<Vec<u8>> },
    /// XACK and XDEL with so many IDs, by number of IDs.
    Entries { xack: Vec<Vec<u8>>, xdel: Vec<Vec<u8>> },
    /// LREM of one body.
    Remove(Template),
    /// `delete` of one ID.
    Delete,
}

/// The replies that an acknowledgement brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckReplies {
    /// Replies that count jobs.
    pub counted: u32,
    /// Replies behind them that do not.
    pub aside: u32,
}

impl Template {
    /// Appends the request with these marks to `out`.
    pub fn write(&self, marks: &Marks, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let copy = &mut out[start..];
        if let Some(at) = self.stamp_at {
            write_hex(&mut copy[at..at + STAMP_LEN], marks.stamp);
        }
        for (span, number) in [(self.queue_at, marks.queue), (self.client_at, marks.client)] {
            if let Some(Span { at, digits }) = span {
                write_decimal(&mut copy[at..at + digits], number);
            }
        }
    }

    fn resp(words: &[Word<'_>], options: &BenchmarkOptions) -> Self {
        let mut template = Self::default();
        template.bytes.extend(format!("*{}\r\n", words.len()).bytes());
        let queue_digits = digits_of_queues(options);
        for word in words {
            let len = match word {
                Word::Text(text) => text.len(),
                Word::Queue => options.queue.len() + queue_digits,
                Word::Body => options.body_len,
                Word::Client => CLIENT_DIGITS,
            };
            template.bytes.extend(format!("${len}\r\n").bytes());
            match word {
                Word::Text(text) => template.bytes.extend(text.bytes()),
                Word::Queue => {
                    template.bytes.extend(options.queue.bytes());
                    if queue_digits > 0 {
                        template.queue_at = Some(template.digits(queue_digits));
                    }
                }
                Word::Body => template.body(options),
                Word::Client => template.client_at = Some(template.digits(CLIENT_DIGITS)),
            }
            template.bytes.extend(b"\r\n");
        }
        template
    }

    fn text(text: &str) -> Self {
        Self { bytes: text.into(), ..Self::default() }
    }

    fn digits(&mut self, digits: usize) -> Span {
        let at = self.bytes.len();
        self.bytes.resize(at + digits, b'0');
        Span { at, digits }
    }

    fn body(&mut self, options: &BenchmarkOptions) {
        let mut letters = (b'a'..=b'z').cycle().step_by(7);
        if options.body_len >= STAMP_LEN {
            self.stamp_at = Some(self.digits(STAMP_LEN).at);
        }
        let filled = if options.body_len >= STAMP_LEN { STAMP_LEN } else { 0 };
        self.bytes.extend(letters.by_ref().take(options.body_len - filled));
    }
}

impl Requests {
    /// Builds what these options need.
    pub fn new(options: &BenchmarkOptions) -> Self {
        let count = options.count.to_string();
        let resp = |words: &[Word<'_>]| Template::resp(words, options);
        let ping = (b"*1\r\n$4\r\nPING\r\n".to_vec(), 1);
        let by_count =
            |lead: &[&str]| (0..=options.count).map(|ids| lead_in(lead, ids)).collect::<Vec<_>>();
        use Word::{Body, Client, Queue, Text};
        let queue = options.queue.as_str();
        match options.peer {
            BenchmarkPeer::Disque => {
                let timeout = options.add_timeout_ms.to_string();
                let mut add = vec![Text("ADDJOB"), Queue, Body, Text(&timeout)];
                add.extend(options.add_words.iter().map(|word| Text(word)));
                let count = [Text("COUNT"), Text(&count), Text("FROM"), Queue];
                let get = |lead: &[&'static str]| {
                    let words = lead.iter().map(|word| Text(word));
                    resp(&words.chain(count).collect::<Vec<_>>())
                };
                let wait_ms = options.wait_timeout_ms.to_string();
                let empty = format!("{queue}-empty");
                let wait = ["GETJOB", "TIMEOUT", wait_ms.as_str(), "FROM", empty.as_str()];
                Self {
                    add: resp(&add),
                    fetch: get(&["GETJOB", "NOHANG"]),
                    fetch_or_wait: get(&["GETJOB"]),
                    wait: resp(&wait.map(Text)),
                    ack: Ack::Ids {
                        ackjob: by_count(&["ACKJOB"]),
                        fastack: by_count(&["FASTACK"]),
                    },
                    hello: ping,
                }
            }
            BenchmarkPeer::List => Self {
                add: resp(&[Text("LPUSH"), Queue, Body]),
                fetch: if options.count > 1 {
                    resp(&[Text("RPOP"), Queue, Text(&count)])
                } else {
                    resp(&[Text("RPOP"), Queue])
                },
                fetch_or_wait: resp(&[Text("BRPOP"), Queue, Text("0")]),
                wait: Template::default(),
                ack: Ack::Nothing,
                hello: ping,
            },
            BenchmarkPeer::Reliable => {
                let ends = [Queue, Text(PROCESSING), Text("RIGHT"), Text("LEFT")];
                let moving = |name: &'static str, timeout: Option<&'static str>| {
                    let words = std::iter::once(Text(name)).chain(ends);
                    resp(&words.chain(timeout.map(Text)).collect::<Vec<_>>())
                };
                Self {
                    add: resp(&[Text("LPUSH"), Queue, Body]),
                    fetch: moving("LMOVE", None),
                    fetch_or_wait: moving("BLMOVE", Some("0")),
                    wait: Template::default(),
                    ack: Ack::Remove(resp(&[Text("LREM"), Text(PROCESSING), Text("-1"), Body])),
                    hello: ping,
                }
            }
            BenchmarkPeer::Stream => {
                let read = |block: &[&'static str]| {
                    let lead = [Text("XREADGROUP"), Text("GROUP"), Text(GROUP), Client];
                    let count = [Text("COUNT"), Text(&count)];
                    let words = lead.into_iter().chain(count);
                    let words = words.chain(block.iter().map(|word| Text(word)));
                    resp(&words.chain([Text("STREAMS"), Queue, Text(">")]).collect::<Vec<_>>())
                };
                let create = ["XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM"];
                Self {
                    add: resp(&[Text("XADD"), Queue, Text("*"), Text("b"), Body]),
                    fetch: read(&[]),
                    fetch_or_wait: read(&["BLOCK", "0"]),
                    wait: Template::default(),
                    ack: Ack::Entries {
                        xack: by_count(&["XACK", queue, GROUP]),
                        xdel: by_count(&["XDEL", queue]),
                    },
                    hello: (resp(&create.map(Text)).bytes, 1),
                }
            }
            BenchmarkPeer::Beanstalkd => {
                let mut add = Template::text(&format!("put 1024 0 300 {}\r\n", options.body_len));
                add.body(options);
                add.bytes.extend(b"\r\n");
                Self {
                    add,
                    fetch: Template::text("reserve-with-timeout 0\r\n"),
                    fetch_or_wait: Template::text("reserve\r\n"),
                    wait: Template::default(),
                    ack: Ack::Delete,
                    hello: (format!("use {queue}\r\nwatch {queue}\r\n").into_bytes(), 2),
                }
            }
        }
    }

    /// Appends one acknowledgement of `jobs`, at most COUNT of them, to `out`.
    pub fn acknowledge(
        &self,
        command: AckCommand,
        jobs: &[HeldJob],
        out: &mut Vec<u8>,
    ) -> AckReplies {
        let each = u32::try_from(jobs.len()).expect("an acknowledgement has COUNT jobs at most");
        match &self.ack {
            Ack::Nothing => AckReplies { counted: 0, aside: 0 },
            Ack::Ids { ackjob, fastack } => {
                let lead = match command {
                    AckCommand::AckJob => ackjob,
                    AckCommand::FastAck => fastack,
                };
                write_ids(&lead[jobs.len()], jobs, out);
                AckReplies { counted: 1, aside: 0 }
            }
            Ack::Entries { xack, xdel } => {
                write_ids(&xack[jobs.len()], jobs, out);
                write_ids(&xdel[jobs.len()], jobs, out);
                AckReplies { counted: 1, aside: 1 }
            }
            Ack::Remove(template) => {
                for job in jobs {
                    let stamp = job.stamp.unwrap_or_default();
                    template.write(&Marks { stamp, ..Marks::default() }, out);
                }
                AckReplies { counted: each, aside: 0 }
            }
            Ack::Delete => {
                for job in jobs {
                    out.extend_from_slice(b"delete ");
                    out.extend_from_slice(job.id());
                    out.extend_from_slice(b"\r\n");
                }
                AckReplies { counted: each, aside: 0 }
            }
        }
    }
}

/// How many digits name a queue; none when there is one queue only.
fn digits_of_queues(options: &BenchmarkOptions) -> usize {
    if options.queues > 1 { (options.queues - 1).to_string().len() } else { 0 }
}

/// The start of a request that `ids` further words follow.
fn lead_in(words: &[&str], ids: usize) -> Vec<u8> {
    let mut lead = format!("*{}\r\n", words.len() + ids).into_bytes();
    for word in words {
        lead.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    lead
}

/// IDs of all peers have two digits' worth of bytes: a Disque ID 40, a stream's 15 and more.
fn write_ids(lead: &[u8], jobs: &[HeldJob], out: &mut Vec<u8>) {
    out.extend_from_slice(lead);
    for job in jobs {
        let mut len = *b"$00\r\n";
        let digits = u32::try_from(job.id().len()).expect("an ID has at most 47 bytes");
        write_decimal(&mut len[1..3], digits);
        out.extend_from_slice(&len);
        out.extend_from_slice(job.id());
        out.extend_from_slice(b"\r\n");
    }
}

fn write_decimal(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn write_hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::{self, BenchmarkRequest};
    use super::super::peer::ReplyKind;
    use super::*;

    fn requests(line: &str) -> Requests {
        let args = std::iter::once("disque-benchmark").chain(line.split_whitespace());
        match options::parse(args.map(Into::into)) {
            Ok(BenchmarkRequest::Run(options)) => Requests::new(&options),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn written(template: &Template, marks: Marks) -> String {
        let mut out = Vec::new();
        template.write(&marks, &mut out);
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn addjob_carries_the_queue_the_stamp_and_the_words() {
        let requests = requests("-d 18 --queues 200 --replicate 3 --async --timeout 50");
        let marks = Marks { queue: 7, stamp: 0x2a, client: 0 };
        assert_eq!(
            written(&requests.add, marks),
            "*7 $6 ADDJOB $4 q007 $18 000000000000002aah $2 50 $9 REPLICATE $1 3 $5 ASYNC "
        );
    }

    #[test]
    fn a_body_without_room_for_a_stamp_is_plain() {
        let requests = requests("-d 3");
        let marks = Marks { stamp: 5, ..Marks::default() };
        assert_eq!(written(&requests.add, marks), "*4 $6 ADDJOB $1 q $3 aho $1 0 ");
    }

    #[test]
    fn a_stream_reads_under_the_name_of_its_connection() {
        let requests = requests("--peer stream --count 10");
        assert_eq!(
            written(&requests.fetch, Marks { client: 12, ..Marks::default() }),
            "*9 $10 XREADGROUP $5 GROUP $7 workers $6 000012 $5 COUNT $2 10 $7 STREAMS $1 q $1 > "
        );
    }

    #[test]
    fn acknowledgements_carry_the_ids_that_were_fetched() {
        let reply = b"*2\r\n*3\r\n$1\r\nq\r\n$3\r\nD-1\r\n$1\r\nb\r\n*3\r\n$1\r\nq\r\n$3\r\nD-2\r\n$1\r\nb\r\n";
        let mut held = Vec::new();
        BenchmarkPeer::Disque.read_reply(ReplyKind::Fetch, reply, &mut held).unwrap();
        let mut out = Vec::new();
        let replies = requests("--count 2").acknowledge(AckCommand::FastAck, &held, &mut out);
        assert_eq!(out, b"*3\r\n$7\r\nFASTACK\r\n$03\r\nD-1\r\n$03\r\nD-2\r\n");
        assert_eq!(replies, AckReplies { counted: 1, aside: 0 });
    }

    #[test]
    fn a_reliable_list_removes_the_very_body_it_fetched() {
        let requests = requests("--peer reliable -d 20");
        let marks = Marks { stamp: 0xfeed, ..Marks::default() };
        let body = "000000000000feedahov";
        assert!(written(&requests.add, marks).contains(body));
        let mut held = Vec::new();
        let reply = format!("$20\r\n{body}\r\n");
        BenchmarkPeer::Reliable.read_reply(ReplyKind::Fetch, reply.as_bytes(), &mut held).unwrap();
        let mut out = Vec::new();
        requests.acknowledge(AckCommand::AckJob, &held, &mut out);
        assert!(String::from_utf8(out).unwrap().ends_with(&format!("$20\r\n{body}\r\n")));
    }
}
