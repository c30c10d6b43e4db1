//! What the threads of a run share, and what each of them keeps for itself.
//!
//! The [`Plan`] never changes. The [`StepProgress`] of a step is a handful of counters: jobs
//! are handed out from it, so that threads and connections share the work as they get
//! to it, and the main thread watches it. A [`Worker`] owns connections and runs a step
//! to its end in a thread of its own (`closed.rs`, `flow.rs`); what it measured comes
//! back as a [`Tally`].

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::connection::{Answer, BenchmarkConnection};
use super::options::BenchmarkOptions;
use super::peer::{ReplyKind, ReplyOutcome};
use super::request::Requests;
use super::{RunFailure, process};

/// Events taken from the selector at once.
const EVENTS_MAX: usize = 1024;
/// Bits of a stamp that hold nanoseconds: three days' worth.
const STAMP_TIME_BITS: u32 = 48;

/// Latencies above are counted as this: an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// What all threads read and nobody changes.
pub struct Plan {
    pub options: BenchmarkOptions,
    pub requests: Requests,
    pub clock: RunClock,
}

impl Plan {
    /// Does a consumer's work on so many fetched jobs: keeps the CPU busy for its length.
    pub fn work_on(&self, jobs: usize) {
        let length = self.options.work.saturating_mul(u32::try_from(jobs).unwrap_or(u32::MAX));
        if length.is_zero() {
            return;
        }
        let started = Instant::now();
        while started.elapsed() < length {
            std::hint::spin_loop();
        }
    }
}

/// Nanoseconds since the run began.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    start: Instant,
    /// Upper bits of this run's stamps, so that jobs left by another are recognized.
    tag: u64,
}

impl RunClock {
    /// Starts at 0.
    pub fn start() -> Self {
        let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let drawn = u64::from(since_1970.subsec_nanos() ^ std::process::id());
        Self { start: Instant::now(), tag: drawn << STAMP_TIME_BITS }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A point in time as it is written into a body.
    pub fn stamp(&self, at: u64) -> u64 {
        self.tag | at & ((1 << STAMP_TIME_BITS) - 1)
    }

    /// The point in time a body of this run carries.
    pub fn read_stamp(&self, stamp: u64) -> Option<u64> {
        (stamp >> STAMP_TIME_BITS == self.tag >> STAMP_TIME_BITS)
            .then_some(stamp & ((1 << STAMP_TIME_BITS) - 1))
    }
}

/// How far a step is.
pub struct StepProgress {
    /// Jobs nobody took on yet.
    left: AtomicU64,
    /// Jobs a flow sent, and those that were delivered or refused.
    pub sent: AtomicU64,
    pub settled: AtomicU64,
    /// Threads of a flow that have jobs to send.
    pub producing: AtomicUsize,
    /// What the rows of the report count.
    pub done: AtomicU64,
    stop: AtomicBool,
    pub started_at: u64,
    stop_at: u64,
}

impl StepProgress {
    /// A step of so many jobs that begins now, with so many threads that produce.
    pub fn start(plan: &Plan, jobs: u64, producing: usize) -> Self {
        let started_at = plan.clock.now();
        let length = plan.options.stop_after.map(nanoseconds);
        Self {
            left: AtomicU64::new(jobs),
            sent: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            producing: AtomicUsize::new(producing),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            started_at,
            stop_at: length.map_or(u64::MAX, |length| started_at.saturating_add(length)),
        }
    }

    /// Takes on up to `most` jobs; none are left when the time is up.
    pub fn take(&self, most: usize, now: u64) -> usize {
        if now >= self.stop_at || self.stop.load(Relaxed) {
            self.left.store(0, Relaxed);
            return 0;
        }
        let mut taken = 0;
        let most = most as u64;
        let update = |left: u64| {
            taken = left.min(most);
            Some(left - taken)
        };
        // The closure never refuses.
        let _ = self.left.fetch_update(Relaxed, Relaxed, update);
        taken as usize
    }

    /// Gives back jobs that were taken on and not found.
    pub fn give_back(&self, jobs: usize) {
        self.left.fetch_add(jobs as u64, Relaxed);
    }

    /// Whether all jobs were taken on.
    pub fn is_handed_out(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Ends the step early: another thread failed.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether the step is to end early.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// A length of time in the clock's unit.
pub fn nanoseconds(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// What is measured of one kind of request.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Jobs added, fetched or acknowledged, or waits that ended.
    pub operations: u64,
    /// Error replies.
    pub refused: u64,
    /// Nanoseconds.
    pub latency: Histogram<u64>,
}

impl Measure {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
            .expect("the bounds are in order and three digits are allowed");
        Self { operations: 0, refused: 0, latency }
    }

    fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
    }

    /// Counts a latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.latency.saturating_record(latency_ns);
    }
}

/// What one thread measured in one step.
#[derive(Clone, Debug)]
pub struct Tally {
    pub added: Measure,
    pub fetched: Measure,
    pub acked: Measure,
    /// When the last counted reply came.
    pub finished_at: u64,
    pub own_cpu_ns: Option<u64>,
    /// The first error reply.
    pub refusal: Option<String>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            added: Measure::new(),
            fetched: Measure::new(),
            acked: Measure::new(),
            finished_at: 0,
            own_cpu_ns: Some(0),
            refusal: None,
        }
    }

    /// Adds what another thread measured.
    pub fn merge(&mut self, other: &Self) {
        self.added.merge(&other.added);
        self.fetched.merge(&other.fetched);
        self.acked.merge(&other.acked);
        self.finished_at = self.finished_at.max(other.finished_at);
        self.own_cpu_ns = self.own_cpu_ns.zip(other.own_cpu_ns).map(|(a, b)| a + b);
        self.refusal = self.refusal.take().or_else(|| other.refusal.clone());
    }

    /// Counts a reply that came at `now`, and says how many jobs it stands for. The
    /// latency is the reply's; a flow records its deliveries itself.
    pub fn count(&mut self, answer: &Answer, now: u64) -> u64 {
        let measure = match answer.kind {
            ReplyKind::Add => &mut self.added,
            ReplyKind::Fetch | ReplyKind::Await => &mut self.fetched,
            ReplyKind::Ack => &mut self.acked,
            ReplyKind::Aside => return 0,
        };
        let ReplyOutcome::Done(jobs) = answer.outcome else {
            measure.refused += 1;
            return 0;
        };
        let jobs = match answer.kind {
            ReplyKind::Fetch | ReplyKind::Await => answer.fetched as u64,
            // LPUSH returns how long the list is.
            ReplyKind::Add => 1,
            ReplyKind::Ack | ReplyKind::Aside => jobs,
        };
        measure.operations += jobs;
        if answer.kind != ReplyKind::Await {
            measure.record(now.saturating_sub(answer.sent_at));
        }
        self.finished_at = now;
        jobs
    }
}

/// A thread's share of the connections.
pub struct Worker {
    pub poll: mio::Poll,
    pub events: mio::Events,
    pub connections: Vec<BenchmarkConnection>,
}

impl Worker {
    /// Opens the connections of these numbers; `server_of` says where each one goes.
    pub fn open(
        plan: &Plan,
        numbers: impl Iterator<Item = usize>,
        server_of: impl Fn(usize) -> SocketAddr,
    ) -> Result<Self, RunFailure> {
        let poll = mio::Poll::new().map_err(RunFailure::Selector)?;
        let BenchmarkOptions { clients, queues, .. } = plan.options;
        let mut connections = Vec::new();
        for number in numbers {
            let server = server_of(number);
            let login = plan.options.login.as_ref();
            let mut connection =
                BenchmarkConnection::open(server, login, number, clients, queues, &plan.requests)?;
            connection.register(&poll, mio::Token(connections.len()))?;
            connections.push(connection);
        }
        Ok(Self { poll, events: mio::Events::with_capacity(EVENTS_MAX), connections })
    }

    /// Waits for events, at most until `timeout` has passed.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), RunFailure> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(RunFailure::Selector(error)),
        }
    }

    /// Waits for events like [`Worker::wait`], to the tenth of a millisecond: the
    /// selector alone rounds up to whole ones on Linux, which would make every job of a
    /// schedule late.
    pub fn wait_precisely(&mut self, timeout: Duration) -> Result<(), RunFailure> {
        #[cfg(all(target_os = "linux", not(mio_unsupported_force_poll_poll)))]
        {
            use std::os::fd::AsRawFd;
            let mut selector =
                libc::pollfd { fd: self.poll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let timeout = libc::timespec {
                tv_sec: timeout.as_secs() as libc::time_t,
                tv_nsec: timeout.subsec_nanos().into(),
            };
            // SAFETY: one pollfd that lives on this stack, a timespec likewise, and no
            // signal mask. An error, such as a signal, ends the wait early.
            unsafe { libc::ppoll(&raw mut selector, 1, &raw const timeout, std::ptr::null()) };
            self.wait(Duration::ZERO)
        }
        #[cfg(any(not(target_os = "linux"), mio_unsupported_force_poll_poll))]
        self.wait(timeout)
    }

    /// Closes the books of a step.
    pub fn finish(&mut self, mut tally: Tally) -> Tally {
        tally.own_cpu_ns = process::own_cpu_ns();
        for connection in &mut self.connections {
            let refusal = connection.take_refusal();
            tally.refusal = tally.refusal.or(refusal);
        }
        tally
    }
}
