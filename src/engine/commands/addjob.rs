//! ADDJOB: a job enters the cluster.

use crate::base::memory;
use crate::base::time::{MonoMs, UnixMs};
use crate::engine::Engine;
use crate::engine::arguments::{Arguments, deadline, is, queue_name};
use crate::engine::command::{Call, CommandResult, EngineCommand, Outcome, row};
use crate::engine::error::CommandError;
use crate::engine::jobs::{JobFlags, NewJob};
use crate::engine::node_set::{ME, NodeSet};
use crate::engine::policy::PolicyWord;
use crate::engine::queue::QueueRef;
use crate::engine::records::saturate_u32;
use crate::engine::replication::{Confirm, WantedCopies};
use crate::engine::trace::{Event, Gone, Refusal};
use crate::proto::attributes::{
    AttributeStream, KeptAttributes, Tag, USER_ATTRIBUTES_MAX, USER_BYTES_MAX, USER_NAME_MAX,
};
use crate::proto::job_limits::{DEAD_QUEUE_MAX, Limits};
use crate::proto::priority::Priority;

pub(in crate::engine) static COMMANDS: &[EngineCommand] = &[row("addjob", addjob)];

const TTL_DEFAULT_SECS: u64 = 86_400;
/// Copies wanted when nothing is said, in a cluster that has as many nodes.
const REPLICATE_DEFAULT: u64 = 3;
/// Retry is a tenth of the TTL when nothing is said, and at most this. C: JOB_DEFAULT_RETRY_MAX.
const RETRY_DEFAULT_MAX_SECS: u64 = 300;

/// Whether the producer waits for the copies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    Awaited,
    Async,
}

/// What an ADDJOB asks for, in the widths that a job has.
struct AddJob<'a> {
    queue: &'a [u8],
    body: &'a [u8],
    deadline: MonoMs,
    repl: u16,
    /// How many copies its producer waits for.
    sync: u16,
    /// In how many zones these have to be; 0 for any.
    zones: u16,
    ttl_secs: u32,
    retry_secs: u32,
    delay_secs: u32,
    /// 0 when the queue may have any length.
    queue_len_max: u64,
    copies: Copies,
    priority: Priority,
    attributes: Vec<Attribute<'a>>,
    limits: Limits<'a>,
    /// Nothing, or that the job is traced.
    trace: JobFlags,
}

/// The name and the value of an attribute.
type Attribute<'a> = (&'a [u8], &'a [u8]);

/// ADDJOB queue body ms-timeout [REPLICATE n] [SYNC n] [ZONES n] [TTL s] [RETRY s] [DELAY s]
/// [MAXLEN n] [ASYNC] [PRIORITY p] [ATTR name value ...] [MAXDELIVERIES n] [DEADQUEUE queue]
/// [TRACE] -> status: the job's ID. For what is not said the policies of
/// the queue count first.
///
/// Options come in any order. TTL, RETRY and DELAY that do not fit their 32 bits are
/// kept at the maximum. Nothing is done unless everything is valid.
pub fn addjob(engine: &mut Engine, call: &Call<'_>) -> CommandResult {
    let request = parse(engine, call)?;
    let queue = engine.queues.find(request.queue);
    let is_external = engine.must_store_elsewhere(request.sync);
    let copies_elsewhere = usize::from(request.sync) - usize::from(!is_external);
    let goes_on = request.sync < request.repl;
    check(engine, &request, queue, copies_elsewhere)?;
    let may_have = if is_external { NodeSet::default() } else { NodeSet::me() };
    let new = describe(engine, &request, queue, may_have);
    let id = new.id;
    let zones_elsewhere = match request.zones {
        0 => 0,
        zones => engine.zones_elsewhere(zones, is_external),
    };
    let waits = copies_elsewhere > 0 || zones_elsewhere > 0;
    if !waits && request.delay_secs == 0 && !goes_on {
        let r = engine.register_queued(new, || Event::Added(call.client));
        engine.log_loadjob(r);
    } else if waits && request.copies == Copies::Awaited {
        // Who keeps no copy leaves the further ones to a node that does.
        let asked = match is_external {
            true => copies_elsewhere,
            false => usize::from(request.repl) - 1,
        };
        // A copy here that is in no zone is one more.
        let asked = asked.max(zones_elsewhere);
        let copies = WantedCopies { wanted: request.sync, zones: request.zones, asked };
        engine.await_copies(call, new, copies, request.deadline);
        return Ok(Outcome::Blocked);
    } else if goes_on {
        let r = engine.register(new, || Event::Added(call.client));
        engine.begin_late_copies(r, &[ME]);
        engine.replicate(r, usize::from(request.repl) - 1, Confirm::Yes);
        engine.release_to_queue(r);
    } else {
        let r = engine.register(new, || Event::Added(call.client));
        let sent = engine.replicate(r, copies_elsewhere, Confirm::No);
        if is_external && sent == 0 {
            engine.forget(r, Gone::Refused(Refusal::Nodes));
            return Err(CommandError::NotEnoughNodes);
        }
        if is_external {
            let holders = engine.jobs.may_have(r).to_vec();
            engine.enqueue_elsewhere(r, &holders, false);
            engine.forget(r, Gone::PassedOn);
        } else {
            engine.release_to_queue(r);
        }
    }
    engine.reply(call.client, call.resp).status(id.0);
    Ok(Outcome::Done)
}

fn parse<'a>(engine: &mut Engine, call: &'a Call<'_>) -> Result<AddJob<'a>, CommandError> {
    let (mut replicate, mut sync, mut zones) = (None, None, 0);
    let (mut ttl, mut retry, mut delay) = (None, None, 0);
    let (mut queue_len_max, mut copies, mut attributes) = (None, Copies::Awaited, Vec::new());
    let mut priority = Priority::DEFAULT;
    let mut limits = Limits::default();
    let mut trace = JobFlags::default();
    let mut arguments = Arguments::new(call.args, 4);
    while let Some(option) = arguments.next() {
        if is(option, "replicate") {
            let copies = arguments.number(1, CommandError::Replicate)?;
            if copies > u64::from(u16::MAX) {
                return Err(CommandError::Replicate);
            }
            replicate = Some(copies);
        } else if is(option, "sync") {
            sync = Some(u64::from(arguments.named_number(1, CommandError::Sync)?));
        } else if is(option, "zones") {
            zones = u64::from(arguments.named_number(1, CommandError::Zones)?);
        } else if is(option, "ttl") {
            ttl = Some(arguments.number(1, CommandError::Ttl)?);
        } else if is(option, "retry") {
            retry = Some(arguments.number(0, CommandError::Retry)?);
        } else if is(option, "delay") {
            delay = arguments.number(0, CommandError::Delay)?;
        } else if is(option, "maxlen") {
            queue_len_max = Some(arguments.number(1, CommandError::Maxlen)?);
        } else if is(option, "async") {
            copies = Copies::Async;
        } else if is(option, "priority") {
            priority = arguments.priority()?;
        } else if is(option, "trace") {
            trace = JobFlags::TRACE;
        } else if is(option, "attr") {
            add_attribute(&mut attributes, &mut arguments)?;
        } else if is(option, "maxdeliveries") {
            let number = arguments.named_number(0, CommandError::MaxDeliveries)?;
            let number = u16::try_from(number).map_err(|_| CommandError::MaxDeliveries)?;
            limits.max_deliveries = Some(number);
        } else if is(option, "deadqueue") {
            let is_name = |name: &&[u8]| (1..=DEAD_QUEUE_MAX).contains(&name.len());
            let name = arguments.next().filter(is_name);
            limits.dead_queue = Some(name.ok_or(CommandError::DeadQueue)?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let deadline = deadline(&call.args[3], engine.now.mono)?;
    let size = engine.cluster.size() as u64;
    let mut default_sync = None;
    if let Some(policy) = engine.policy_of(&call.args[1]) {
        let copies = policy.number(PolicyWord::DefaultReplicate).map(|copies| copies.min(size));
        replicate = replicate.or(copies);
        default_sync = policy.number(PolicyWord::DefaultSync);
        ttl = ttl.or(policy.number(PolicyWord::DefaultTtl).filter(|ttl| delay < *ttl));
        retry = retry.or(policy.number(PolicyWord::DefaultRetry));
        queue_len_max = queue_len_max.or(policy.number(PolicyWord::MaxLen));
    }
    let replicate = replicate.unwrap_or(size.min(REPLICATE_DEFAULT));
    if zones > replicate || zones > 0 && copies == Copies::Async {
        return Err(CommandError::Zones);
    }
    let sync = match (sync, copies) {
        (Some(_), Copies::Async) => return Err(CommandError::SyncWithAsync),
        (Some(sync), Copies::Awaited) if sync > replicate => return Err(CommandError::Sync),
        (Some(sync), Copies::Awaited) => sync,
        (None, Copies::Awaited) => default_sync.unwrap_or(replicate).min(replicate),
        (None, Copies::Async) => replicate,
    };
    let ttl = ttl.unwrap_or(TTL_DEFAULT_SECS);
    if replicate > 1 && retry == Some(0) {
        return Err(CommandError::RetryZeroNeedsOneCopy);
    }
    if delay >= ttl {
        return Err(CommandError::DelayBeyondTtl);
    }
    let retry = retry.unwrap_or_else(|| (ttl / 10).clamp(1, RETRY_DEFAULT_MAX_SECS));
    // The TTL's end is kept as 32 bits of unix seconds.
    let ttl_max = u64::from(u32::MAX).saturating_sub(engine.now.wall.secs());
    Ok(AddJob {
        queue: queue_name(&call.args[1])?,
        body: &call.args[2],
        deadline,
        repl: replicate as u16,
        sync: sync as u16,
        zones: zones as u16,
        ttl_secs: saturate_u32(ttl.min(ttl_max)),
        retry_secs: saturate_u32(retry),
        delay_secs: saturate_u32(delay),
        queue_len_max: queue_len_max.unwrap_or(0),
        copies,
        priority,
        attributes,
        limits,
        trace,
    })
}

/// Takes the name and the value behind an ATTR.
fn add_attribute<'a>(
    attributes: &mut Vec<Attribute<'a>>,
    arguments: &mut Arguments<'a>,
) -> Result<(), CommandError> {
    let (Some(name), Some(value)) = (arguments.next(), arguments.next()) else {
        return Err(CommandError::AttributeIncomplete);
    };
    if !(1..=USER_NAME_MAX).contains(&name.len()) || !name.iter().all(u8::is_ascii_graphic) {
        return Err(CommandError::AttributeName);
    }
    if attributes.iter().any(|(other, _)| *other == name) {
        return Err(CommandError::AttributeTwice(String::from_utf8_lossy(name).into_owned()));
    }
    attributes.push((name, value));
    if attributes.len() > USER_ATTRIBUTES_MAX {
        return Err(CommandError::TooManyAttributes);
    }
    let byte_count: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    if byte_count > USER_BYTES_MAX {
        return Err(CommandError::AttributesTooLong);
    }
    Ok(())
}

/// Whether the job can be taken now. Of its copies, as many as given have to be on other nodes.
fn check(
    engine: &Engine,
    request: &AddJob<'_>,
    queue: Option<QueueRef>,
    copies_elsewhere: usize,
) -> Result<(), CommandError> {
    let is_external = copies_elsewhere == usize::from(request.sync);
    if request.zones > 0 {
        // An at-most-once job that is kept here is nowhere else.
        let stays = !is_external && request.retry_secs == 0;
        let takers = engine.cluster.takers().filter(|_| !stays);
        let me = (!is_external).then_some(ME);
        if usize::from(request.zones) > engine.cluster.count_zones(takers.chain(me)) {
            return Err(CommandError::NotEnoughZones);
        }
    }
    let reachable = engine.cluster.reachable_count();
    if copies_elsewhere > reachable {
        if is_external && copies_elsewhere - 1 == reachable {
            return Err(CommandError::NotEnoughNodesWithoutMe(if engine.cluster.is_leaving() {
                "I'm leaving the cluster"
            } else {
                "I'm out of memory"
            }));
        }
        return Err(CommandError::NotEnoughNodes);
    }
    if let Some(queue) = queue.and_then(|q| engine.queues[q].live()) {
        if request.queue_len_max > 0 && queue.jobs.len() as u64 >= request.queue_len_max {
            return Err(CommandError::QueueTooLong);
        }
        if queue.pause.is_in() {
            return Err(CommandError::Paused);
        }
    }
    Ok(())
}

/// The job that is asked for, as it begins.
fn describe(
    engine: &mut Engine,
    request: &AddJob<'_>,
    queue: Option<QueueRef>,
    may_have: NodeSet,
) -> NewJob {
    let now = engine.now;
    let random = engine.rng.bytes();
    let me = engine.cluster.my_id();
    let id = engine.jobs.new_id(me, random, request.ttl_secs, request.retry_secs);
    // C: job.c addjobCommand: the clock's milliseconds, and a counter within each.
    engine.last_ctime = (now.wall.0 * 1_000_000).max(engine.last_ctime + 1);
    let expire_at_secs = now.wall.secs() + u64::from(request.ttl_secs);
    let attributes = keep_attributes(&request.attributes, request.limits);
    let flags = match attributes {
        None => JobFlags::default(),
        Some(_) => JobFlags::HAD_ATTRIBUTES,
    };
    NewJob {
        id,
        ctime: engine.last_ctime,
        body: memory::copy_of(request.body),
        queue: queue.unwrap_or_else(|| engine.queues.entry(request.queue)),
        expire_at: now.mono_at(UnixMs(expire_at_secs * 1000)),
        requeue_at: now.mono.plus_ms(u64::from(request.delay_secs) * 1000),
        delay_secs: request.delay_secs,
        retry_secs: request.retry_secs,
        repl: request.repl,
        nack_count: 0,
        delivery_count: 0,
        flags: flags.with(request.trace).with_priority(request.priority),
        may_have,
        attributes,
    }
}

fn keep_attributes(attributes: &[Attribute<'_>], limits: Limits<'_>) -> Option<KeptAttributes> {
    if attributes.is_empty() && limits.is_empty() {
        return None;
    }
    let mut stream = AttributeStream::default();
    attributes.iter().for_each(|(name, value)| stream.push_user(name, value));
    if !limits.is_empty() {
        stream.push(Tag::LIMITS, &[&limits.encode()]);
    }
    stream.keep()
}
