//! One node against simple models, under operations that proptest draws and shrinks.

use std::collections::{BTreeMap, BTreeSet};

use disque::base::ids::ClientId;
use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;
use proptest::prelude::*;

use crate::cluster::{Checks, Sim};
use crate::node::Words;
use crate::storage::AppendOnly;

struct Node {
    sim: Sim,
    client: ClientId,
}

impl Node {
    fn new() -> Self {
        let mut sim = Sim::new(1, 1, &EngineConfig::default(), AppendOnly::No);
        let client = sim.connect_client(0, Resp::V2);
        Self { sim, client }
    }

    #[must_use]
    fn call(&mut self, line: &str) -> Value {
        let words: Vec<&str> = line.split(' ').collect();
        self.sim.call(0, self.client, &words)
    }

    fn add(&mut self, queue: &str, options: &str) -> String {
        let line = format!("ADDJOB {queue} body 0 RETRY 1000{options}");
        let Value::Status(id) = self.call(&line) else { panic!("a job is taken") };
        String::from_utf8(id).expect("IDs are text")
    }

    /// Brings a queue into being that has no job.
    fn ask_of_an_empty_queue(&mut self, queue: &str) {
        let reply = self.call(&format!("GETJOB NOHANG FROM {queue}"));
        assert_eq!(reply, Value::NullArray);
    }

    #[must_use]
    fn count(&mut self, line: &str) -> i64 {
        match self.call(line) {
            Value::Integer(count) => count,
            other => panic!("{line} answers a number: {other:?}"),
        }
    }
}

/// The IDs in the rows of a GETJOB or QPEEK.
fn ids_of(rows: &Value) -> Vec<String> {
    let Value::Array(rows) = rows else { return Vec::new() };
    let id = |row: &Value| match row {
        Value::Array(row) => text(&row[1]),
        other => panic!("a row is an array: {other:?}"),
    };
    rows.iter().map(id).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(text) | Value::Status(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("a name is text: {other:?}"),
    }
}

#[derive(Clone, Debug)]
enum Move {
    /// A job of this priority.
    Add(u8),
    Fetch(usize),
    /// A command on the job that was added so many jobs ago.
    Job(&'static str, usize),
    Peek(i64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let on_job = prop::sample::select(vec![
        "ACKJOB", "DELJOB", "FASTACK", "NACK", "ENQUEUE", "DEQUEUE", "WORKING",
    ]);
    prop::collection::vec(
        prop_oneof![
            3 => Just(Move::Add(4)),
            1 => (1..8_u8).prop_map(Move::Add),
            2 => (1..6_usize).prop_map(Move::Fetch),
            6 => (on_job, 0..40_usize).prop_map(|(name, back)| Move::Job(name, back)),
            1 => (-9..9_i64).prop_map(Move::Peek),
        ],
        1..300,
    )
}

/// A queue in the eyes of its users: jobs by priority, and then in the order in which they
/// were added, each queued or not.
#[derive(Default)]
struct Line {
    added: Vec<(u8, String)>,
    /// The priority and the index of each job that is known, and whether it is queued.
    known: BTreeMap<(u8, usize), bool>,
}

impl Line {
    fn queued(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.known.iter().filter(|(_, queued)| **queued).map(|((_, index), _)| *index)
    }

    fn ids(&self, indexes: impl Iterator<Item = usize>) -> Vec<String> {
        indexes.map(|index| self.added[index].1.clone()).collect()
    }
}

fn play(node: &mut Node, line: &mut Line, step: &Move) {
    match step {
        Move::Add(priority) => {
            let said = if *priority == 4 { String::new() } else { format!(" PRIORITY {priority}") };
            let id = node.add("q", &said);
            line.known.insert((*priority, line.added.len()), true);
            line.added.push((*priority, id));
        }
        Move::Fetch(count) => {
            let expected: Vec<usize> = line.queued().take(*count).collect();
            let rows = node.call(&format!("GETJOB NOHANG COUNT {count} FROM q"));
            assert_eq!(
                ids_of(&rows),
                line.ids(expected.iter().copied()),
                "the first in order come"
            );
            let taken = expected.into_iter().map(|index| ((line.added[index].0, index), false));
            line.known.extend(taken);
        }
        Move::Job(command, back) => {
            let Some(index) = line.added.len().checked_sub(back + 1) else { return };
            let (priority, id) = &line.added[index];
            let (place, call) = ((*priority, index), format!("{command} {id}"));
            let Some(queued) = line.known.get(&place).copied() else {
                if *command == "WORKING" {
                    assert!(matches!(node.call(&call), Value::Error(_)), "the job is gone");
                } else {
                    assert_eq!(node.count(&call), 0, "the job is gone");
                }
                return;
            };
            let (after, reply) = match *command {
                "ACKJOB" | "DELJOB" | "FASTACK" => (None, 1),
                "NACK" | "ENQUEUE" => (Some(true), i64::from(!queued)),
                "DEQUEUE" => (Some(false), i64::from(queued)),
                _ => (Some(false), 1000),
            };
            assert_eq!(node.count(&call), reply, "{call}");
            match after {
                Some(queued) => line.known.insert(place, queued),
                None => line.known.remove(&place),
            };
        }
        Move::Peek(count) => {
            let wanted = usize::try_from(count.unsigned_abs()).expect("small");
            let expected = if *count < 0 {
                line.ids(line.queued().rev().take(wanted))
            } else {
                line.ids(line.queued().take(wanted))
            };
            assert_eq!(ids_of(&node.call(&format!("QPEEK q {count}"))), expected);
        }
    }
    assert_eq!(node.count("QLEN q"), line.queued().count() as i64);
}

/// What happens between two calls of a scan, or between two slices of one.
#[derive(Clone, Debug)]
enum Churn {
    Add(usize),
    /// Removes of those that may go, one that is so far along.
    Remove(prop::sample::Index),
}

fn churn() -> impl Strategy<Value = Vec<Churn>> {
    prop::collection::vec(
        prop_oneof![
            (1..40_usize).prop_map(Churn::Add),
            any::<prop::sample::Index>().prop_map(Churn::Remove),
        ],
        0..60,
    )
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Scans until the cursor is 0; `meanwhile` happens before each call.
fn scan(
    node: &mut Node,
    command: &str,
    options: &str,
    mut meanwhile: impl FnMut(&mut Node),
) -> Vec<String> {
    let mut seen = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        meanwhile(node);
        let Value::Array(parts) = node.call(&format!("{command} {cursor} {options}")) else {
            panic!("a scan answers an array")
        };
        let [next, Value::Array(names)] = parts.as_slice() else { panic!("a cursor and names") };
        seen.extend(names.iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            return seen;
        }
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// A queue hands out the most urgent of its jobs, and of these the oldest, whatever left it
    /// and came back before.
    #[test]
    fn a_queue_is_a_line_ordered_by_priority_and_age(moves in moves()) {
        let mut node = Node::new();
        let mut line = Line::default();
        for step in &moves {
            play(&mut node, &mut line, step);
        }
    }

    /// JSCAN returns every job that is there during the whole scan, however many come and
    /// go meanwhile, between its calls and between the slices of one.
    #[test]
    fn jscan_misses_no_job_that_stays(
        before in 0..1500_usize,
        gone in 0..100_u8,
        count in 1..400_usize,
        busyloop in any::<bool>(),
        churn in churn(),
    ) {
        let mut node = Node::new();
        node.sim.checks = Checks::WhenAsked;
        let other = node.sim.connect_client(0, Resp::V2);
        let (mut staying, mut leaving) = (Vec::new(), Vec::new());
        for i in 0..before {
            let id = node.add("q", "");
            // Holes of all sizes, so that new jobs come to stand anywhere.
            match i * 37 % 100 {
                place if place < usize::from(gone) => drop(node.count(&format!("DELJOB {id}"))),
                place if place % 2 == 0 => leaving.push(id),
                _ => staying.push(id),
            }
        }
        let mut churn = churn.into_iter();
        let mut ever: BTreeSet<String> = staying.iter().chain(&leaving).cloned().collect();
        let options = if busyloop { "BUSYLOOP".to_owned() } else { format!("COUNT {count}") };
        let seen = scan(&mut node, "JSCAN", &options, |node| {
            if let Some(Churn::Add(n)) = churn.next() {
                leaving.extend((0..n).map(|_| node.add("q", "")));
                ever.extend(leaving.iter().cloned());
            }
            if let Some(Churn::Remove(index)) = churn.next()
                && !leaving.is_empty()
            {
                let id = leaving.swap_remove(index.index(leaving.len()));
                node.sim.between_slices.push_back((other, words(&format!("DELJOB {id}"))));
                let add = (other, words("ADDJOB q late 0 RETRY 0"));
                node.sim.between_slices.push_back(add);
            }
        });
        let late = node.sim.take_replies(0, other);
        ever.extend(late.iter().filter(|(_, v)| matches!(v, Value::Status(_))).map(|(_, v)| text(v)));
        let seen: BTreeSet<String> = seen.into_iter().collect();
        prop_assert!(staying.iter().all(|id| seen.contains(id)));
        prop_assert!(seen.is_subset(&ever));
    }

    /// QSCAN the same, while queues come and are dropped.
    #[test]
    fn qscan_misses_no_queue_that_stays(
        before in 0..400_usize,
        count in 1..100_usize,
        churn in churn(),
    ) {
        let mut node = Node::new();
        node.sim.checks = Checks::WhenAsked;
        let mut staying = Vec::new();
        for i in 0..before {
            if i % 3 == 0 {
                node.ask_of_an_empty_queue(&format!("idle{i}"));
            } else {
                node.add(&format!("full{i}"), "");
                staying.push(format!("full{i}"));
            }
        }
        // Idle queues are dropped after 2 seconds.
        node.sim.set_memory_level(0, 2);
        let mut churn = churn.into_iter().enumerate();
        let seen = scan(&mut node, "QSCAN", &format!("COUNT {count}"), |node| {
            match churn.next() {
                Some((step, Churn::Add(n))) => {
                    for i in 0..n {
                        node.ask_of_an_empty_queue(&format!("new{step}.{i}"));
                    }
                }
                Some((_, Churn::Remove(_))) => node.sim.run_for(700),
                None => {}
            }
        });
        let seen: BTreeSet<String> = seen.into_iter().collect();
        prop_assert!(staying.iter().all(|name| seen.contains(name)));
    }
}

/// A client that waits in several lines, one of them twice, and hangs up in the turn in
/// which a job comes: the job is there for the next one, or comes back after its retry.
#[test]
fn a_job_outlives_the_client_that_hung_up() {
    for round in 0..200_u64 {
        let mut node = Node::new();
        let waiting = node.sim.connect_client(0, Resp::V2);
        node.sim.send(0, waiting, words("GETJOB FROM p q r q"));
        let hangs_up_first = round % 2 == 0;
        if hangs_up_first {
            node.sim.disconnect_client(0, waiting);
        }
        let queue = ["p", "q", "r"][round as usize % 3];
        let Value::Status(id) = node.call(&format!("ADDJOB {queue} body 0 RETRY 1")) else {
            panic!("a job is taken")
        };
        if !hangs_up_first {
            node.sim.disconnect_client(0, waiting);
            node.sim.run_for(1300);
        }
        let rows = node.call("GETJOB NOHANG FROM r q p");
        assert_eq!(ids_of(&rows), [String::from_utf8_lossy(&id)], "round {round}");
        assert_eq!(node.sim.nodes[0].engine.blocked_count(), 0);
    }
}

/// 100,000 queues that were used once are gone when they have been idle for long enough.
#[test]
fn short_lived_queues_leave_nothing_behind() {
    let mut node = Node::new();
    node.sim.checks = Checks::WhenAsked;
    for i in 0..100_000 {
        let id = node.add(&format!("queue{i}"), "");
        assert_eq!(ids_of(&node.call(&format!("GETJOB FROM queue{i}"))), [id.as_str()]);
        assert_eq!(node.count(&format!("ACKJOB {id}")), 1);
        if i % 1000 == 0 {
            node.sim.run_for(10);
        }
    }
    node.sim.run_for(330_000);
    assert_eq!(node.sim.nodes[0].engine.queue_count(), 0);
    node.sim.nodes[0].engine.check_invariants();
}
