//! `/api/...`: what the page and other programs read, in JSON.
//!
//! `docs/operations.md` has the shapes. Each answer is an object whose `version` is 1: fields are
//! added, and none changes its meaning under the same version. Times are in ms. Names and bodies
//! are strings, or `{"base64":"..."}` when they are no UTF-8.

use super::answer::{HttpAnswer, JSON, Parts};
use super::health;
use super::json::Object;
use super::queues::{QueueListing, QueueOrder, ShownQueue};
use super::request::HttpRequest;
use crate::base::ids::JobId;
use crate::base::memory;
use crate::base::number;
use crate::engine::More;
use crate::engine::dead::DeathCounts;
use crate::engine::figures::{JobFigures, QueueVisit};
use crate::engine::waits::{WAIT_BOUNDS_MS, WaitHistogram};
use crate::proto::bus::{Abilities, NodeFlags};
use crate::proto::facts::Facts;
use crate::server::Server;
use crate::server::version::SERVER_VERSION;
use crate::store::aof::AofState;

const VERSION: u64 = 1;
/// Queues listed without a limit of the client's own, and with any.
const QUEUES_DEFAULT: u64 = 200;
const QUEUES_MAX: u64 = 2000;
/// Rows written in a step.
const STEP: usize = 64;
/// Most nodes listed.
const NODES_MAX: usize = 1000;
/// Jobs of a queue that are shown.
const JOBS_SHOWN: usize = 10;
/// Dead letters that are listed, and of one queue.
const DEAD_MAX: usize = 100;
const DEAD_OF_QUEUE_MAX: usize = 20;
/// Bytes of a body that are shown in a list of jobs, and of one job.
const BODY_IN_LIST_MAX: usize = 256;
const BODY_MAX: usize = 16 * 1024;

/// Begins an object with what each answer has.
fn begin<'a>(server: &Server, out: &'a mut Vec<u8>) -> Object<'a> {
    let mut object = Object::begin(out);
    object.number("version", VERSION);
    object.text("node", &server.engine.cluster().my_id().to_string());
    object.number("at_ms", server.clock.now.wall.0);
    object
}

fn whole(server: &Server, write: impl FnOnce(&mut Object<'_>)) -> HttpAnswer {
    let mut out = Vec::new();
    let mut object = begin(server, &mut out);
    write(&mut object);
    object.end();
    out.push(b'\n');
    HttpAnswer::json(out)
}

/// GET /api/overview -> what is not well, and the figures of the node.
pub fn overview(server: &Server, _: &HttpRequest) -> HttpAnswer {
    whole(server, |object| {
        let cluster = server.engine.cluster();
        let (ip, port) = cluster.my_address(server.clock.now);
        let address = ip.map_or_else(
            || format!("port {port}"),
            |ip| match ip.is_ipv6() {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            },
        );
        object.text("address", &address);
        object.text("server_version", SERVER_VERSION);
        object.number("uptime_ms", server.uptime_ms(server.clock.now.mono));
        object.flag("ready", health::unready(server).is_none());
        object.flag("leaving", cluster.is_leaving());
        object.flag("shows_bodies", shows_bodies(server));
        object.list("findings", health::findings(server), |out, finding| {
            let mut row = Object::begin(out);
            row.text("severity", finding.severity.name());
            row.text("about", finding.about);
            row.text("sentence", &finding.sentence);
            row.end();
        });
        object.object("memory", |row| {
            row.number("used_bytes", memory::used() as u64);
            row.number("max_bytes", server.config.maxmemory);
            row.number("level", server.engine.memory_level().into());
        });
        object.object("clients", |row| {
            row.number("connected", server.clients.len() as u64);
            row.number("blocked", server.engine.blocked_count() as u64);
            row.number("max", server.config.maxclients.into());
        });
        let counters = server.stats.since_start();
        object.object("commands", |row| {
            row.number("total", counters.commands_processed);
            row.number("per_second", server.stats.commands_per_sec());
        });
        object.number("jobs", server.engine.job_count() as u64);
        object.object("dead", |row| write_deaths(&server.engine.deaths().all(), row));
        object.object("file", |row| {
            let aof = server.persistence.aof();
            let figures = aof.figures(server.clock.now.mono);
            row.flag("enabled", aof.state() != AofState::Off);
            row.flag("failing", aof.failure().is_some());
            row.number("size_bytes", figures.current_len);
            row.number("loss_window_ms", figures.loss_window_ms);
            row.flag("rewriting", aof.is_rewriting());
        });
        object.object("cluster", |row| {
            row.number("nodes", cluster.size() as u64);
            row.number("reachable", cluster.reachable_count() as u64);
            row.number("messages_sent", cluster.stats().sent.total());
            row.number("messages_received", cluster.stats().received.total());
        });
    })
}

/// GET /api/nodes -> the nodes as this one sees them, itself first.
pub fn nodes(server: &Server, _: &HttpRequest) -> HttpAnswer {
    whole(server, |object| {
        let cluster = server.engine.cluster();
        let peers = cluster.peers(server.clock.now.mono).take(NODES_MAX);
        object.number("count", cluster.size() as u64);
        object.number("handshakes", cluster.handshake_count() as u64);
        object.list("peers", peers, |out, peer| {
            let mut row = Object::begin(out);
            row.text("id", &peer.id.to_string());
            match peer.address {
                Some(address) => row.text("address", &address.to_string()),
                None => row.key("address").extend_from_slice(b"null"),
            }
            row.text("state", peer.state());
            row.flag("linked", peer.link.is_some());
            row.flag("leaving", peer.flags.contains(NodeFlags::LEAVING));
            row.maybe("round_trip_ms", peer.round_trip_ms);
            row.maybe("heard_ms_ago", peer.heard_ms_ago);
            row.number("unsent_bytes", peer.link.map_or(0, |at| server.link_unsent(at)) as u64);
            let abilities = peer.abilities;
            row.flag("short_of_memory", {
                abilities.is_some_and(|known| known.contains(Abilities::SHORT_OF_MEMORY))
            });
            match abilities {
                Some(Abilities::NONE) => row.text("kind", "c"),
                Some(_) => row.text("kind", "disque"),
                None => row.key("kind").extend_from_slice(b"null"),
            }
            row.end();
        });
    })
}

/// GET /api/queues[?sort=length|oldest|in|out|blocked][&filter=text][&limit=n] -> sums, and the
/// first queues of that order with the text in their names.
pub fn queues(server: &Server, request: &HttpRequest) -> HttpAnswer {
    let order = match request.parameter("sort") {
        None => QueueOrder::Longest,
        Some(name) => match QueueOrder::named(name) {
            Some(order) => order,
            None => return HttpAnswer::line(400, "sort is length, oldest, in, out or blocked"),
        },
    };
    let limit = match request.parameter("limit") {
        None => Some(QUEUES_DEFAULT),
        Some(digits) => number::parse_digits(digits).filter(|limit| *limit <= QUEUES_MAX),
    };
    let Some(limit) = limit else {
        return HttpAnswer::line(400, &format!("limit is a number up to {QUEUES_MAX}"));
    };
    let filter = request.parameter("filter").unwrap_or(b"");
    let max = usize::try_from(limit).unwrap_or(usize::MAX);
    let walk = Box::new(QueueListing::by_order(server, order, max, filter));
    HttpAnswer::parts(JSON, QueueList::Walk(walk))
}

/// The answer of [`queues`]: the walk, then its rows from one on.
enum QueueList {
    Walk(Box<QueueListing>),
    Rows(Vec<ShownQueue>, usize),
}

impl Parts for QueueList {
    fn write_some(&mut self, server: &Server, out: &mut Vec<u8>) -> More {
        match self {
            Self::Walk(walk) => {
                if walk.step(server) == More::No {
                    write_sums(server, walk, out);
                    *self = Self::Rows(std::mem::take(&mut walk.rows), 0);
                }
                More::Yes
            }
            Self::Rows(rows, at) => {
                for row in rows.iter().skip(*at).take(STEP) {
                    if *at > 0 {
                        out.push(b',');
                    }
                    let mut object = Object::begin(out);
                    write_queue(&mut object, row);
                    object.end();
                    *at += 1;
                }
                if *at < rows.len() {
                    return More::Yes;
                }
                out.extend_from_slice(b"]}\n");
                More::No
            }
        }
    }
}

/// All of the answer up to the rows.
fn write_sums(server: &Server, walk: &QueueListing, out: &mut Vec<u8>) {
    let mut object = begin(server, out);
    object.object("all", |row| {
        row.number("count", walk.sums.count);
        row.number("length", walk.sums.length);
        row.maybe("oldest_ms", walk.sums.oldest_ms);
        row.number("blocked", walk.sums.blocked);
        row.number("paused", walk.sums.paused);
        row.number("jobs_in", walk.traffic.jobs_in);
        row.number("jobs_out", walk.traffic.jobs_out);
    });
    object.number("matching", walk.matching);
    object.key("queues").push(b'[');
}

fn write_queue(object: &mut Object<'_>, row: &ShownQueue) {
    object.bytes("name", &row.name);
    object.number("length", row.length);
    object.maybe("oldest_ms", row.oldest_ms);
    object.number("in_flight", row.in_flight);
    object.number("delayed", row.delayed);
    object.number("blocked", row.blocked);
    object.number("jobs_in", row.jobs_in);
    object.number("jobs_out", row.jobs_out);
    object.number("import_rate", row.import_rate);
    object.text("paused", row.pause.name());
    object.object("died", |deaths| write_deaths(&row.deaths, deaths));
}

/// GET /api/queue?name=NAME -> one queue, with its first jobs. One that is not there is empty:
/// who scales workers by its length is to scale them down.
pub fn queue(server: &Server, request: &HttpRequest) -> HttpAnswer {
    let Some(name) = request.parameter("name") else {
        return HttpAnswer::line(400, "which queue? /api/queue?name=NAME");
    };
    let now = server.clock.now;
    let queue = server.engine.queue_report(now, name);
    whole(server, |object| {
        object.flag("exists", queue.is_some());
        match queue {
            Some(queue) => {
                let row = ShownQueue::new(&queue);
                write_queue(object, &row);
                object.object("wait", |row_of_waits| write_waits(row_of_waits, &row.waits));
            }
            None => {
                object.bytes("name", name);
                object.number("length", 0);
                object.maybe("oldest_ms", None);
                object.number("blocked", 0);
            }
        }
        let jobs = server.engine.first_jobs(now, name, JOBS_SHOWN);
        object.list("first_jobs", jobs, |out, job| {
            write_job(server, out, &job, BODY_IN_LIST_MAX);
        });
    })
}

fn write_waits(object: &mut Object<'_>, waits: &WaitHistogram) {
    object.number("count", waits.count());
    object.number("sum_ms", waits.sum());
    object.list("up_to", WAIT_BOUNDS_MS.iter().zip(waits.up_to()), |out, (bound, count)| {
        let mut row = Object::begin(out);
        row.maybe("ms", (*bound != u64::MAX).then_some(*bound));
        row.number("count", count);
        row.end();
    });
}

/// GET /api/dead -> how many jobs died here, and the first dead letters of each queue of such.
pub fn dead(_: &Server, _: &HttpRequest) -> HttpAnswer {
    HttpAnswer::parts(JSON, DeadList { slot: 0, rows: 0, stage: DeadStage::Head })
}

/// The answer of [`dead`]: a walk over all queues, of which each tells by its first job whether it
/// is one of dead letters.
struct DeadList {
    slot: u32,
    rows: usize,
    stage: DeadStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeadStage {
    Head,
    Queues,
}

impl Parts for DeadList {
    fn write_some(&mut self, server: &Server, out: &mut Vec<u8>) -> More {
        if self.stage == DeadStage::Head {
            let mut object = begin(server, out);
            object.object("by_reason", |row| write_deaths(&server.engine.deaths().all(), row));
            object.key("jobs").push(b'[');
            self.stage = DeadStage::Queues;
        }
        let now = server.clock.now;
        for _ in 0..STEP {
            let visited = server.engine.visit_queue(now, self.slot);
            let Some((visit, next)) = visited.filter(|_| self.rows < DEAD_MAX) else {
                out.extend_from_slice(b"]}\n");
                return More::No;
            };
            self.slot = next;
            let QueueVisit::Queue(queue) = visit else { continue };
            let jobs = server.engine.first_dead_letters(now, queue.name, DEAD_OF_QUEUE_MAX);
            for job in &jobs {
                if self.rows > 0 {
                    out.push(b',');
                }
                write_job(server, out, job, BODY_IN_LIST_MAX);
                self.rows += 1;
            }
            if !jobs.is_empty() {
                break;
            }
        }
        More::Yes
    }
}

fn write_deaths(deaths: &DeathCounts, object: &mut Object<'_>) {
    for (reason, count) in deaths.iter() {
        object.number(reason.name(), count);
    }
}

/// GET /api/job?id=ID -> one job, if it is here.
///
/// IDs have a plus sign now and then, which is a blank in a query, and no blanks.
pub fn job(server: &Server, request: &HttpRequest) -> HttpAnswer {
    let Some(id) = id_of(request) else {
        return HttpAnswer::line(400, "which job? /api/job?id=D-...");
    };
    let job = server.engine.job_figures(server.clock.now, &id);
    whole(server, |object| {
        object.flag("exists", job.is_some());
        if let Some(job) = job {
            write_job(server, object.key("job"), &job, BODY_MAX);
        }
        write_trace(server, object, &id);
    })
}

/// GET /api/trace?id= -> what happened to a job on this node; an empty list for one that is not
/// traced. For all nodes there is the command TRACE.
pub fn trace(server: &Server, request: &HttpRequest) -> HttpAnswer {
    let Some(id) = id_of(request) else {
        return HttpAnswer::line(400, "which job? /api/trace?id=D-...");
    };
    whole(server, |object| write_trace(server, object, &id))
}

fn write_trace(server: &Server, object: &mut Object<'_>, id: &JobId) {
    let node = server.engine.cluster().my_id().to_string();
    object.list("trace", server.engine.trace_of(id), |out, event| {
        let mut row = Object::begin(out);
        row.number("at_ms", event.at.0);
        row.text("node", &node);
        row.bytes("event", &event.event);
        let pairs = event.details.iter().map(|(name, value)| [name.as_slice(), value].join(&b' '));
        row.bytes("detail", &pairs.collect::<Vec<_>>().join(&b", "[..]));
        row.end();
    });
}

/// The job that is asked for.
fn id_of(request: &HttpRequest) -> Option<JobId> {
    let id: Vec<u8> = request.parameter("id")?.iter().map(plus_for_blank).collect();
    JobId::parse(&id)
}

fn plus_for_blank(byte: &u8) -> u8 {
    if *byte == b' ' { b'+' } else { *byte }
}

fn write_job(server: &Server, out: &mut Vec<u8>, job: &JobFigures<'_>, body_max: usize) {
    let mut row = Object::begin(out);
    row.text("id", &job.id.to_string());
    row.bytes("queue", job.queue);
    row.text("state", job.state);
    row.number("age_ms", job.age_ms);
    row.number("ttl_ms", job.ttl_ms);
    row.number("delay_ms", u64::from(job.delay_secs) * 1000);
    row.number("retry_ms", u64::from(job.retry_secs) * 1000);
    row.number("copies_asked_for", job.repl.into());
    row.number("nacks", job.nacks.into());
    row.number("additional_deliveries", job.additional_deliveries.into());
    row.maybe("requeue_in_ms", job.requeue_ms);
    row.list("other_holders", &job.holders, |out, id| {
        crate::base::json::write_string(id, out);
    });
    if let Some(facts) = job.facts.as_deref().and_then(Facts::decode) {
        row.object("dead", |row| {
            row.text("reason", facts.reason.name());
            row.bytes("origin", facts.origin);
            row.number("nacks", facts.nacks.into());
            row.number("additional_deliveries", facts.deliveries.into());
            row.number("died_at_ms", facts.died_at.0);
            row.bytes("note", facts.note);
        });
    }
    row.number("body_bytes", job.body.len() as u64);
    if shows_bodies(server) {
        row.bytes("body", beginning(job.body, body_max));
    }
    row.end();
}

/// The beginning of a body, without half a character at its end.
fn beginning(body: &[u8], max: usize) -> &[u8] {
    let Some(cut) = body.get(..max).filter(|_| body.len() > max) else { return body };
    match str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
        _ => cut,
    }
}

/// Whether bodies of jobs are shown: not to somebody who could not fetch them either.
fn shows_bodies(server: &Server) -> bool {
    !server.config.has_logins() || server.config.http_token.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_between_characters() {
        assert_eq!(beginning(b"short", 9), b"short");
        assert_eq!(beginning(b"long text", 4), b"long");
        assert_eq!(beginning("a\u{e9}\u{e9}".as_bytes(), 4), "a\u{e9}".as_bytes());
        assert_eq!(beginning(b"\xff\xff\xff", 2), b"\xff\xff");
    }
}
