//! `--stat`: one line about a server each second, for watching it work.
//!
//! Differs from C: the first column counts jobs, because the keys counted there do not exist
//! in Disque; a running rewrite of the append only file is shown; a reconnect logs in again.

use std::time::Duration;

use super::connection::ServerConnection;
use super::failure::Failure;
use super::info::Info;
use super::options::CliOptions;
use super::terminal;
use crate::base::number::human_bytes;

/// Lines between two headings.
const HEADING_EVERY: u64 = 20;
const HEADING: &str = "\
------- data ------ --------------------- load -------------------- - child -
jobs       mem      clients blocked requests            connections          
";
/// Pause between lines, and between attempts to connect again.
const SECOND: Duration = Duration::from_secs(1);

/// Prints lines until the process is ended.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let open = || ServerConnection::open(&options.address, options.password.as_deref(), None);
    let mut connection = open()?;
    let mut requests_before = None;
    for line in 0_u64.. {
        let info = loop {
            match Info::read(&mut connection) {
                Err(failure) if failure.is_lost_connection() => connection = reconnect(&open)?,
                read => break read?,
            }
        };
        if line % HEADING_EVERY == 0 {
            terminal::print(HEADING)?;
        }
        terminal::print(row(&info, requests_before))?;
        requests_before = Some(info.number("total_commands_processed"));
        std::thread::sleep(options.interval.unwrap_or(SECOND));
    }
    Ok(0)
}

fn reconnect(
    open: &impl Fn() -> Result<ServerConnection, Failure>,
) -> Result<ServerConnection, Failure> {
    for attempt in 1_u64.. {
        terminal::print(format!("Reconnecting ({attempt})...\r"))?;
        match open() {
            Ok(connection) => {
                terminal::print("\n")?;
                return Ok(connection);
            }
            Err(_) => std::thread::sleep(SECOND),
        }
    }
    unreachable!("attempts are counted without end")
}

fn row(info: &Info, requests_before: Option<i64>) -> String {
    let requests = info.number("total_commands_processed");
    let more = requests - requests_before.unwrap_or(requests);
    format!(
        "{:<11}{:<8} {:<8}{:<8}{:<19} {:<12}{}\n",
        info.number("registered_jobs"),
        human_bytes(info.number("used_memory").unsigned_abs()),
        info.number("connected_clients"),
        info.number("blocked_clients"),
        format!("{requests} (+{more})"),
        info.number("total_connections_received"),
        if info.number("aof_rewrite_in_progress") == 1 { "AOF" } else { "" },
    )
}
