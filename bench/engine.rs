//! The engine alone, without sockets: nanoseconds and allocations a command, bytes a job.
//!
//! `cargo bench --bench engine [jobs]`; 1,000,000 jobs of 64 bytes unless said.

use disque::base::ids::{ClientId, NodeId};
use disque::base::memory::{self, CountingAllocator};
use disque::base::time::{MonoMs, Now, UnixMs};
use disque::engine::Engine;
use disque::engine::command::{self, Call};
use disque::engine::config::EngineConfig;
use disque::proto::reply::Resp;
use disque::proto::request::{self, Args, Parsed, RequestParser, Sender};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CLIENT: ClientId = ClientId { slot: 0, generation: 0 };
const NOW: Now = Now { wall: UnixMs(1_767_225_600_000), mono: MonoMs(86_400_000) };
const BODY: [u8; 64] = [b'x'; 64];
/// Commands between two drains of the replies, as in a turn with 50 clients of depth 16.
const DRAIN_EVERY: usize = 800;

/// Time that this thread was on a processor: other work on the machine does not count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number of nanoseconds")
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut input = Vec::new();
    request::encode(words, &mut input);
    input
}

/// Runs a command once a request, prints what one costs, and returns the replies.
fn measure(engine: &mut Engine, name: &str, mut requests: Vec<Vec<u8>>) -> Vec<u8> {
    let command = command::find(name.as_bytes()).expect("a command");
    let count = requests.len();
    let mut replies = Vec::with_capacity(count * 150);
    let mut ranges = Vec::new();
    let allocations = memory::allocations();
    let started_at = cpu_ns();
    for (i, input) in requests.iter_mut().enumerate() {
        let parsed = RequestParser::default().parse(input, &mut ranges, Sender::Authenticated);
        assert!(matches!(parsed, Ok(Parsed::Request { .. })));
        let call = Call { client: CLIENT, resp: Resp::V2, args: Args::new(input, &ranges) };
        engine.call(NOW, command, &call);
        if i % DRAIN_EVERY == 0 || i + 1 == count {
            replies.extend_from_slice(&engine.out.replies.bytes);
            engine.out.replies.bytes.clear();
            engine.out.replies.segments.clear();
        }
    }
    println!(
        "{name:<8} {:>6.0} ns {:>8.3} allocations",
        (cpu_ns() - started_at) as f64 / count as f64,
        (memory::allocations() - allocations) as f64 / count as f64
    );
    replies
}

fn main() {
    let count = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(1_000_000);
    let mut engine = Engine::new(EngineConfig::default(), NodeId([b'a'; 40]), [1; 32], NOW);
    let before = memory::used();
    let replies =
        measure(&mut engine, "addjob", vec![request(&[b"ADDJOB", b"q", &BODY, b"0"]); count]);
    let per_job = (memory::used() - before - replies.capacity()) as f64 / count as f64;
    println!("{per_job:>15.1} bytes a job, its body included");
    let ids: Vec<Vec<u8>> = replies.chunks(43).map(|line| line[1..41].to_vec()).collect();
    measure(&mut engine, "getjob", vec![request(&[b"GETJOB", b"NOHANG", b"FROM", b"q"]); count]);
    measure(&mut engine, "ackjob", ids.iter().map(|id| request(&[b"ACKJOB", id])).collect());
    assert_eq!(engine.job_count(), 0, "every job was acknowledged");
}
