//! The server program: arguments and settings in, exit status out.
//!
//! The order of the start matters. The configuration is read first; the process goes into
//! the background before there is any thread and before it logs, since lines carry its
//! ID; sockets are open before it says hello. Whatever fails on the way is one sentence
//! and exit status 1.

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use disque::server::command_line::{self, Invocation};
use disque::server::config::Config;
use disque::server::config_file::{self, Source};
use disque::server::identity::Identity;
use disque::server::{
    CountingAllocator, Server, StartError, banner, daemon, logger, memory_check, signals, version,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What jemalloc is to do differently; it finds this by its name. Without
/// `cache_oblivious` a body of 64 KiB takes 16 pages of memory, and not 17. Of the
/// threads that give memory back one is enough.
// SAFETY: jemalloc declares `const char *malloc_conf`, and so is this, with its NUL.
#[cfg(feature = "jemalloc")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 47] = b"cache_oblivious:false,max_background_threads:1\0";

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let program = arguments.next().unwrap_or_else(|| "disque-server".into());
    match command_line::parse(arguments.collect()) {
        Invocation::Version => {
            println!("{}", version::line());
            ExitCode::SUCCESS
        }
        Invocation::Help => {
            print!("{}", command_line::USAGE);
            ExitCode::SUCCESS
        }
        Invocation::TestMemoryUnsaid => refused(command_line::TEST_MEMORY_USAGE),
        Invocation::TestMemory { megabytes } => {
            match memory_check::run(megabytes, &mut io::stdout()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(e) => refused(&format!("Can't test {megabytes} megabytes: {e}\n")),
            }
        }
        Invocation::Run { source, options } => run(program, &source, &options),
    }
}

/// Before there is a log.
fn refused(text: &str) -> ExitCode {
    eprint!("{text}");
    ExitCode::FAILURE
}

fn run(program: OsString, source: &Source, options: &[OsString]) -> ExitCode {
    let config = match config_file::load(source, options) {
        Ok(config) => config,
        Err(e) => return refused(&format!("{e}\n")),
    };
    let identity = match Identity::new(program, &config, options) {
        Ok(identity) => identity,
        Err(e) => return refused(&format!("The system gives no random bytes: {e}\n")),
    };
    if let Err(e) = env::set_current_dir(&config.dir) {
        return refused(&format!("Can't change to {}: {e}\n", config.dir.display()));
    }
    if config.daemonize
        && let Err(e) = daemon::daemonize()
    {
        return refused(&format!("Can't go into the background: {e}\n"));
    }
    logger::start(&config);
    signals::install();
    if *source == Source::Nothing && options.is_empty() {
        log::warn!(
            "No configuration file given, every setting has its default. To use one: {} \
             /path/to/disque.conf",
            identity.executable.display()
        );
    }
    let pidfile = config.daemonize.then(|| config.pidfile.clone());
    let ended = serve(config, identity);
    if let Some(path) = pidfile {
        daemon::remove_pidfile(&path);
    }
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError(sentence)) => {
            log::error!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

fn serve(config: Config, identity: Identity) -> Result<(), StartError> {
    let program = identity.program.clone();
    let server = Server::start(config, identity)?;
    if server.config.daemonize {
        daemon::write_pidfile(&server.config.pidfile);
    }
    daemon::show_title(&program, &server.config);
    banner::show(&server.config);
    daemon::warn_of_settings(&server.config);
    server.run().map_err(StartError::from)
}
