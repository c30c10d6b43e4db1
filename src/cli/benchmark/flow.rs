//! Flows: some connections add jobs while others wait for them and acknowledge them.
//!
//! Under a window the producers keep a number of jobs under way, and the flow goes as
//! fast as the servers let it. At a rate they follow a schedule that knows nothing of
//! the servers: a job that could not be sent in time counts from when it was due, so a
//! server that stands still for a moment shows in the latencies of all jobs that were
//! due meanwhile, not in one. The body carries that point in time to the consumer.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use super::RunFailure;
use super::connection::BenchmarkConnection;
use super::options::{AckCommand, Flow, Pace};
use super::peer::ReplyKind;
use super::worker::{Plan, StepProgress, Tally, Worker, nanoseconds};

/// A flow whose jobs are all sent ends when no reply has come for so long; what is
/// missing then is lost, or waits for a retry.
const QUIET_MAX: Duration = Duration::from_secs(10);
/// The longest wait for an event; then the loop checks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Jobs of a schedule between two reads of the replies when it is behind: then there is
/// no wait in which they would be read.
const SERVE_EVERY: u64 = 64;
/// How soon a stalled producer checks the window when other threads serve consumers.
const WINDOW_LOOK_EVERY: Duration = Duration::from_millis(1);

/// The part of a flow that runs in one thread.
struct Share<'a> {
    plan: &'a Plan,
    progress: &'a StepProgress,
    tally: Tally,
    /// Whether there are consumers; without them the reply to its producer settles a job.
    consumed: bool,
    last_reply_at: u64,
    last_stamp: u64,
}

/// When jobs are due at a rate.
struct Schedule {
    start_at: u64,
    step_ns: f64,
    jobs: u64,
    due: u64,
}

impl Schedule {
    fn next_at(&self) -> Option<u64> {
        (self.due < self.jobs).then(|| self.start_at + (self.due as f64 * self.step_ns) as u64)
    }
}

/// Runs `worker`'s part of the flow; `numbers` are its connections' numbers in the run.
pub fn run(
    worker: &mut Worker,
    flow: &Flow,
    numbers: &[usize],
    plan: &Plan,
    progress: &StepProgress,
) -> Result<Tally, RunFailure> {
    let own_producers = numbers.iter().filter(|number| **number < flow.producers).count();
    let mut share = Share {
        plan,
        progress,
        tally: Tally::new(),
        consumed: flow.producers < plan.options.clients,
        last_reply_at: plan.clock.now(),
        last_stamp: 0,
    };
    for (connection, number) in worker.connections.iter_mut().zip(numbers) {
        if *number >= flow.producers {
            connection.fetch_or_wait(&plan.requests, plan.clock.now());
            connection.flush()?;
        }
    }
    match flow.pace {
        _ if own_producers == 0 => {}
        Pace::Window(window) => {
            share.run_window(worker, own_producers, window)?;
            progress.producing.fetch_sub(1, Release);
        }
        Pace::Rate { per_second, length } => {
            let part = own_producers as f64 / flow.producers as f64;
            let jobs = per_second * length.as_secs_f64() * part;
            let schedule = Schedule {
                start_at: plan.clock.now(),
                step_ns: 1e9 / (per_second * part),
                jobs: jobs.round() as u64,
                due: 0,
            };
            share.run_schedule(worker, own_producers, schedule)?;
            progress.producing.fetch_sub(1, Release);
        }
    }
    share.settle(worker)?;
    Ok(worker.finish(share.tally))
}

impl Share<'_> {
    fn run_window(
        &mut self,
        worker: &mut Worker,
        producers: usize,
        window: u64,
    ) -> Result<(), RunFailure> {
        while !self.progress.is_handed_out() && !self.progress.is_stopped() {
            let mut stalled = false;
            for connection in &mut worker.connections[..producers] {
                if !connection.is_idle() {
                    continue;
                }
                let under_way = self.progress.sent.load(Relaxed) as i64
                    - self.progress.settled.load(Relaxed) as i64;
                if under_way >= window as i64 {
                    stalled = true;
                    break;
                }
                let now = self.plan.clock.now();
                let jobs = self.progress.take(self.plan.options.depth, now);
                self.progress.sent.fetch_add(jobs as u64, Relaxed);
                for _ in 0..jobs {
                    self.add(connection, now);
                }
                connection.flush()?;
            }
            let alone = self.plan.options.threads == 1;
            worker.wait(if stalled && !alone { WINDOW_LOOK_EVERY } else { LOOK_EVERY })?;
            self.serve(worker)?;
        }
        Ok(())
    }

    fn run_schedule(
        &mut self,
        worker: &mut Worker,
        producers: usize,
        mut schedule: Schedule,
    ) -> Result<(), RunFailure> {
        while let Some(next_at) = schedule.next_at() {
            if self.progress.is_stopped() {
                break;
            }
            let now = self.plan.clock.now();
            if next_at > now {
                worker.wait_precisely(Duration::from_nanos(next_at - now))?;
                self.serve(worker)?;
                continue;
            }
            let connection = &mut worker.connections[schedule.due as usize % producers];
            self.progress.sent.fetch_add(1, Relaxed);
            self.add(connection, next_at);
            connection.flush()?;
            schedule.due += 1;
            if schedule.due.is_multiple_of(SERVE_EVERY) {
                worker.wait(Duration::ZERO)?;
                self.serve(worker)?;
            }
        }
        Ok(())
    }

    /// Waits for the jobs that are under way.
    fn settle(&mut self, worker: &mut Worker) -> Result<(), RunFailure> {
        let quiet_max = nanoseconds(QUIET_MAX);
        while !self.progress.is_stopped() {
            let own = worker.connections.iter().all(BenchmarkConnection::is_settled);
            if own && self.is_over() {
                break;
            }
            if self.plan.clock.now().saturating_sub(self.last_reply_at) > quiet_max {
                break;
            }
            worker.wait(LOOK_EVERY)?;
            self.serve(worker)?;
        }
        Ok(())
    }

    /// Whether every job that will be sent is delivered or refused.
    fn is_over(&self) -> bool {
        let progress = self.progress;
        progress.producing.load(Acquire) == 0
            && progress.settled.load(Relaxed) >= progress.sent.load(Relaxed)
    }

    fn add(&mut self, connection: &mut BenchmarkConnection, due_at: u64) {
        // Each body is different: a reliable list finds a job by it.
        self.last_stamp = due_at.max(self.last_stamp + 1);
        connection.add(&self.plan.requests, self.plan.clock.stamp(self.last_stamp), due_at);
    }

    /// Handles the events of the last wait.
    fn serve(&mut self, worker: &mut Worker) -> Result<(), RunFailure> {
        for event in &worker.events {
            let connection = &mut worker.connections[event.token().0];
            if event.is_writable() {
                connection.flush()?;
            }
            if event.is_readable() {
                connection.fill()?;
                self.take_replies(connection)?;
            }
        }
        Ok(())
    }

    fn take_replies(&mut self, connection: &mut BenchmarkConnection) -> Result<(), RunFailure> {
        let now = self.plan.clock.now();
        let refused_before = self.tally.added.refused;
        let mut delivered = 0;
        let mut answered = 0;
        let mut fetched = 0;
        let mut waiting = true;
        while let Some(answer) = connection.next_reply(self.plan.options.peer)? {
            self.last_reply_at = now;
            let jobs = self.tally.count(&answer, now);
            match answer.kind {
                ReplyKind::Add => answered += jobs,
                ReplyKind::Await => {
                    delivered += jobs;
                    fetched += answer.fetched;
                    waiting = false;
                    for job in connection.fetched_last(answer.fetched) {
                        let due_at = job.stamp.and_then(|stamp| self.plan.clock.read_stamp(stamp));
                        if let Some(due_at) = due_at {
                            self.tally.fetched.record(now.saturating_sub(due_at));
                        }
                    }
                }
                ReplyKind::Fetch | ReplyKind::Ack | ReplyKind::Aside => {}
            }
        }
        self.plan.work_on(fetched);
        let refused = self.tally.added.refused - refused_before;
        let done = if self.consumed { delivered } else { answered };
        self.progress.settled.fetch_add(done + refused, Relaxed);
        self.progress.done.fetch_add(done, Relaxed);
        if waiting {
            return Ok(());
        }
        while connection.unacked() > 0 {
            let count = self.plan.options.count;
            connection.acknowledge(&self.plan.requests, AckCommand::AckJob, count, now);
        }
        if !self.is_over() {
            connection.fetch_or_wait(&self.plan.requests, now);
        }
        connection.flush()
    }
}
