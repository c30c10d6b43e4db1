//! `--stat`: one line about a server each second, for watching it work.
//!
//! Differs from C: the first column counts jobs, because the keys counted there do not exist
//! in Disque; a running rewrite of the append only file is shown; a reconnect logs in again.

use std::time::Duration;

use super::connection::ServerConnection;
use super::failure::Failure;
use super::info::Info;
use super::options::CliOptions;
use super::table::{Align, Cell, EndlessTable, TableColumn};
use super::{terminal, wait};
use crate::base::number::human_bytes;

/// Lines between two headings.
const HEADING_EVERY: u64 = 20;
const HEADING: &str = "\
------- data ------ --------------------- load -------------------- - child -
jobs       mem      clients blocked requests            connections          
";
pub const COLUMNS: &[TableColumn] = &[
    column("jobs"),
    column("memory_bytes"),
    column("clients"),
    column("blocked"),
    column("requests"),
    column("requests_more"),
    column("connections"),
    column("rewriting"),
];

/// A column that only programs see: people get the lines of the C client.
const fn column(key: &'static str) -> TableColumn {
    TableColumn { heading: "", key, align: Align::Right, width_min: 0 }
}

/// Pause between lines, and between attempts to connect again.
const SECOND: Duration = Duration::from_secs(1);

/// Prints lines until the process is ended.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let open = || ServerConnection::open(&options.address, options.login.as_ref(), None);
    let mut connection = open()?;
    let mut table = EndlessTable::new(COLUMNS, options.format.form);
    let mut requests_before = None;
    for line in 0_u64.. {
        let info = loop {
            match Info::read(&mut connection) {
                Err(failure) if failure.is_lost_connection() => {
                    connection = reconnect(options, &open)?;
                }
                read => break read?,
            }
        };
        let requests = info.number("total_commands_processed");
        let more = requests.saturating_sub(requests_before.unwrap_or(requests));
        requests_before = Some(requests);
        if options.format.form.is_for_programs() {
            terminal::print(table.row(&cells(&info, more)))?;
        } else {
            if line % HEADING_EVERY == 0 {
                terminal::print(HEADING)?;
            }
            terminal::print(row(&info, more))?;
        }
        wait::pause(options.interval.unwrap_or(SECOND))?;
    }
    Ok(0)
}

fn reconnect(
    options: &CliOptions,
    open: &impl Fn() -> Result<ServerConnection, Failure>,
) -> Result<ServerConnection, Failure> {
    // Programs are sent rows and nothing else.
    let announce = |text: &str| match options.format.form.is_for_programs() {
        true => Ok(()),
        false => terminal::draw(text),
    };
    for attempt in 1_u64.. {
        announce(&format!("Reconnecting ({attempt})...\r"))?;
        match open() {
            Ok(connection) => {
                announce("\n")?;
                return Ok(connection);
            }
            Err(_) => wait::pause(SECOND)?,
        }
    }
    unreachable!("attempts are counted without end")
}

fn cells(info: &Info, requests_more: u64) -> Vec<Cell> {
    vec![
        Cell::Count(info.number("registered_jobs")),
        Cell::Bytes(info.number("used_memory")),
        Cell::Count(info.number("connected_clients")),
        Cell::Count(info.number("blocked_clients")),
        Cell::Count(info.number("total_commands_processed")),
        Cell::Count(requests_more),
        Cell::Count(info.number("total_connections_received")),
        Cell::Flag(info.number("aof_rewrite_in_progress") == 1),
    ]
}

fn row(info: &Info, requests_more: u64) -> String {
    format!(
        "{:<11}{:<8} {:<8}{:<8}{:<19} {:<12}{}\n",
        info.number("registered_jobs"),
        human_bytes(info.number("used_memory")),
        info.number("connected_clients"),
        info.number("blocked_clients"),
        format!("{} (+{requests_more})", info.number("total_commands_processed")),
        info.number("total_connections_received"),
        if info.number("aof_rewrite_in_progress") == 1 { "AOF" } else { "" },
    )
}
