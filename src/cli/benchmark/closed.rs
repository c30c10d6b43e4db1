//! Closed loops: each connection sends a batch, waits until all of it is answered, and
//! sends the next, until the step's work is used up.

use std::time::Duration;

use super::RunFailure;
use super::connection::BenchmarkConnection;
use super::options::{AckCommand, AckOrder, Step};
use super::peer::ReplyKind;
use super::worker::{Plan, StepProgress, Tally, Worker};

/// The longest wait for an event; then the loop checks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a connection is at.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// Jobs asked for and jobs that came.
    asked: usize,
    came: usize,
    /// Fetches in the batches since the last that brought a job.
    in_vain: usize,
    finished: bool,
}

/// Runs one step over all connections of `worker`.
pub fn run(
    worker: &mut Worker,
    step: Step,
    plan: &Plan,
    progress: &StepProgress,
) -> Result<Tally, RunFailure> {
    let mut tally = Tally::new();
    let mut batches = vec![Batch::default(); worker.connections.len()];
    let mut active = batches.len();
    for (connection, batch) in worker.connections.iter_mut().zip(&mut batches) {
        if matches!(step, Step::Ack(_)) && plan.options.ack_order == AckOrder::Random {
            connection.shuffle_held();
        }
        send_batch(connection, batch, step, plan, progress)?;
        active -= usize::from(batch.finished);
    }
    while active > 0 && !progress.is_stopped() {
        worker.wait(LOOK_EVERY)?;
        for event in &worker.events {
            let index = event.token().0;
            let connection = &mut worker.connections[index];
            let batch = &mut batches[index];
            if event.is_writable() {
                connection.flush()?;
            }
            if !event.is_readable() || batch.finished {
                continue;
            }
            connection.fill()?;
            take_replies(connection, batch, step, plan, progress, &mut tally)?;
            if connection.is_idle() {
                send_batch(connection, batch, step, plan, progress)?;
                active -= usize::from(batch.finished);
            }
        }
    }
    Ok(worker.finish(tally))
}

fn take_replies(
    connection: &mut BenchmarkConnection,
    batch: &mut Batch,
    step: Step,
    plan: &Plan,
    progress: &StepProgress,
    tally: &mut Tally,
) -> Result<(), RunFailure> {
    let now = plan.clock.now();
    let mut done = 0;
    let came_before = batch.came;
    while let Some(answer) = connection.next_reply(plan.options.peer)? {
        let jobs = tally.count(&answer, now);
        batch.came += answer.fetched;
        match (step, answer.kind) {
            (Step::Drain, ReplyKind::Ack) => {}
            (Step::Wait, _) => {
                let due_at = answer.sent_at + plan.options.wait_timeout_ms * 1_000_000;
                tally.fetched.operations += 1;
                tally.fetched.record(now.saturating_sub(due_at));
                done += 1;
            }
            _ => done += jobs,
        }
    }
    plan.work_on(batch.came - came_before);
    progress.done.fetch_add(done, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// Sends a connection's next batch, or marks it finished.
fn send_batch(
    connection: &mut BenchmarkConnection,
    batch: &mut Batch,
    step: Step,
    plan: &Plan,
    progress: &StepProgress,
) -> Result<(), RunFailure> {
    let now = plan.clock.now();
    let depth = plan.options.depth;
    match step {
        Step::Add => {
            for nth in 0..progress.take(depth, now) as u64 {
                // Each body is different: a reliable list finds a job by it.
                connection.add(&plan.requests, plan.clock.stamp(now + nth), now);
            }
        }
        Step::Get => send_fetches(connection, batch, plan, progress, now),
        Step::Ack(command) => send_acks(connection, command, depth, plan, now),
        Step::Drain => {
            send_acks(connection, AckCommand::AckJob, usize::MAX, plan, now);
            if connection.is_idle() {
                send_fetches(connection, batch, plan, progress, now);
            }
        }
        Step::Wait => {
            for _ in 0..progress.take(1, now) {
                connection.wait(&plan.requests, now);
            }
        }
    }
    batch.finished = connection.is_idle();
    connection.flush()
}

fn send_fetches(
    connection: &mut BenchmarkConnection,
    batch: &mut Batch,
    plan: &Plan,
    progress: &StepProgress,
    now: u64,
) {
    let options = &plan.options;
    progress.give_back(batch.asked.saturating_sub(batch.came));
    let fetches = batch.asked.div_ceil(options.count);
    batch.in_vain = if batch.came == 0 { batch.in_vain + fetches } else { 0 };
    batch.asked = 0;
    batch.came = 0;
    // Then it has searched every queue and found it empty.
    if batch.in_vain >= options.queues as usize {
        return;
    }
    batch.asked = progress.take(options.depth * options.count, now);
    for _ in 0..batch.asked.div_ceil(options.count) {
        connection.fetch(&plan.requests, now);
    }
}

fn send_acks(
    connection: &mut BenchmarkConnection,
    command: AckCommand,
    requests_max: usize,
    plan: &Plan,
    now: u64,
) {
    let mut sent = 0;
    while connection.unacked() > 0 && sent < requests_max {
        connection.acknowledge(&plan.requests, command, plan.options.count, now);
        sent += 1;
    }
}
