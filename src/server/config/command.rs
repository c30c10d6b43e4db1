//! CONFIG: the settings of the running server.
//!
//! A directive is set on a copy of the configuration first; what has to happen besides
//! is done then, and only when that worked does the copy become the configuration.

use crate::base::glob::{self, Case};
use crate::base::reason::reason;
use crate::engine::command::{Call, Outcome};
use crate::server::config::directives;
use crate::server::config::form::ValueForm;
use crate::server::secrets::HIDDEN;
use crate::server::server_command::{ServerCommand, row};
use crate::server::{Server, config_file};

pub(in crate::server) static COMMANDS: &[ServerCommand] = &[row("config", config)];

/// CONFIG GET pattern -> names and values of the directives that match.
/// CONFIG SET name value -> OK; nothing changes when the value is wrong.
/// CONFIG REWRITE -> OK once the file the server was started with says what is set.
/// CONFIG RESETSTAT -> OK; counters start from nothing.
fn config(server: &mut Server, call: &Call<'_>) -> Outcome {
    let args = call.args;
    let subcommand = args[1].to_ascii_lowercase();
    let answer = match (subcommand.as_slice(), args.len()) {
        (b"get", 3) => {
            get(server, call);
            return Outcome::Done;
        }
        (b"set", 4) => set(server, &args[2], &args[3]),
        (b"rewrite", 2) => rewrite(server),
        (b"resetstat", 2) => {
            server.stats.reset();
            server.persistence.reset_statistics();
            Ok(())
        }
        (b"get" | b"set" | b"rewrite" | b"resetstat", _) => {
            Err([b"Wrong number of arguments for CONFIG ", &args[1]].concat())
        }
        _ => Err(b"CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE".to_vec()),
    };
    let mut reply = server.reply(call);
    match answer {
        Ok(()) => reply.status("OK"),
        Err(reason) => reply.error([b"ERR ", reason.as_slice()].concat()),
    }
    Outcome::Done
}

fn get(server: &mut Server, call: &Call<'_>) {
    let shown: Vec<(&str, Vec<u8>)> = directives::all()
        .filter(|directive| directive.access.get)
        .filter(|directive| {
            glob::matches(&call.args[2], directive.name.as_bytes(), Case::Sensitive)
        })
        .map(|directive| (directive.name, directive.shown(&server.config)))
        .collect();
    let mut reply = server.reply(call);
    // Under RESP3 redis-py and node-redis read this answer as the map that Redis sends.
    reply.map(shown.len());
    for (name, value) in shown {
        reply.bulk(name);
        reply.bulk(value);
    }
}

fn set(server: &mut Server, name: &[u8], value: &[u8]) -> Result<(), Vec<u8>> {
    let directive = directives::find(name).filter(|directive| directive.access.set);
    let directive = directive.ok_or_else(|| [b"Unsupported CONFIG parameter: ", name].concat())?;
    let mut next = server.config.clone();
    if let Err(reason) = directive.take_argument(&mut next, value) {
        // C shows it, which a client may write down.
        let value = if directive.form == ValueForm::User { HIDDEN } else { value };
        let mut text = [b"Invalid argument '", value, b"' for CONFIG SET '", name, b"'"].concat();
        if directive.form.explains_errors() {
            text.extend_from_slice(format!(": {reason}").as_bytes());
        }
        return Err(text);
    }
    (directive.when_set)(server, &mut next).map_err(String::into_bytes)?;
    server.set_config(next);
    Ok(())
}

fn rewrite(server: &mut Server) -> Result<(), Vec<u8>> {
    let Some(path) = &server.config.config_file else {
        return Err(b"The server is running without a config file".to_vec());
    };
    match config_file::rewrite(path, &server.config) {
        Ok(()) => {
            log::warn!("CONFIG REWRITE wrote {}", path.display());
            Ok(())
        }
        Err(e) => {
            log::warn!("CONFIG REWRITE could not write {}: {e}", path.display());
            Err(format!("Rewriting config file: {}", reason(&e)).into_bytes())
        }
    }
}
