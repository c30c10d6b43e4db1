//! The lives of jobs: who has them noted, what they must say in the end, and how they are told when
//! something is wrong.
//!
//! In a third of the runs nothing is traced, in another every job on every node, and in the rest
//! some producers ask for it, and somebody looks at lives with TRACE. A run in which nothing is asked
//! is the same whether jobs are traced or not; so a seed that fails is played once more with
//! all of them traced, and the life of the job in question is printed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use disque::base::ids::{ClientId, JOB_ID_LEN, JobId};
use disque::base::rng::Rng;
use disque::cli::help::Colour;
use disque::cli::trace::timeline::{NodeClock, Printer, TimeLine};
use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;
use disque::proto::trace::TraceRow;

use super::story::Story;
use super::{Storm, Tally, Weather, words};
use crate::clock::Clock;
use crate::node::State;

/// Whose lives are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    None,
    All,
    /// Those whose producers ask for it.
    Asked,
}

pub struct Tracing {
    rng: Rng,
    traced: Traced,
    /// Whether all are, as the run failed before.
    is_second_run: bool,
    /// Who looks at a life, and where.
    looking: Vec<(usize, ClientId)>,
}

impl Tracing {
    pub fn draw(mut rng: Rng, is_second_run: bool) -> Self {
        let traced = [Traced::None, Traced::All, Traced::Asked][rng.index(3)];
        Self { rng, traced, is_second_run, looking: Vec::new() }
    }

    fn all_are(&self) -> bool {
        self.traced == Traced::All || self.is_second_run
    }

    /// What a producer adds to its ADDJOB.
    pub fn draw_option(&mut self) -> &'static str {
        if self.traced == Traced::Asked && self.rng.below(2) == 0 { " TRACE" } else { "" }
    }
}

/// Plays a seed. When a rule is violated for a job, its life is printed.
pub fn run(seed: u64) -> Tally {
    let mut storm = Storm::new(seed, false);
    let first = catch_unwind(AssertUnwindSafe(|| storm.play()));
    let Err(panic) = first else { return first.expect("it is well") };
    if jobs_in(&panic).is_empty() {
        resume_unwind(panic);
    }
    eprintln!("seed {seed} once more, with all jobs traced:");
    let mut storm = Storm::new(seed, true);
    match catch_unwind(AssertUnwindSafe(|| storm.play())) {
        // Where somebody looks at lives, that there are more of them changes the run.
        Ok(_) => eprintln!("it does not fail so"),
        Err(again) => {
            for id in jobs_in(&again) {
                eprintln!("{}", storm.life(&id));
            }
        }
    }
    resume_unwind(panic)
}

/// The jobs that the message of a panic names, each once.
fn jobs_in(panic: &Box<dyn Any + Send>) -> Vec<JobId> {
    let text = panic.downcast_ref::<String>().map_or("", String::as_str);
    let mut ids: Vec<JobId> = Vec::new();
    for window in text.as_bytes().windows(JOB_ID_LEN) {
        if let Some(id) = JobId::parse(window)
            && id.random().is_some()
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    ids
}

impl Storm {
    /// Has the nodes trace what they are to trace.
    pub(super) fn set_tracing(&mut self) {
        if !self.tracing.all_are() {
            return;
        }
        for n in 0..self.sim.nodes.len() {
            let now = self.sim.now(n);
            let node = &mut self.sim.nodes[n];
            node.keeps_past = self.tracing.is_second_run;
            let config = EngineConfig { trace_sample: 1, ..node.engine.config().clone() };
            node.engine.set_config(now, config);
        }
    }

    /// The life of a job on all nodes, those that they were before they ended among them.
    fn life(&self, id: &JobId) -> String {
        let mut nodes = Vec::new();
        let mut clocks = Vec::new();
        for node in &self.sim.nodes {
            let name = node.engine.cluster().my_id().to_string();
            let engines = node.past.iter().chain([&node.engine]);
            let rows: Vec<TraceRow> = engines.flat_map(|engine| engine.trace_of(id)).collect();
            let wall_ms = |clock: &Clock| {
                i64::try_from(clock.at(self.sim.now_ms).wall.0).expect("it is not that late")
            };
            let offset_ms = wall_ms(&node.clock) - wall_ms(&Clock::default());
            clocks.push(NodeClock { node: name.clone(), offset_ms, round_trip_ms: 0 });
            nodes.push((name, rows));
        }
        let line = TimeLine::of_nodes(nodes, clocks);
        format!("the life of {id}:\n{}", Printer::new(Colour::Off).print(&line))
    }

    /// Somebody looks at the life of a job, now and then.
    pub(super) fn look_at_a_life(&mut self) {
        if self.tracing.traced != Traced::Asked || self.tracing.rng.below(5) > 0 {
            return;
        }
        let n = self.tracing.rng.index(self.sim.nodes.len());
        if self.stories.is_empty() || !self.is_up(n) || self.sim.network.is_plain(n) {
            return;
        }
        let at = self.tracing.rng.index(self.stories.len());
        let id = self.stories.keys().nth(at).expect("there are as many");
        let line = format!("TRACE {}", String::from_utf8_lossy(id));
        let client = self.sim.connect_client(n, Resp::V2);
        self.tracing.looking.push((n, client));
        self.sim.send(n, client, words(&line));
    }

    /// What TRACE answers is in its order: by time, then clocks, then who is silent.
    pub(super) fn check_lives(&mut self) {
        for (n, client) in std::mem::take(&mut self.tracing.looking) {
            let Some((_, reply)) = self.sim.take_replies(n, client).pop() else {
                if self.sim.nodes[n].clients.contains_key(&client) {
                    self.tracing.looking.push((n, client));
                }
                continue;
            };
            self.sim.disconnect_client(n, client);
            let rows = match &reply {
                Value::Array(rows) => rows.as_slice(),
                Value::NullArray => &[],
                // The node began to leave meanwhile.
                Value::Error(text) if text.starts_with(b"LEAVING ") => &[],
                other => panic!("TRACE answers rows: {other:?}"),
            };
            let mut places = rows.iter().map(|row| match row {
                Value::Array(fields) => match fields.as_slice() {
                    [Value::Integer(0), node, Value::Bulk(event), ..] => {
                        (1 + i64::from(event == b"silent"), 0, node)
                    }
                    [Value::Integer(at), node, Value::Bulk(_), ..] => (0, *at, node),
                    other => panic!("a row of TRACE has a time, a node and an event: {other:?}"),
                },
                other => panic!("TRACE answers rows: {other:?}"),
            });
            let key = |(part, at, node): (i64, i64, &Value)| match node {
                Value::Bulk(node) => (part, at, node.clone()),
                other => panic!("a node is an ID: {other:?}"),
            };
            let mut last = places.next().map(key);
            for place in places {
                let place = Some(key(place));
                // In a storm clocks are set back, and a node's events stay in their order.
                let may_differ = self.weather == Weather::Stormy;
                assert!(may_differ || last <= place, "a life is told in its order: {reply:?}");
                last = place;
            }
        }
    }

    /// A client of a node had a job, or acknowledged it, at this time. Whether the node has noted
    /// that: one that ended since has not, and of a job with very many events the first ones go.
    fn has_noted(&self, id: &JobId, n: usize, at: u64, events: &[&str]) -> bool {
        let node = &self.sim.nodes[n];
        let ended = self.sim.losses.iter().any(|loss| loss.node == n && loss.at >= at);
        if ended || node.state == State::Down {
            return true;
        }
        let rows = node.engine.trace_of(id);
        let is_it = |row: &TraceRow| events.iter().any(|event| row.event == event.as_bytes());
        rows.iter().any(|row| is_it(row) || row.details.iter().any(|(name, _)| name == b"dropped"))
    }

    /// The events of a job do not contradict its end.
    pub(super) fn judge_life(&self, id: &[u8], story: &Story) {
        let is_traced =
            self.tracing.all_are() || story.wanted.as_ref().is_some_and(|wanted| wanted.is_traced);
        if !is_traced {
            return;
        }
        let id = JobId::parse(id).expect("IDs are valid");
        if let Some((n, at)) = story.acked_on {
            let noted = self.has_noted(&id, n, at, &["acked", "purged"]);
            assert!(noted, "node {n} has not noted the ack of {id} at {at}: {story:?}");
        }
        for &(n, at) in &story.fetched_on {
            let noted = self.has_noted(&id, n, at, &["fetched"]);
            assert!(noted, "node {n} has not noted the delivery of {id} at {at}: {story:?}");
        }
        let mut fetched = 0;
        for (n, node) in self.sim.nodes.iter().enumerate().filter(|(n, _)| self.is_up(*n)) {
            let rows = node.engine.trace_of(&id);
            fetched += rows.iter().filter(|row| row.event == b"fetched").count();
            let line = TimeLine::of_nodes([(n.to_string(), rows)], Vec::new());
            let is_over = line.moments.is_empty() || line.is_over(&id.0);
            assert!(is_over, "node {n} has no job left, and not noted the end of {id}: {line:?}");
        }
        let once = id.is_at_least_once() || self.enqueued_once || fetched <= 1;
        assert!(once, "{id} was to be delivered at most once, and is noted {fetched} times");
    }
}

/// Tracing changes nothing: a run in which all jobs are traced is the run in which none is.
#[test]
fn a_run_is_the_same_whether_jobs_are_traced_or_not() {
    for seed in 0..18 {
        let mut storm = Storm::new(seed, false);
        // Who looks at lives sees more of them.
        if storm.tracing.traced != Traced::Asked {
            let tally = storm.play();
            assert_eq!(Storm::new(seed, true).play(), tally, "seed {seed}");
        }
    }
}

/// A violated rule names its job, whose life can then be told.
#[test]
fn the_life_of_a_job_is_told_with_what_it_was_on_every_node() {
    let mut storm = Storm::new(0, true);
    storm.play();
    let ids = storm.stories.keys().map(|id| id.escape_ascii().to_string());
    let told: String = ids.map(|id| format!("no rule holds for {id}, ({id})\n")).collect();
    let panic: Box<dyn Any + Send> = Box::new(told);
    let ids = jobs_in(&panic);
    assert_eq!(ids.len(), storm.stories.len(), "each job once");
    let events = ["added", "copy-kept", "queued", "fetched", "acked", "collected"];
    let is_whole = |life: &String| events.iter().all(|event| life.contains(event));
    assert!(ids.iter().map(|id| storm.life(id)).any(|life| is_whole(&life)));
}
