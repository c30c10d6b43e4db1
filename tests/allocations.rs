//! Allocations of the hot commands in the steady state: one for a job's body, none to
//! deliver or acknowledge it; and memory that does not grow. A guard without a clock.

use std::sync::{Mutex, PoisonError};

use disque::base::ids::{ClientId, NodeId};
use disque::base::memory::{self, CountingAllocator};
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::command::Outcome;
use disque::engine::config::EngineConfig;
use disque::engine::{Engine, More};
use disque::proto::reply::Resp;
use disque::proto::request::OwnedArgs;

/// Memory is counted for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CLIENT: ClientId = ClientId { slot: 0, generation: 0 };
const NOW: Now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(86_400_000) };
const JOBS: usize = 512;

/// Runs a command, and returns its reply and how often it allocated.
fn run(engine: &mut Engine, words: &[&[u8]]) -> (Vec<u8>, u64) {
    let words: OwnedArgs = words.iter().collect();
    let before = memory::allocations();
    let outcome = engine.call_words(NOW, CLIENT, Resp::V2, &words);
    let allocations = memory::allocations() - before;
    assert_eq!(outcome, Outcome::Done);
    let reply = engine.out.replies.bytes.clone();
    engine.out.replies.bytes.clear();
    engine.out.replies.segments.clear();
    (reply, allocations)
}

/// Adds, fetches and acknowledges `JOBS` jobs; returns the allocations of each step.
fn round(engine: &mut Engine) -> [u64; 3] {
    let mut totals = [0; 3];
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        let (reply, allocations) = run(engine, &[b"ADDJOB", b"q", b"body", b"0"]);
        ids.push(reply[1..41].to_vec());
        totals[0] += allocations;
    }
    for _ in 0..JOBS {
        totals[1] += run(engine, &[b"GETJOB", b"FROM", b"q"]).1;
    }
    for id in &ids {
        totals[2] += run(engine, &[b"ACKJOB", id]).1;
    }
    totals
}

#[test]
fn adding_allocates_a_body_and_delivering_and_acknowledging_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], NOW);
    // Tables, indexes and queues grow to their size first.
    for _ in 0..20 {
        round(&mut engine);
    }
    let [added, fetched, acked] = round(&mut engine);
    let jobs = JOBS as u64;
    // A queue's references come in chunks of 256, and the index shrinks and grows.
    assert!((jobs..=jobs + jobs / 16).contains(&added), "{added} for {jobs} jobs");
    assert!(fetched <= jobs / 16, "{fetched} for {jobs} jobs");
    assert!(acked <= jobs / 16, "{acked} for {jobs} jobs");
}

/// A hundred thousand queues that are used once: when they were idle for long enough they
/// are gone, and so is the memory that they took.
#[test]
fn short_lived_queues_give_their_memory_back() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [3; 32], NOW);
    round(&mut engine);
    let before = memory::used();
    for number in 0..100_000 {
        let queue = format!("a-queue-for-one-reply-{number}");
        let (reply, _) = run(&mut engine, &[b"ADDJOB", queue.as_bytes(), b"body", b"0"]);
        run(&mut engine, &[b"GETJOB", b"FROM", queue.as_bytes()]);
        assert_eq!(run(&mut engine, &[b"ACKJOB", &reply[1..41]]).0, b":1\r\n");
    }
    assert_eq!(engine.queue_count(), 100_001);
    let taken = memory::used() - before;
    let mut now = NOW;
    for _ in 0..4000 {
        (now.wall, now.mono) = (now.wall.plus_ms(100), now.mono.plus_ms(100));
        while engine.handle_timeout(now, 64) == More::Yes {}
    }
    assert_eq!(engine.queue_count(), 0);
    let kept = memory::used().saturating_sub(before);
    // The tables and indexes keep a little of their size.
    assert!(kept < taken / 20, "{kept} bytes of {taken} are kept");
}

/// Rounds of adding a few jobs, some of them empty or binary, and taking and acknowledging
/// all: once everything has its size, memory stays what it is.
#[test]
fn memory_is_flat_over_thousands_of_rounds() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [2; 32], NOW);
    let bodies: [&[u8]; 8] =
        [b"", b"a", b"\0\xff\r\n", &[0; 100], b"text", b"", &[7; 1000], b"last"];
    let mut after_warming_up = 0;
    for number in 0..15_000 {
        if number == 1000 {
            after_warming_up = memory::used();
        }
        let mut ids = Vec::new();
        for body in bodies {
            let (reply, _) = run(&mut engine, &[b"ADDJOB", b"q", body, b"0"]);
            ids.push(reply[1..41].to_vec());
        }
        let (jobs, _) = run(&mut engine, &[b"GETJOB", b"COUNT", b"100", b"FROM", b"q"]);
        assert!(jobs.starts_with(b"*8\r\n"), "all are delivered");
        let words: Vec<&[u8]> =
            [b"ACKJOB".as_slice()].into_iter().chain(ids.iter().map(Vec::as_slice)).collect();
        assert_eq!(run(&mut engine, &words).0, b":8\r\n");
    }
    let grown = memory::used().saturating_sub(after_warming_up);
    assert!(grown < 64 * 1024, "{grown} bytes more than after a thousand rounds");
}
