//! QSCAN and JSCAN: walks over all queues and all jobs, a part at a time.
//!
//! The cursor is a slot of the table. Slots do not move, so whatever is there during
//! the whole scan is returned at least once, however much is added or removed meanwhile.

use crate::base::limits::{COMMAND_SLICE, JSCAN_REPLY_MAX, SLICE_BYTES};
use crate::base::number::{parse_i64, parse_u64};
use crate::base::time::MonoMs;
use crate::engine::Engine;
use crate::engine::arguments::{Arguments, is};
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::{Job, STATE_NAMES};
use crate::engine::queue::QueueEntry;
use crate::engine::scope::QueueScope;
use crate::engine::view::View;
use crate::proto::reply::ReplyWriter;
use crate::proto::request::Args;

use super::{Blocks, LongCommand};

pub(in crate::engine) static COMMANDS: &[EngineCommand] =
    &[row("qscan", qscan), row("jscan", jscan)];

const COUNT_DEFAULT: usize = 100;
/// Slots that a scan visits for each element asked for, at most. C: server.h, count*10.
const VISITS_PER_ELEMENT: usize = 10;

/// Most queues that a JSCAN asks for: they are put in order in one go.
const QUEUES_MAX: usize = 1000;

/// A scan: what it asks for, and how far it has come.
pub struct Scan {
    sought: Sought,
    /// The queues that are shown, and whose jobs are; `None` for all.
    scope: Option<QueueScope>,
    range: Range,
    encoded: Blocks,
    /// Elements found.
    count: usize,
    /// Where the scan goes on.
    slot: u32,
    /// Slots visited.
    visits: usize,
}

enum Sought {
    Queues(QueueFilter),
    Jobs(JobFilter),
}

/// The options that both scans have.
struct Range {
    cursor: Option<u32>,
    count: usize,
    /// Go on until all is scanned, whatever it takes.
    busyloop: bool,
}

#[derive(Clone, Copy, Default)]
struct QueueFilter {
    len_min: Option<i64>,
    len_max: Option<i64>,
    import_rate_min: Option<i64>,
}

#[derive(Default)]
struct JobFilter {
    /// Where the names of queues stand, counted from the command's name; none at all means any
    /// queue. In the order of the names.
    queues_at: Vec<usize>,
    /// By number; none at all means any.
    states: [bool; STATE_NAMES.len()],
    /// Active jobs that wait for a time of their own.
    delayed: bool,
    form: JobForm,
}

/// How JSCAN presents a job.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum JobForm {
    #[default]
    Id,
    All,
}

impl Range {
    fn new() -> Self {
        Self { cursor: None, count: COUNT_DEFAULT, busyloop: false }
    }

    /// Takes an argument that no scan has for its own.
    fn take(&mut self, argument: &[u8], arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
        if is(argument, "count") {
            let count = integer(self.value(arguments)?)?;
            // C: queue.c qscanCommand, a negative COUNT has no end.
            self.count = usize::try_from(count).unwrap_or(usize::MAX).max(1);
        } else if is(argument, "busyloop") {
            self.busyloop = true;
        } else if self.cursor.is_some() {
            return Err(CommandError::Syntax);
        } else {
            let cursor = (!argument.is_empty()).then(|| parse_u64(argument)).flatten();
            let cursor = cursor.ok_or(CommandError::BadCursor)?;
            self.cursor = Some(u32::try_from(cursor).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// The argument that an option needs behind it; an option at the end counts as a cursor.
    fn value<'a>(&self, arguments: &mut Arguments<'a>) -> Result<&'a [u8], CommandError> {
        let second = self.cursor.is_some();
        arguments.next().ok_or(if second { CommandError::Syntax } else { CommandError::BadCursor })
    }
}

fn integer(argument: &[u8]) -> Result<i64, CommandError> {
    parse_i64(argument).ok_or(CommandError::NotAnInteger)
}

/// QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]
/// -> `[cursor, [queue names]]`; cursor 0 means that all was scanned.
pub fn qscan(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    scan(engine, call, parse_qscan)
}

fn parse_qscan(args: Args<'_>) -> Result<Scan, CommandError> {
    let mut range = Range::new();
    let mut filter = QueueFilter::default();
    let mut arguments = Arguments::new(args, 1);
    while let Some(option) = arguments.next() {
        if is(option, "minlen") {
            filter.len_min = Some(integer(range.value(&mut arguments)?)?);
        } else if is(option, "maxlen") {
            filter.len_max = Some(integer(range.value(&mut arguments)?)?);
        } else if is(option, "importrate") {
            filter.import_rate_min = Some(integer(range.value(&mut arguments)?)?);
        } else {
            range.take(option, &mut arguments)?;
        }
    }
    Ok(Scan::new(Sought::Queues(filter), range))
}

/// JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE q ...] [STATE s ...] [REPLY id|all]
/// -> `[cursor, [ids, or SHOW arrays]]`. Acks without a job are left out. With REPLY all it
/// ends early, and the cursor goes on, once it has [`JSCAN_REPLY_MAX`] bytes.
pub fn jscan(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    scan(engine, call, parse_jscan)
}

fn parse_jscan(args: Args<'_>) -> Result<Scan, CommandError> {
    let mut range = Range::new();
    let mut filter = JobFilter::default();
    let mut arguments = Arguments::new(args, 1);
    while let Some(option) = arguments.next() {
        if is(option, "queue") {
            if filter.queues_at.len() == QUEUES_MAX {
                return Err(CommandError::TooManyQueues);
            }
            filter.queues_at.push(arguments.position());
            range.value(&mut arguments)?;
        } else if is(option, "state") {
            let name = range.value(&mut arguments)?;
            match STATE_NAMES.iter().position(|state| is(name, state)) {
                Some(number) => filter.states[number] = true,
                None if is(name, "delayed") => filter.delayed = true,
                None => return Err(CommandError::BadStateName),
            }
        } else if is(option, "reply") {
            let form = range.value(&mut arguments)?;
            filter.form = match () {
                () if is(form, "id") => JobForm::Id,
                () if is(form, "all") => JobForm::All,
                () => return Err(CommandError::BadReplyType),
            };
        } else {
            range.take(option, &mut arguments)?;
        }
    }
    filter.queues_at.sort_by_key(|at| &args[*at]);
    Ok(Scan::new(Sought::Jobs(filter), range))
}

/// Visits one slot after the other, for as long as a slice lasts.
fn scan(
    engine: &mut Engine,
    call: &Call<'_>,
    parse: fn(Args<'_>) -> Result<Scan, CommandError>,
) -> CommandResult {
    let mut scan = match engine.long_commands.remove(&call.client) {
        Some(LongCommand::Scan(scan)) => scan,
        Some(LongCommand::Answer(rest)) => return Ok(engine.send_block(call, rest)),
        _ => Scan { scope: engine.scope.clone(), ..parse(call.args)? },
    };
    let visits_max = scan.range.count.saturating_mul(VISITS_PER_ELEMENT);
    let slice_bytes_max = scan.encoded.byte_count() + SLICE_BYTES;
    for _ in 0..COMMAND_SLICE {
        if scan.encoded.byte_count() >= slice_bytes_max {
            break;
        }
        let is_enough = scan.count >= scan.range.count || scan.visits >= visits_max;
        if (is_enough && !scan.range.busyloop) || scan.is_full() {
            let cursor = scan.slot;
            return Ok(finish(engine, call, scan, cursor));
        }
        let mut seen = None;
        scan.encoded.append(|block| {
            let mut reply = ReplyWriter::new(block, call.resp);
            let scope = scan.scope.as_ref();
            seen = scan.sought.visit(engine.view(), call.args, scan.slot, scope, &mut reply);
        });
        let Some((slot, found)) = seen else {
            return Ok(finish(engine, call, scan, 0));
        };
        scan.slot = slot + 1;
        scan.visits += 1;
        scan.count += usize::from(found);
    }
    engine.long_commands.insert(call.client, LongCommand::Scan(scan));
    Ok(Outcome::Again)
}

fn finish(engine: &mut Engine, call: &Call<'_>, scan: Scan, cursor: u32) -> Outcome {
    let mut reply = engine.reply(call.client, call.resp);
    reply.array(2);
    reply.bulk_integer(i64::from(cursor));
    reply.array(scan.count);
    engine.send_block(call, scan.encoded)
}

impl Scan {
    fn new(sought: Sought, range: Range) -> Self {
        let slot = range.cursor.unwrap_or(0);
        Self { sought, scope: None, range, encoded: Blocks::default(), count: 0, slot, visits: 0 }
    }

    /// Differs from C, which keeps jobs of any size in memory until all are found.
    fn is_full(&self) -> bool {
        matches!(self.sought, Sought::Jobs(JobFilter { form: JobForm::All, .. }))
            && self.encoded.byte_count() >= JSCAN_REPLY_MAX
    }
}

impl Sought {
    /// Writes what is at or behind a slot if it is wanted, and in the scope if there is one;
    /// returns where it was and whether it was written.
    fn visit(
        &self,
        view: View<'_>,
        args: Args<'_>,
        slot: u32,
        scope: Option<&QueueScope>,
        reply: &mut ReplyWriter<'_>,
    ) -> Option<(u32, bool)> {
        let shows = |queue: &[u8]| scope.is_none_or(|scope| scope.has(queue));
        match self {
            Self::Queues(filter) => {
                let q = view.queues.next_from(slot)?;
                let entry = &view.queues[q];
                let found = filter.matches(entry, view.now.mono) && shows(&entry.name);
                if found {
                    reply.bulk(&entry.name);
                }
                Some((q.slot(), found))
            }
            Self::Jobs(filter) => {
                let r = view.jobs.next_from(slot)?;
                let job = &view.jobs[r];
                let found = filter.matches(view, args, job) && shows(&view.queues[job.queue].name);
                match filter.form {
                    JobForm::All if found => view.write_job(reply, r),
                    JobForm::Id if found => reply.status(job.id.0),
                    JobForm::All | JobForm::Id => {}
                }
                Some((r.slot(), found))
            }
        }
    }
}

impl QueueFilter {
    fn matches(&self, entry: &QueueEntry, now: MonoMs) -> bool {
        entry.live().is_some_and(|queue| {
            let len = i64::try_from(queue.jobs.len()).unwrap_or(i64::MAX);
            let rate = i64::try_from(queue.imports.rate(now)).unwrap_or(i64::MAX);
            self.len_min.is_none_or(|min| len >= min)
                && self.len_max.is_none_or(|max| len <= max)
                && self.import_rate_min.is_none_or(|min| rate >= min)
        })
    }
}

impl JobFilter {
    fn matches(&self, view: View<'_>, args: Args<'_>, job: &Job) -> bool {
        let any_state = self.states == [false; STATE_NAMES.len()] && !self.delayed;
        let queue = &*view.queues[job.queue].name;
        let is_named = || self.queues_at.binary_search_by_key(&queue, |at| &args[*at]).is_ok();
        (self.queues_at.is_empty() || is_named())
            && (any_state
                || self.states[usize::from(job.state().number())]
                || self.delayed && job.is_delayed())
    }
}
