//! `trace`: the life of a job, from any node.
//!
//! The node asks all others, see the TRACE command. [`timeline`] puts what they said in one
//! order, and shows it.

pub mod timeline;

use std::time::Duration;

use super::connection::ServerConnection;
use super::failure::{Failure, STATUS_FAILED};
use super::help::Colour;
use super::nodes::short;
use super::options::CliOptions;
use super::output::PrintForm;
use super::table::counted;
use super::{terminal, wait};
use crate::base::ids::JobId;
use crate::proto::reply_reader::Value;
use timeline::{Printer, TimeLine};

/// Time between two looks of --watch.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Prints the life of the job that the word of the command names, and with --watch what comes until
/// it ends. Returns 1 for a job of which nothing is known, and when a node did not answer.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let [id] = options.command.as_slice() else {
        return Err(Failure::Message("trace takes the ID of a job".to_owned()));
    };
    if JobId::parse(id).is_none() {
        let sentence = format!("{} is not the ID of a job", id.escape_ascii());
        return Err(Failure::Message(sentence));
    }
    let mut connection = ServerConnection::open(&options.address, options.login.as_ref(), None)?;
    let form = options.format.form;
    let is_for_people = !form.is_for_programs();
    let colour = match form {
        PrintForm::Standard if terminal::prints_to_terminal() => Colour::On,
        _ => Colour::Off,
    };
    let mut printer = Printer::new(colour);
    let mut silent_before: Vec<String> = Vec::new();
    loop {
        let line = ask(&mut connection, id)?;
        let silent = line.as_ref().map(|line| line.silent.clone()).unwrap_or_default();
        if !options.watches && !is_for_people {
            terminal::print(line.clone().unwrap_or_default().table().render(form))?;
        } else if let Some(line) = &line {
            match is_for_people {
                true => terminal::draw(printer.print(line))?,
                false => terminal::print(printer.print_rows(line, form))?,
            }
        }
        for node in silent.iter().filter(|node| !silent_before.contains(node)) {
            terminal::complain(format!("Node {} did not answer", short(node)));
        }
        let is_known = line.as_ref().is_some_and(|line| !line.moments.is_empty());
        if !options.watches || line.is_some_and(|line| line.is_over(id)) {
            if !is_known {
                terminal::complain(unknown(silent.len()));
            }
            return Ok(if is_known && silent.is_empty() { 0 } else { STATUS_FAILED });
        }
        silent_before = silent;
        wait::pause(options.interval.unwrap_or(LOOK_EVERY))?;
    }
}

fn unknown(silent_count: usize) -> String {
    let who = match silent_count {
        0 => "No node has".to_owned(),
        count => format!("But for {}, no node has", counted(count as u64, "silent node")),
    };
    format!(
        "{who} events of this job: it is not traced, or was forgotten. See TRACE and trace-sample."
    )
}

fn ask(connection: &mut ServerConnection, id: &[u8]) -> Result<Option<TimeLine>, Failure> {
    match connection.call(&[&b"TRACE"[..], id])? {
        Value::Error(text) => Err(Failure::Message(String::from_utf8_lossy(&text).into_owned())),
        reply => TimeLine::read(&reply),
    }
}
