//! The server program: arguments and settings in, exit status out.

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use disque::base::ids::NodeId;
use disque::base::memory::CountingAllocator;
use disque::server::command_line::{self, Invocation};
use disque::server::config::Config;
use disque::server::config_file::{self, Source};
use disque::server::{Server, StartError, banner, daemon, log, memory_test, signals, version};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let program = arguments.next().unwrap_or_default();
    match command_line::parse(arguments.collect()) {
        Invocation::Version => println!("{}", version::line()),
        Invocation::Help => {
            eprint!("{}", command_line::USAGE);
            return ExitCode::FAILURE;
        }
        Invocation::TestMemoryUnsaid => {
            eprint!("{}", command_line::TEST_MEMORY_USAGE);
            return ExitCode::FAILURE;
        }
        Invocation::TestMemory { megabytes } => {
            return match memory_test::run(megabytes, &mut io::stdout()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) | Err(_) => ExitCode::FAILURE,
            };
        }
        Invocation::Run { source, options } => return run(&program, &source, &options),
    }
    ExitCode::SUCCESS
}

fn run(program: &OsString, source: &Source, options: &[OsString]) -> ExitCode {
    let config = match config_file::load(source, options) {
        Ok(config) => config,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    if config.daemonize
        && let Err(e) = daemon::daemonize()
    {
        eprintln!("Can't go into the background: {e}");
        return ExitCode::FAILURE;
    }
    log::start(&config);
    signals::install();
    let pidfile = config.daemonize.then(|| config.pidfile.clone());
    let ended = serve(program, config);
    if let Some(path) = pidfile {
        daemon::remove_pidfile(&path);
    }
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError(sentence)) => {
            ::log::error!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

fn serve(program: &OsString, config: Config) -> Result<(), StartError> {
    let mut seed = [0; 32];
    let mut node = [0; 20];
    let random = getrandom::fill(&mut seed).and_then(|()| getrandom::fill(&mut node));
    random.map_err(|e| StartError(format!("The system gives no random bytes: {e}")))?;
    let server = Server::start(config, NodeId::from_random(node), seed)?;
    if server.config.daemonize {
        daemon::write_pidfile(&server.config.pidfile);
    }
    daemon::show_title(program, &server.config);
    banner::show(&server.config);
    daemon::warn_of_settings(&server.config);
    server.run().map_err(StartError::from)
}
