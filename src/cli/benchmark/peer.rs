//! The job queues that can be driven, and how each one's replies read.
//!
//! All are asked for the same three things: take a job, hand one out, forget one. What
//! a peer is sent stands in `request.rs`; here is what comes back. Reading leaves the
//! jobs of a fetch in the caller's list and counts what an acknowledgement did, so that
//! a run can check that its counts add up.

use super::reply::{Cursor, Stop, parse_number};

/// Bytes at the start of a body that say when the job was due: hexadecimal digits.
pub const STAMP_LEN: usize = 16;

/// Longest ID or body prefix that is kept of a fetched job, in bytes.
const HELD_ID_MAX: usize = 47;

/// A job queue and the way it is used as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchmarkPeer {
    /// ADDJOB, GETJOB, ACKJOB; our server and the C server.
    Disque,
    /// A Redis list: LPUSH, RPOP or BRPOP. A job is gone once it is fetched.
    List,
    /// Two Redis lists: LPUSH, LMOVE or BLMOVE, LREM.
    Reliable,
    /// A Redis stream with one group: XADD, XREADGROUP, XACK and XDEL.
    Stream,
    /// beanstalkd: put, reserve, delete.
    Beanstalkd,
}

impl BenchmarkPeer {
    const ALL: [Self; 5] =
        [Self::Disque, Self::List, Self::Reliable, Self::Stream, Self::Beanstalkd];

    /// The word that names it on the command line and in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disque => "disque",
            Self::List => "list",
            Self::Reliable => "reliable",
            Self::Stream => "stream",
            Self::Beanstalkd => "beanstalkd",
        }
    }

    /// The peer of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// Reads one reply to a request of this kind; fetched jobs are appended to `held`.
    ///
    /// On `Err` nothing was appended, so the caller may come back with more bytes.
    pub fn read_reply(
        self,
        kind: ReplyKind,
        bytes: &[u8],
        held: &mut Vec<HeldJob>,
    ) -> Result<Reply, Stop> {
        let held_before = held.len();
        let mut cursor = Cursor::new(bytes);
        let outcome = match (self, kind) {
            (Self::Beanstalkd, _) => beanstalkd_reply(kind, &mut cursor, held),
            (_, ReplyKind::Fetch | ReplyKind::Await) if bytes.first() != Some(&b'-') => {
                match self {
                    Self::Stream => stream_fetch(&mut cursor, held),
                    Self::List if kind == ReplyKind::Await => list_await(&mut cursor, held),
                    Self::List => list_fetch(&mut cursor, held),
                    Self::Reliable => reliable_fetch(&mut cursor, held),
                    Self::Disque | Self::Beanstalkd => disque_fetch(&mut cursor, held),
                }
            }
            _ => plain_reply(&mut cursor),
        };
        if outcome.is_err() {
            held.truncate(held_before);
        }
        Ok(Reply { len: cursor.position(), outcome: outcome? })
    }
}

/// What a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// Takes a job.
    Add,
    /// Hands out jobs that are there.
    Fetch,
    /// Hands out jobs, and waits when there is none.
    Await,
    /// Forgets jobs; the reply says how many.
    Ack,
    /// Goes along with another request and is counted nowhere.
    Aside,
}

/// One reply that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its bytes in the input buffer.
    pub len: usize,
    pub outcome: ReplyOutcome,
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// It worked; an acknowledgement says for how many jobs, of the others the number
    /// means nothing.
    Done(u64),
    /// An error reply.
    Refused,
}

/// A fetched job that waits for its acknowledgement.
#[derive(Clone, Copy)]
pub struct HeldJob {
    id: [u8; HELD_ID_MAX],
    id_len: u8,
    /// What the start of the body says; see `Clock::read_stamp`.
    pub stamp: Option<u64>,
}

impl HeldJob {
    fn new(id: &[u8], body: &[u8]) -> Result<Self, Stop> {
        let mut kept = [0; HELD_ID_MAX];
        kept.get_mut(..id.len()).ok_or(Stop::Malformed)?.copy_from_slice(id);
        let id_len = u8::try_from(id.len()).map_err(|_| Stop::Malformed)?;
        Ok(Self { id: kept, id_len, stamp: parse_stamp(body) })
    }

    /// For the peers that know a job by its body: its start stands for all of it.
    fn of_body(body: &[u8]) -> Result<Self, Stop> {
        Self::new(&body[..body.len().min(STAMP_LEN)], body)
    }

    /// What names the job in an acknowledgement.
    pub fn id(&self) -> &[u8] {
        &self.id[..usize::from(self.id_len)]
    }
}

fn parse_stamp(body: &[u8]) -> Option<u64> {
    let mut stamp = 0;
    for digit in body.get(..STAMP_LEN)? {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        stamp = stamp << 4 | u64::from(value);
    }
    Some(stamp)
}

/// `+status`, `-error`, `:count` or a bulk string.
fn plain_reply(cursor: &mut Cursor<'_>) -> Result<ReplyOutcome, Stop> {
    match cursor.peek()? {
        b'+' => cursor.line().map(|_| ReplyOutcome::Done(1)),
        b'-' => cursor.line().map(|_| ReplyOutcome::Refused),
        b':' => Ok(ReplyOutcome::Done(u64::try_from(cursor.header(b':')?).unwrap_or(0))),
        b'$' => cursor.bulk().map(|_| ReplyOutcome::Done(1)),
        _ => Err(Stop::Malformed),
    }
}

fn some<T>(value: Option<T>) -> Result<T, Stop> {
    value.ok_or(Stop::Malformed)
}

/// `*n` of `*3 queue id body`, or the null array.
fn disque_fetch(cursor: &mut Cursor<'_>, held: &mut Vec<HeldJob>) -> Result<ReplyOutcome, Stop> {
    let jobs = cursor.array()?;
    for _ in 0..jobs {
        if cursor.array()? != 3 {
            return Err(Stop::Malformed);
        }
        some(cursor.bulk()?)?;
        let id = some(cursor.bulk()?)?;
        let body = some(cursor.bulk()?)?;
        held.push(HeldJob::new(id, body)?);
    }
    Ok(ReplyOutcome::Done(0))
}

/// RPOP: a body or null; with a count, an array of bodies or null.
fn list_fetch(cursor: &mut Cursor<'_>, held: &mut Vec<HeldJob>) -> Result<ReplyOutcome, Stop> {
    if cursor.peek()? == b'$' {
        return reliable_fetch(cursor, held);
    }
    for _ in 0..cursor.array()? {
        held.push(HeldJob::of_body(some(cursor.bulk()?)?)?);
    }
    Ok(ReplyOutcome::Done(0))
}

/// BRPOP: the key and a body, or null.
fn list_await(cursor: &mut Cursor<'_>, held: &mut Vec<HeldJob>) -> Result<ReplyOutcome, Stop> {
    if cursor.array()? == 2 {
        some(cursor.bulk()?)?;
        held.push(HeldJob::of_body(some(cursor.bulk()?)?)?);
    }
    Ok(ReplyOutcome::Done(0))
}

/// A body, or null.
fn reliable_fetch(cursor: &mut Cursor<'_>, held: &mut Vec<HeldJob>) -> Result<ReplyOutcome, Stop> {
    if let Some(body) = cursor.bulk()? {
        held.push(HeldJob::of_body(body)?);
    }
    Ok(ReplyOutcome::Done(0))
}

/// `*1` of `*2 stream [id [field body]...]`, or the null array.
fn stream_fetch(cursor: &mut Cursor<'_>, held: &mut Vec<HeldJob>) -> Result<ReplyOutcome, Stop> {
    for _ in 0..cursor.array()? {
        cursor.array()?;
        some(cursor.bulk()?)?;
        for _ in 0..cursor.array()? {
            cursor.array()?;
            let id = some(cursor.bulk()?)?;
            cursor.array()?;
            some(cursor.bulk()?)?;
            let body = some(cursor.bulk()?)?;
            held.push(HeldJob::new(id, body)?);
        }
    }
    Ok(ReplyOutcome::Done(0))
}

/// `INSERTED id`, `RESERVED id bytes` and a body, `TIMED_OUT`, `DELETED`, or anything
/// else, which is a refusal.
fn beanstalkd_reply(
    kind: ReplyKind,
    cursor: &mut Cursor<'_>,
    held: &mut Vec<HeldJob>,
) -> Result<ReplyOutcome, Stop> {
    let line = cursor.line()?;
    let mut words = line.split(|byte| *byte == b' ');
    let first = words.next().unwrap_or_default();
    match (kind, first) {
        (ReplyKind::Fetch | ReplyKind::Await, b"RESERVED") => {
            let id = some(words.next())?;
            let body_len = some(words.next().and_then(parse_number))?;
            let body = cursor.block(some(usize::try_from(body_len).ok())?)?;
            held.push(HeldJob::new(id, body)?);
            Ok(ReplyOutcome::Done(1))
        }
        (ReplyKind::Fetch, b"TIMED_OUT") => Ok(ReplyOutcome::Done(0)),
        (ReplyKind::Add, b"INSERTED") | (ReplyKind::Ack, b"DELETED") | (ReplyKind::Aside, _) => {
            Ok(ReplyOutcome::Done(1))
        }
        _ => Ok(ReplyOutcome::Refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(peer: BenchmarkPeer, kind: ReplyKind, bytes: &[u8]) -> (Reply, Vec<Vec<u8>>) {
        for end in 0..bytes.len() {
            let mut held = Vec::new();
            assert_eq!(peer.read_reply(kind, &bytes[..end], &mut held), Err(Stop::Incomplete));
            assert!(held.is_empty(), "{end} bytes left a job behind");
        }
        let mut held = Vec::new();
        let reply = peer.read_reply(kind, bytes, &mut held).unwrap();
        (reply, held.iter().map(|job| job.id().to_vec()).collect())
    }

    #[test]
    fn fetched_jobs_are_held_by_what_acknowledges_them() {
        for (peer, kind, bytes, ids) in [
            (
                BenchmarkPeer::Disque,
                ReplyKind::Fetch,
                &b"*1\r\n*3\r\n$1\r\nq\r\n$3\r\nD-1\r\n$1\r\nb\r\n"[..],
                &["D-1"][..],
            ),
            (BenchmarkPeer::Disque, ReplyKind::Fetch, b"*-1\r\n", &[]),
            (BenchmarkPeer::List, ReplyKind::Fetch, b"$4\r\nbody\r\n", &["body"]),
            (BenchmarkPeer::List, ReplyKind::Fetch, b"$-1\r\n", &[]),
            (BenchmarkPeer::List, ReplyKind::Fetch, b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", &["a", "b"]),
            (BenchmarkPeer::List, ReplyKind::Await, b"*2\r\n$1\r\nq\r\n$1\r\nb\r\n", &["b"]),
            (
                BenchmarkPeer::Reliable,
                ReplyKind::Await,
                b"$20\r\n0123456789abcdef-eof\r\n",
                &["0123456789abcdef"],
            ),
            (
                BenchmarkPeer::Stream,
                ReplyKind::Fetch,
                b"*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nb\r\n$2\r\nxy\r\n",
                &["1-0"],
            ),
            (BenchmarkPeer::Stream, ReplyKind::Fetch, b"*-1\r\n", &[]),
            (BenchmarkPeer::Beanstalkd, ReplyKind::Await, b"RESERVED 12 2\r\nxy\r\n", &["12"]),
            (BenchmarkPeer::Beanstalkd, ReplyKind::Fetch, b"TIMED_OUT\r\n", &[]),
        ] {
            let (reply, held) = read(peer, kind, bytes);
            assert_eq!(reply.len, bytes.len());
            assert_ne!(reply.outcome, ReplyOutcome::Refused);
            assert_eq!(held, ids.iter().map(|id| id.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn acknowledgements_say_how_many_jobs_they_forgot() {
        for (peer, bytes) in
            [(BenchmarkPeer::Disque, &b":1\r\n"[..]), (BenchmarkPeer::Beanstalkd, b"DELETED\r\n")]
        {
            assert_eq!(read(peer, ReplyKind::Ack, bytes).0.outcome, ReplyOutcome::Done(1));
        }
        assert_eq!(
            read(BenchmarkPeer::Stream, ReplyKind::Ack, b":0\r\n").0.outcome,
            ReplyOutcome::Done(0)
        );
    }

    #[test]
    fn error_replies_are_refusals_of_any_kind() {
        for kind in [ReplyKind::Add, ReplyKind::Fetch, ReplyKind::Await, ReplyKind::Ack] {
            let (reply, held) = read(BenchmarkPeer::Disque, kind, b"-ERR no\r\n");
            assert_eq!((reply.outcome, held.len()), (ReplyOutcome::Refused, 0));
            let (reply, _) = read(BenchmarkPeer::Beanstalkd, kind, b"NOT_FOUND\r\n");
            assert_eq!(reply.outcome, ReplyOutcome::Refused);
        }
    }

    #[test]
    fn a_stamp_is_read_from_the_start_of_a_body() {
        assert_eq!(parse_stamp(b"000000000000002arest"), Some(42));
        assert_eq!(parse_stamp(b"000000000000002"), None);
        assert_eq!(parse_stamp(b"00000000000000xx"), None);
    }
}
