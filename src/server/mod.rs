//! The server: the only place where engine, sockets, files and clock meet.
//!
//! One thread turns one loop. A turn:
//!
//! ```text
//! 1. poll until a socket is ready or something is due, and read the clock
//! 2. bytes to commands and messages, and those to the engine     pipeline, bus
//! 3. what is due in the engine, in quanta; what is due here      turn, cron
//! 4. clients whose wait is over go on with their pipelines       pipeline
//! 5. drain the lanes: disk, peers, clients                       lanes
//! 6. close who is to be closed                                   client
//! ```
//!
//! | module | what it is about |
//! |---|---|
//! | [`client`], `pipeline` | a client, from its arrival to its end; its requests |
//! | `other_protocols` | what is no request |
//! | [`command_table`], `gates`, `eviction` | which commands there are, and what lets them run |
//! | `bus` | links to other nodes |
//! | `lanes`, [`persistence`], [`nodes`], `working_dir` | what the engine emitted goes out, and to where |
//! | `cron`, [`clock`] | recurring work, time |
//! | [`config`], [`config_file`], [`command_line`] | settings |
//! | [`info`], [`stats`], [`slowlog`], [`latency`], [`monitor`] | what operators see |
//! | [`http`] | the same for programs that scrape and probe, and a page |
//! | `authentication`, [`users`], `permissions` | who a client is, and what it may do |
//! | `ping`, `keyspace` | what clients of Redis ask first |
//! | [`logger`], [`signals`], [`daemon`], [`banner`], [`identity`], [`shutdown`], [`watchdog`] | the process |

pub mod authentication;
pub mod banner;
mod bus;
pub mod client;
pub mod clock;
pub mod command_line;
pub mod command_names;
pub mod command_table;
pub mod config;
pub mod config_file;
mod cron;
pub mod daemon;
pub mod debug;
mod eviction;
mod gates;
pub mod http;
pub mod identity;
pub mod info;
mod keyspace;
mod lanes;
pub mod latency;
mod log_limit;
pub mod logger;
pub mod memory_check;
pub mod monitor;
mod network_access;
pub mod nodes;
mod other_protocols;
mod peers;
mod permissions;
pub mod persistence;
pub mod ping;
mod pipeline;
pub mod secrets;
pub mod seeds;
pub mod server_command;
pub mod shutdown;
pub mod signals;
pub mod slowlog;
pub mod stats;
mod unfinished;
pub mod users;
pub mod version;
pub mod watchdog;
mod working_dir;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::time::{Duration, Instant};

use crate::ae::event_loop::{EventLoop, FileEvent, Token};
use crate::ae::time_event::TimeTable;
use crate::base::ids::{ClientId, LinkId, NodeId};
use crate::base::limits::{BUS_PORT_OFFSET, INBOUND_LINKS_MAX, TIMER_QUANTUM};
use crate::base::memory;
use crate::base::time::MonoMs;
use crate::engine::command::Call;
use crate::engine::{Engine, More};
use crate::net::input::{ReadBuffer, Unfinished};
use crate::net::listener::{ListenError, Listener};
use crate::net::slots::Slots;
use crate::proto::reply::ReplyWriter;
use crate::proto::request::ArgRange;

/// Installed by the server's program; memory use is not known without it.
pub use crate::base::memory::CountingAllocator;

use bus::BusLink;
use client::Client;
use clock::Clock;
use command_table::CommandTable;
use config::Config;
use cron::ServerTimer;
use eviction::MemoryNews;
use http::{Http, HttpId};
use identity::Identity;
use latency::{LatencyEvent, LatencyMonitor};
use network_access::RefusedConnections;
use nodes::Nodes;
use other_protocols::OtherProtocols;
use persistence::Persistence;
use seeds::Seeds;
use shutdown::RewriteFirst;
use signals::Termination;
use slowlog::SlowLog;
use stats::ServerStats;
use watchdog::Watchdog;

/// The kind of the token under which signals are registered.
const SIGNAL_TOKENS: u8 = 4;
/// How long due work of the engine runs before clients have their turn again.
const DUE_WORK_MAX: Duration = Duration::from_micros(500);

/// Everything a running server has.
pub struct Server {
    pub config: Config,
    pub engine: Engine,
    pub clock: Clock,
    pub started_at: MonoMs,
    pub clients: Slots<Client>,
    /// The clients that watch every command.
    pub monitors: Vec<ClientId>,
    pub commands: CommandTable,
    pub persistence: Persistence,
    pub nodes: Nodes,
    pub stats: ServerStats,
    pub slowlog: SlowLog,
    pub latency: LatencyMonitor,
    pub identity: Identity,
    pub watchdog: Watchdog,
    http: Http,

    event_loop: EventLoop,
    timers: TimeTable<ServerTimer>,
    termination: Termination,
    listeners: Vec<Listener>,
    bus_listeners: Vec<Listener>,
    links: Slots<BusLink>,
    /// How many of them peers may have made.
    inbound_links_max: usize,
    /// The addresses links are made from.
    bus_sources: Vec<IpAddr>,
    is_shutting_down: bool,

    last_client_number: u64,
    /// Clients to be closed at the end of the turn.
    closing: Vec<ClientId>,
    /// Whether somebody could not be accepted for want of a file descriptor.
    is_starved: bool,
    /// Whether the log was told that clients are refused, and not yet that they are accepted.
    refuses_clients: bool,
    paused_until: MonoMs,
    other_protocols: OtherProtocols,
    refused_connections: RefusedConnections,
    next_client_slot: usize,

    read_buffer: ReadBuffer,
    memory_news: MemoryNews,
    seeds: Seeds,
    /// Of the process, when its load was measured last.
    cpu_secs_before: f64,
    /// What all clients and links together have sent and is not processed yet.
    unfinished: Unfinished,
    /// Where the arguments of the current request stand; empty between requests.
    args: Vec<ArgRange>,
    /// When the share of the client whose turn it is will be used up.
    share_ends_at: Instant,
    /// When the command that runs began, or the one before it ended.
    command_started_at: Instant,
    /// The replies of a turn by client; empty between drains.
    sorted_replies: Vec<(ClientId, usize, usize)>,
}

/// Why the server could not start: a sentence for the log.
#[derive(Debug)]
pub struct StartError(pub String);

impl From<ListenError> for StartError {
    fn from(e: ListenError) -> Self {
        Self(format!("Creating listening socket {}: {}", e.address, e.error))
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl Server {
    /// Opens the sockets. Clients are served once [`Server::run`] is called.
    pub fn start(mut config: Config, identity: Identity) -> Result<Self, StartError> {
        let links_max = daemon::settle_maxclients(&mut config).map_err(StartError)?;
        let commands = CommandTable::new(&config.rename_commands).map_err(StartError)?;
        let clock = Clock::start();
        let mut listeners = Listener::bind_all(&config.bind, config.port, config.tcp_backlog)?;
        if let Some(path) = &config.unixsocket {
            let listener = Listener::bind_unix(path, config.unixsocketperm, config.tcp_backlog)?;
            listeners.push(listener);
        }
        let bus_port = config.port + BUS_PORT_OFFSET;
        let bus_listeners = Listener::bind_all(&config.bind, bus_port, config.tcp_backlog)?;
        let http = Http::bind(&config.http_bind, config.http_port, config.tcp_backlog)?;
        let mut event_loop = EventLoop::new()?;
        let disk_token = Token { kind: persistence::DISK_TOKENS, slot: 0, generation: 0 };
        let waker = event_loop.waker(disk_token)?;
        let wake = Box::new(move || {
            if let Err(e) = waker.wake() {
                log::warn!("The disk's thread can't wake the loop: {e}");
            }
        });
        let persistence =
            Persistence::start(&config, clock.now, random()?, wake).map_err(StartError)?;
        let (nodes, read) = Nodes::open(&config.cluster_config_file).map_err(StartError)?;
        let me = match nodes::my_id(&read.lines) {
            Some(me) => me,
            None => NodeId::from_random(random()?),
        };
        let engine_config = config.for_engine(persistence.enqueue_at_load(&config));
        let mut engine = Engine::new(engine_config, me, random()?, clock.now);
        engine.load_nodes(clock.now, &read.lines);
        engine.load_tombstones(clock.now, &read.tombstones);
        engine.out.save_nodes = read.lines.is_empty();
        let mut server = Self {
            bus_sources: bus::source_addresses(&config.bind),
            config,
            engine,
            started_at: clock.now.mono,
            clock,
            clients: Slots::new(),
            monitors: Vec::new(),
            commands,
            persistence,
            nodes,
            stats: ServerStats::default(),
            slowlog: SlowLog::default(),
            latency: LatencyMonitor::default(),
            identity,
            watchdog: Watchdog::default(),
            http,
            event_loop,
            timers: TimeTable::new(),
            termination: Termination::new()?,
            listeners,
            bus_listeners,
            links: Slots::new(),
            inbound_links_max: INBOUND_LINKS_MAX.min(links_max / 2),
            is_shutting_down: false,
            last_client_number: 0,
            closing: Vec::new(),
            is_starved: false,
            refuses_clients: false,
            paused_until: MonoMs(0),
            other_protocols: OtherProtocols::default(),
            refused_connections: RefusedConnections::default(),
            next_client_slot: 0,
            read_buffer: ReadBuffer::new(),
            memory_news: MemoryNews::default(),
            seeds: Seeds::default(),
            cpu_secs_before: info::cpu_secs(),
            unfinished: Unfinished::default(),
            args: Vec::new(),
            share_ends_at: Instant::now(),
            command_started_at: Instant::now(),
            sorted_replies: Vec::new(),
        };
        server.register()?;
        server.start_timers(server.config.hz);
        server.start_http();
        server.begin_seeds();
        server.begin_loading().map_err(StartError)?;
        Ok(server)
    }

    fn register(&mut self) -> io::Result<()> {
        let kinds = [
            (client::life::LISTENER_TOKENS, &mut self.listeners),
            (bus::LISTENER_TOKENS, &mut self.bus_listeners),
            (http::LISTENER_TOKENS, self.http.listeners_mut()),
        ];
        for (kind, listeners) in kinds {
            for (slot, listener) in (0..).zip(listeners) {
                listener.register(&self.event_loop, Token { kind, slot, generation: 0 })?;
            }
        }
        let token = Token { kind: SIGNAL_TOKENS, slot: 0, generation: 0 };
        self.event_loop.register_readable(&mut self.termination, token)
    }

    /// Turns the loop until the server is told to end. A panic is reported and ends the
    /// process at once: after it the state is not to be trusted, least of all to be saved.
    pub fn run(mut self) -> io::Result<()> {
        if !memory::give_back_from_a_thread() {
            log::debug!("Freed memory is given back to the system only when more is taken");
        }
        if !self.persistence.is_loading() {
            banner::show_ready(&self.config);
        }
        let turns = AssertUnwindSafe(|| {
            let mut events = Vec::new();
            while !self.is_shutting_down {
                self.turn(&mut events)?;
            }
            self.persistence.close();
            self.save_queues_for_restart();
            Ok(())
        });
        match panic::catch_unwind(turns) {
            Ok(ended) => ended,
            Err(_) => {
                let reporting = AssertUnwindSafe(|| self.report_panic());
                let _a_second_panic_changes_nothing = panic::catch_unwind(reporting);
                process::abort()
            }
        }
    }

    fn turn(&mut self, events: &mut Vec<FileEvent>) -> io::Result<()> {
        self.event_loop.poll(self.poll_timeout(), events)?;
        self.clock.read();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.run_due();
        self.run_timers();
        self.run_resumed();
        self.load_some().map_err(io::Error::other)?;
        self.drain();
        self.close_ended();
        Ok(())
    }

    /// How long nothing is due, as far as is known.
    fn poll_timeout(&self) -> Option<Duration> {
        if !self.engine.out.is_empty() || !self.closing.is_empty() {
            return Some(Duration::ZERO);
        }
        let due_at = self
            .engine
            .next_timeout()
            .min(MonoMs(self.timers.wake_at_ms()))
            .min(self.persistence.next_timeout())
            .min(self.nodes.next_timeout());
        (due_at != MonoMs::NEVER)
            .then(|| Duration::from_millis(due_at.ms_since(self.clock.now.mono)))
    }

    /// Serves the socket that an event is about. Never inlined, so that a profile tells it
    /// from the rest of the turn; `tests/budget.rs` counts what happens in here.
    #[inline(never)]
    fn handle(&mut self, event: FileEvent) {
        let Token { kind, slot, generation } = event.token;
        match kind {
            client::CLIENT_TOKENS => self.handle_client_event(ClientId { slot, generation }, event),
            bus::LINK_TOKENS => self.handle_link_event(LinkId { slot, generation }, event),
            client::life::LISTENER_TOKENS => self.accept_clients(event.token),
            bus::LISTENER_TOKENS => self.accept_links(event.token),
            SIGNAL_TOKENS => {
                if self.termination.is_asked()
                    && let Err(reason) = self.shut_down(RewriteFirst::No)
                {
                    log::warn!("Can't shut down: {reason}");
                    self.termination.refuse();
                }
            }
            // The turn's end asks the thread what it has done.
            persistence::DISK_TOKENS => {}
            http::CONNECTION_TOKENS => self.handle_http_event(HttpId { slot, generation }, event),
            http::LISTENER_TOKENS => self.accept_http(event),
            http::WORK_TOKENS => self.run_http(),
            _ => unreachable!("every kind of token has an arm"),
        }
    }

    /// Does what is due in the engine, reading the clock between quanta: however much is
    /// due at once, clients wait no longer than [`DUE_WORK_MAX`] for their turn.
    fn run_due(&mut self) {
        if self.engine.next_timeout() > self.clock.now.mono {
            return;
        }
        let started = Instant::now();
        while self.engine.handle_timeout(self.clock.now, TIMER_QUANTUM) == More::Yes {
            self.clock.read();
            if started.elapsed() > DUE_WORK_MAX {
                break;
            }
        }
        self.note_latency(LatencyEvent::JobsProcessing, started.elapsed());
    }

    /// Keeps how long something held the server up, to the nearest millisecond, if that
    /// was long. Due jobs that take all of [`DUE_WORK_MAX`] count as 1 ms.
    fn note_latency(&mut self, event: LatencyEvent, elapsed: Duration) {
        let rounded = elapsed.saturating_add(Duration::from_micros(500));
        let elapsed_ms = u64::try_from(rounded.as_millis()).unwrap_or(u64::MAX);
        let threshold_ms = self.config.latency_monitor_threshold_ms;
        self.latency.note(event, elapsed_ms, self.clock.now.wall.secs(), threshold_ms);
    }

    /// A writer for the reply to a call, behind all replies written before.
    pub fn reply(&mut self, call: &Call<'_>) -> ReplyWriter<'_> {
        self.engine.out.replies.to(call.client, call.resp)
    }

    /// Puts changed settings in force. Addresses, files and the process stay as they are.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
        self.persistence.set_config(&self.config);
        let enqueue_at_load = self.persistence.enqueue_at_load(&self.config);
        self.engine.set_config(self.clock.now, self.config.for_engine(enqueue_at_load));
        self.close_refused_links();
        // Without a limit no command measures any more, and the last level would stay.
        self.measure_memory();
        self.begin_seeds();
    }

    /// Ends the loop after this turn.
    pub fn end(&mut self) {
        self.is_shutting_down = true;
    }

    fn close_listeners(&mut self) {
        self.listeners.clear();
        self.bus_listeners.clear();
        self.http.listeners_mut().clear();
        if let Some(path) = &self.config.unixsocket {
            log::info!("Removing the unix socket file.");
            if let Err(error) = fs::remove_file(path) {
                log::debug!("Can't remove {}: {error}", path.display());
            }
        }
    }

    fn report_panic(&self) {
        let served = self.clients.iter().max_by_key(|client| client.active_at);
        let command = served.and_then(|client| client.last_command).unwrap_or("none");
        log::error!("Last command: {command}");
        let info = info::render(b"all", self);
        log::error!(target: logger::RAW, "------ INFO OUTPUT ------\n{info}\n");
        log::error!(target: logger::RAW, "------ CLIENT LIST OUTPUT ------\n{}", self.client_list());
        log::error!("=== DISQUE BUG REPORT END ===");
        if self.config.daemonize {
            daemon::remove_pidfile(&self.config.pidfile);
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| StartError(format!("The system gives no random bytes: {e}")))?;
    Ok(bytes)
}
