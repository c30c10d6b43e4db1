//! One run: opens the connections, goes through the steps, and watches.
//!
//! Each step runs in fresh threads, one a worker, while the main thread draws the
//! progress line and takes a sample ten times a second. Server CPU is read before the
//! threads start and after they end, so it covers the step and nothing else.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use socket2::Socket;

use super::options::{self, AckCommand, BenchmarkOptions, Flow, Pace, Placement, Step, Workload};
use super::report::{FigureRow, Sample, ServerUse};
use super::request::Requests;
use super::worker::{Plan, RunClock, StepProgress, Tally, Worker};
use super::{RunFailure, closed, connection, flow, process};

/// The time between two samples of the throughput.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// What the threads do next.
#[derive(Clone, Copy)]
enum RunTask<'a> {
    Step(Step),
    Flow(&'a Flow),
}

/// A step's raw outcome.
struct Measured {
    tally: Tally,
    elapsed: Duration,
    server: Option<ServerUse>,
    samples: Vec<Sample>,
}

/// Does what the options say; one row or more for each step.
pub fn run(options: &BenchmarkOptions) -> Result<Vec<FigureRow>, RunFailure> {
    let plan = Plan {
        requests: Requests::new(options),
        options: options.clone(),
        clock: RunClock::start(),
    };
    let idle = open_idle(&plan)?;
    let mut workers = (0..options.threads)
        .map(|thread| {
            let numbers = numbers_of(thread, options);
            Worker::open(&plan, numbers, |number| server_of(options, number))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    match &options.workload {
        Workload::Steps(steps) => {
            for step in steps {
                let measured = measure(&mut workers, RunTask::Step(*step), &plan, options.jobs)?;
                rows.extend(rows_of_step(*step, measured));
            }
        }
        Workload::Flow(flow) => {
            let jobs = match flow.pace {
                Pace::Window(_) => options.jobs,
                Pace::Rate { per_second, length } => {
                    (per_second * length.as_secs_f64()).round() as u64
                }
            };
            let measured = measure(&mut workers, RunTask::Flow(flow), &plan, jobs)?;
            rows.extend(rows_of_flow(flow, options, measured));
        }
    }
    drop(idle);
    Ok(rows)
}

fn open_idle(plan: &Plan) -> Result<Vec<Socket>, RunFailure> {
    let servers = plan.options.servers.iter().cycle();
    let open = |server: &SocketAddr| {
        let login = plan.options.login.as_ref();
        connection::greet(*server, login, &plan.requests.hello).map_err(RunFailure::Greeting)
    };
    servers.take(plan.options.idle).map(open).collect()
}

/// The connections of a thread, by number: every n-th, so that each thread has its part
/// of the producers and of the consumers.
fn numbers_of(thread: usize, options: &BenchmarkOptions) -> impl Iterator<Item = usize> {
    (thread..options.clients).step_by(options.threads)
}

/// The server that a connection goes to.
fn server_of(options: &BenchmarkOptions, number: usize) -> SocketAddr {
    let servers = &options.servers;
    match &options.workload {
        Workload::Flow(Flow { placement: Placement::Apart, producers, .. }) => {
            match number.checked_sub(*producers) {
                None => servers[0],
                Some(consumer) => servers[1 + consumer % (servers.len() - 1)],
            }
        }
        _ => servers[number % servers.len()],
    }
}

/// Runs one task in all workers and measures it.
fn measure(
    workers: &mut [Worker],
    task: RunTask<'_>,
    plan: &Plan,
    jobs: u64,
) -> Result<Measured, RunFailure> {
    let pids = &plan.options.pids;
    let resident_before = process::resident_bytes(pids)?;
    let producing = match task {
        RunTask::Step(_) => 0,
        RunTask::Flow(flow) => flow.producers.min(workers.len()),
    };
    let cpu_before = process::cpu_ns(pids)?;
    let progress = StepProgress::start(plan, jobs, producing);
    let (ends, end) = mpsc::channel();
    let (outcomes, samples) = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(thread, worker)| {
                let (ends, progress) = (ends.clone(), &progress);
                scope.spawn(move || {
                    let outcome = work(worker, thread, task, plan, progress);
                    if outcome.is_err() {
                        progress.stop();
                    }
                    drop(ends);
                    outcome
                })
            })
            .collect();
        drop(ends);
        let samples = watch(&end, task, plan, jobs, &progress);
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        (outcomes, samples)
    });
    let cpu_after = process::cpu_ns(pids)?;
    let resident_after = process::resident_bytes(pids)?;
    let mut tally = Tally::new();
    for outcome in outcomes {
        tally.merge(&outcome?);
    }
    if let Some(refusal) = &tally.refusal {
        eprintln!("disque-benchmark: the first error reply was: {refusal}");
    }
    let server = (!pids.is_empty()).then_some(ServerUse {
        cpu_ns: cpu_after.saturating_sub(cpu_before),
        resident_before,
        resident_after,
    });
    let elapsed = Duration::from_nanos(tally.finished_at.saturating_sub(progress.started_at));
    Ok(Measured { tally, elapsed, server, samples })
}

fn work(
    worker: &mut Worker,
    thread: usize,
    task: RunTask<'_>,
    plan: &Plan,
    progress: &StepProgress,
) -> Result<Tally, RunFailure> {
    match task {
        RunTask::Step(step) => closed::run(worker, step, plan, progress),
        RunTask::Flow(flow) => {
            let numbers: Vec<_> = numbers_of(thread, &plan.options).collect();
            flow::run(worker, flow, &numbers, plan, progress)
        }
    }
}

/// Shows and samples the progress until all threads have dropped their ends.
fn watch(
    end: &Receiver<()>,
    task: RunTask<'_>,
    plan: &Plan,
    jobs: u64,
    progress: &StepProgress,
) -> Vec<Sample> {
    let bar = progress_bar(task, plan, jobs);
    let mut samples = Vec::new();
    let mut last = (progress.started_at, 0);
    loop {
        let over = end.recv_timeout(SAMPLE_EVERY) == Err(RecvTimeoutError::Disconnected);
        let now = plan.clock.now();
        let done = progress.done.load(Relaxed);
        let secs = now.saturating_sub(last.0) as f64 / 1e9;
        // The stretch before the end may be too short to be distinguished from noise.
        if !over || samples.is_empty() {
            samples.push(Sample {
                at_secs: now.saturating_sub(progress.started_at) as f64 / 1e9,
                per_second: (done - last.1) as f64 / secs.max(1e-9),
            });
        }
        last = (now, done);
        bar.set_position(done);
        if over {
            bar.finish_and_clear();
            return samples;
        }
    }
}

fn progress_bar(task: RunTask<'_>, plan: &Plan, jobs: u64) -> ProgressBar {
    let target = match plan.options.progress {
        options::ProgressLine::Shown => ProgressDrawTarget::stderr(),
        options::ProgressLine::Hidden => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {per_sec}")
        .expect("the template is well-formed");
    let name = match task {
        RunTask::Step(step) => step_name(step),
        RunTask::Flow(flow) => flow.name,
    };
    ProgressBar::with_draw_target(Some(jobs), target).with_style(style).with_message(name)
}

const fn step_name(step: Step) -> &'static str {
    match step {
        Step::Add => "add",
        Step::Get => "get",
        Step::Ack(AckCommand::AckJob) => "ack",
        Step::Ack(AckCommand::FastAck) => "fastack",
        Step::Drain => "drain",
        Step::Wait => "wait",
    }
}

/// The step's own row, which carries what it cost, and for a drain its second half.
fn rows_of_step(step: Step, measured: Measured) -> Vec<FigureRow> {
    let Measured { tally, elapsed, server, samples } = measured;
    let own_cpu_ns = tally.own_cpu_ns;
    let row = |name: &str, measure| FigureRow {
        name: name.into(),
        measure,
        elapsed,
        server,
        own_cpu_ns,
        samples,
    };
    match step {
        Step::Add => vec![row("add", tally.added)],
        Step::Get | Step::Wait => vec![row(step_name(step), tally.fetched)],
        Step::Ack(_) => vec![row(step_name(step), tally.acked)],
        Step::Drain => {
            let acks = FigureRow::beside("drain-ack", tally.acked, elapsed);
            vec![row("drain", tally.fetched), acks]
        }
    }
}

/// What was delivered, and beside it the replies to ADDJOB and ACKJOB.
fn rows_of_flow(flow: &Flow, options: &BenchmarkOptions, measured: Measured) -> Vec<FigureRow> {
    let Measured { tally, elapsed, server, samples } = measured;
    let consumed = flow.producers < options.clients;
    let main = if consumed { &tally.fetched } else { &tally.added };
    let mut rows = vec![FigureRow {
        name: flow.name.into(),
        measure: main.clone(),
        elapsed,
        server,
        own_cpu_ns: tally.own_cpu_ns,
        samples,
    }];
    if consumed {
        rows.push(FigureRow::beside(&format!("{}-add", flow.name), tally.added, elapsed));
    }
    if tally.acked.operations > 0 {
        rows.push(FigureRow::beside(&format!("{}-ack", flow.name), tally.acked, elapsed));
    }
    rows
}
