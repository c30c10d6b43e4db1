//! The life of a job: what happened to it on this node, and on all nodes together (TRACE).
//!
//! A job is *traced* when its producer asked for it, or when it is sampled. Either is a bit of its
//! flags here, so that each place where something happens pays one bit test for all other jobs. The
//! bit travels in records only where the producer asked ([`super::jobs::Jobs::flags_of_record`]):
//! C servers keep it, so such a job is traced on every able node that it comes to. Which jobs are
//! sampled follows from their IDs, so nodes with the same `trace-sample` agree without a word, and
//! the jobs of 1 in 100 are among those of 1 in 10.
//!
//! Events lie in a table of [`EngineConfig::trace_max`] jobs, each with its last [`EVENTS_MAX`]. They
//! outlive the job: that is when they are asked for. When there are too many, jobs that are over on
//! this node go first, and of these the one that has been over for the longest time. What is known
//! of a job whose first events are gone says so. Nothing is written to disk: a restart begins
//! anew, with `loaded`.
//!
//! Invariant: tracing sends nothing, draws nothing and changes no decision. A run with it is the
//! run without it.
//!
//! [`EngineConfig::trace_max`]: super::config::EngineConfig::trace_max

mod event;
mod survey;

use std::collections::{BTreeMap, VecDeque};

pub use event::{By, Event, Gone, MovedBetween, QueuedFor, Refusal, Text};
pub use survey::TraceSurvey;

use super::Engine;
use super::cluster::Cluster;
use super::jobs::{HeldFor, JobFlags, JobRef, Nack};
use super::node_set::NodeRef;
use crate::base::id_index::IdHasher;
use crate::base::ids::{ClientId, JobId};
use crate::base::time::UnixMs;
use crate::proto::trace::TraceRow;

/// Most events that are kept of a job; the first ones go.
pub const EVENTS_MAX: usize = 64;
/// Nodes agree on it for good: which jobs are sampled depends on it.
const SAMPLE_KEY: &[u8; 16] = b"disque-trace-key";

/// Whether a job is still known on this node. Those that are not go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Over,
    Here,
}

/// When a job came to its stage, among all that did.
type Place = (Stage, u64);

#[derive(Debug)]
struct Trace {
    place: Place,
    /// Whether there was something before the first event.
    began_late: bool,
    dropped_count: u32,
    events: VecDeque<(UnixMs, Event)>,
}

/// The events of the traced jobs.
#[derive(Debug, Default)]
pub struct Traces {
    jobs: BTreeMap<JobId, Trace>,
    /// The first one goes first.
    places: BTreeMap<Place, JobId>,
    last_place: u64,
}

impl Traces {
    /// How many jobs are in the table.
    fn len(&self) -> usize {
        self.jobs.len()
    }

    fn next_place(&mut self, stage: Stage) -> Place {
        self.last_place += 1;
        (stage, self.last_place)
    }

    /// Notes an event of a job, as one of `max` jobs.
    fn note(&mut self, id: &JobId, at: UnixMs, event: Event, stage: Stage, max: usize) {
        if max == 0 {
            return;
        }
        if !self.jobs.contains_key(id) {
            self.shrink(max - 1);
            let place = self.next_place(stage);
            // An ack may come to a node that never had the job.
            let is_ack_alone = stage == Stage::Over && matches!(event, Event::Acked(_));
            let began_late = !event.is_beginning() && !is_ack_alone;
            let events = VecDeque::new();
            self.jobs.insert(*id, Trace { place, began_late, dropped_count: 0, events });
            self.places.insert(place, *id);
        }
        let Some(trace) = self.jobs.get_mut(id) else { return };
        if trace.events.len() == EVENTS_MAX {
            trace.events.pop_front();
            trace.dropped_count = trace.dropped_count.saturating_add(1);
        }
        trace.events.push_back((at, event));
        self.put(id, stage);
    }

    /// A job came to a stage, if it was not there.
    fn put(&mut self, id: &JobId, stage: Stage) {
        let Some(before) = self.jobs.get(id).map(|trace| trace.place) else { return };
        if before.0 != stage {
            let place = self.next_place(stage);
            self.places.remove(&before);
            self.places.insert(place, *id);
            if let Some(trace) = self.jobs.get_mut(id) {
                trace.place = place;
            }
        }
    }

    /// Drops jobs until there are no more than `max`.
    fn shrink(&mut self, max: usize) {
        while self.jobs.len() > max {
            let Some((_, id)) = self.places.pop_first() else { return };
            self.jobs.remove(&id);
        }
    }

    /// The events of a job, the first one first.
    fn rows(&self, id: &JobId, cluster: &Cluster) -> Vec<TraceRow> {
        let Some(trace) = self.jobs.get(id) else { return Vec::new() };
        let mut rows = Vec::new();
        if let Some((at, _)) = trace.events.front()
            && (trace.began_late || trace.dropped_count > 0)
        {
            let row = TraceRow::new(*at, "began-late");
            rows.push(match trace.dropped_count {
                0 => row,
                count => row.with("dropped", count.to_string()),
            });
        }
        rows.extend(trace.events.iter().map(|(at, event)| event.row(*at, cluster)));
        rows
    }

    fn check_invariants(&self, max: usize) {
        assert!(self.jobs.len() <= max, "traces are bounded");
        assert_eq!(self.jobs.len(), self.places.len(), "each traced job has one place");
        for (id, trace) in &self.jobs {
            assert_eq!(self.places.get(&trace.place), Some(id), "each traced job has its place");
            assert!(trace.events.len() <= EVENTS_MAX, "events are bounded");
        }
    }
}

/// Whether a job is one of `n`, by its ID; none is for 0.
pub fn is_sampled(id: &JobId, n: u64) -> bool {
    n > 0 && IdHasher::new(SAMPLE_KEY).hash(&id.0) <= u64::MAX / n
}

/// The hook: whatever happens to a job calls one of these.
impl Engine {
    /// Something happens to a job.
    #[inline]
    pub(super) fn trace(&mut self, r: JobRef, event: impl FnOnce() -> Event) {
        if self.jobs[r].is_traced() {
            self.note_event(r, event());
        }
    }

    /// A job is new here, and comes into being by this event: it is traced from now on, if it is
    /// sampled or its producer asked for it.
    #[inline]
    pub(super) fn begin_trace(&mut self, r: JobRef, event: impl FnOnce() -> Event) {
        if self.config.trace_sample != 0 || self.jobs[r].is_traced() {
            self.begin_known_trace(r, event());
        }
    }

    #[cold]
    fn begin_known_trace(&mut self, r: JobRef, event: Event) {
        if !self.jobs[r].is_traced() {
            if !is_sampled(&self.jobs[r].id, self.config.trace_sample) {
                return;
            }
            self.jobs.sample(r);
        }
        self.note_event(r, event);
    }

    /// Something happens to a job that is traced.
    #[cold]
    pub(super) fn note_event(&mut self, r: JobRef, event: Event) {
        let id = &self.jobs[r].id;
        self.traces.note(id, self.now.wall, event, Stage::Here, self.config.trace_max);
    }

    /// Something happens to a job that is not known here, and has these flags as far as somebody
    /// says.
    pub(super) fn trace_unknown(&mut self, id: &JobId, flags: JobFlags, event: Event) {
        let is_traced = flags.contains(JobFlags::TRACE) || self.config.trace_sample != 0;
        if is_traced {
            self.note_event_of_unknown(id, flags, event);
        }
    }

    #[cold]
    fn note_event_of_unknown(&mut self, id: &JobId, flags: JobFlags, event: Event) {
        if flags.contains(JobFlags::TRACE) || is_sampled(id, self.config.trace_sample) {
            self.traces.note(id, self.now.wall, event, Stage::Over, self.config.trace_max);
        }
    }

    /// A traced job leaves this node.
    #[cold]
    pub(super) fn end_trace(&mut self, id: &JobId, gone: Gone) {
        match gone {
            Gone::Replaced => {}
            _ => {
                let (now, max) = (self.now.wall, self.config.trace_max);
                self.traces.note(id, now, Event::Gone(gone), Stage::Over, max);
            }
        }
    }

    /// A traced job is about to go to its queue.
    #[cold]
    pub(super) fn trace_queued(&mut self, r: JobRef, nack: Nack) {
        let job = &self.jobs[r];
        let is_first = !job.flags().contains(JobFlags::BROADCAST_QUEUED);
        let why = match nack {
            Nack::Yes => QueuedFor::Nack,
            Nack::Uncounted | Nack::Enqueued => QueuedFor::Enqueue,
            Nack::No if job.is_given_back() => QueuedFor::Nack,
            Nack::No if is_first => QueuedFor::First,
            Nack::No => QueuedFor::Retry,
        };
        self.note_event(r, Event::Queued(why));
    }

    /// A traced job that is new here went to its queue.
    #[cold]
    pub(super) fn trace_first_queued(&mut self, r: JobRef) {
        let is_restart = self.storage.is_loading();
        let why = if is_restart { QueuedFor::Restart } else { QueuedFor::First };
        self.note_event(r, Event::Queued(why));
    }

    /// A client got a traced job, perhaps for so many seconds.
    #[cold]
    pub(super) fn trace_fetched(&mut self, r: JobRef, client: ClientId, lease_secs: Option<u32>) {
        self.note_event(r, Event::Fetched(client));
        if let Some(secs) = lease_secs.filter(|_| self.jobs[r].is_held()) {
            let ms = u64::from(secs) * 1000;
            self.note_event(r, Event::Held { why: HeldFor::Work, ms });
        }
    }

    /// A traced job goes from one queue to another.
    #[cold]
    pub(super) fn trace_move(&mut self, r: JobRef, to: &[u8], by: Option<NodeRef>) {
        let from = Text::new(&self.queues[self.jobs[r].queue].name);
        let moved = MovedBetween { from, to: Text::new(to), by };
        self.note_event(r, Event::Moved(Box::new(moved)));
    }

    /// What happened to a job on this node, the first event first. Empty for a job that is not
    /// traced, or not known.
    pub fn trace_of(&self, id: &JobId) -> Vec<TraceRow> {
        self.traces.rows(id, &self.cluster)
    }

    /// How many jobs are traced, those that are over among them.
    pub fn traced_count(&self) -> usize {
        self.traces.len()
    }

    /// There may be fewer traced jobs than before.
    pub(super) fn limit_traces(&mut self) {
        self.traces.shrink(self.config.trace_max);
    }

    /// Panics unless the table is in order.
    pub(super) fn check_traces(&self) {
        self.traces.check_invariants(self.config.trace_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> JobId {
        JobId(format!("D-00000000-{n:024}-05a1").into_bytes().try_into().expect("40 bytes"))
    }

    fn note(traces: &mut Traces, n: usize, event: Event, stage: Stage) {
        traces.note(&id(n), UnixMs(n as u64), event, stage, 100);
        traces.check_invariants(100);
    }

    #[test]
    fn of_any_number_of_jobs_those_that_are_over_go_first() {
        let mut traces = Traces::default();
        for n in 0..50 {
            note(&mut traces, n, Event::Loaded, Stage::Here);
        }
        for n in 50..100 {
            note(&mut traces, n, Event::Loaded, Stage::Here);
            note(&mut traces, n, Event::Gone(Gone::Collected), Stage::Over);
        }
        for n in 100..200 {
            note(&mut traces, n, Event::Loaded, Stage::Here);
            let oldest_over = if n < 150 { n - 49 } else { 100 };
            assert!(oldest_over >= 100 || traces.jobs.contains_key(&id(oldest_over)));
        }
        // Those that were over, then the oldest of the others.
        assert!((0..100).all(|n| !traces.jobs.contains_key(&id(n))));
        assert!((100..200).all(|n| traces.jobs.contains_key(&id(n))));
    }

    #[test]
    fn a_great_many_jobs_take_a_bounded_table() {
        let mut traces = Traces::default();
        for n in 0..100_000 {
            traces.note(&id(n), UnixMs(0), Event::Loaded, Stage::Here, 1000);
            if n % 3 == 0 {
                traces.note(&id(n), UnixMs(0), Event::Dequeued, Stage::Over, 1000);
            }
        }
        traces.check_invariants(1000);
        assert_eq!((traces.len(), traces.places.len()), (1000, 1000));
        traces.shrink(10);
        traces.check_invariants(10);
        traces.note(&id(1), UnixMs(0), Event::Loaded, Stage::Here, 0);
        assert_eq!(traces.len(), 10, "where nothing is kept nothing is noted");
    }

    #[test]
    fn a_job_that_comes_back_is_here_again() {
        let mut traces = Traces::default();
        note(&mut traces, 1, Event::Loaded, Stage::Here);
        note(&mut traces, 1, Event::Gone(Gone::Collected), Stage::Over);
        assert_eq!(traces.jobs[&id(1)].place.0, Stage::Over);
        note(&mut traces, 1, Event::Dequeued, Stage::Here);
        assert_eq!(traces.jobs[&id(1)].place.0, Stage::Here);
        traces.put(&id(2), Stage::Over);
        assert_eq!(traces.len(), 1, "who is not traced ends in silence");
    }

    #[test]
    fn one_in_n_is_sampled_and_samples_nest() {
        let count = |n: u64| (0..20_000).filter(|at| is_sampled(&id(*at), n)).count();
        assert_eq!((count(0), count(1)), (0, 20_000));
        assert!((1800..2200).contains(&count(10)), "{}", count(10));
        let nests = |at: &usize| !is_sampled(&id(*at), 100) || is_sampled(&id(*at), 10);
        assert!((0..20_000).all(|at| nests(&at)));
        assert!(!is_sampled(&id(1), u64::MAX));
    }

    #[test]
    fn which_jobs_are_sampled_is_for_good() {
        let sampled: Vec<usize> = (0..200).filter(|at| is_sampled(&id(*at), 50)).collect();
        assert_eq!(sampled, [91, 103, 190]);
    }
}
