//! What the server says of itself when it starts.

use std::process;

use super::config::Config;
use super::logger::RAW;
use super::version::{ARCH_BITS, DISQUE_VERSION, GIT_DIRTY, GIT_SHA1, SERVER_VERSION};

const NAME: [&str; 5] = [
    r"  ___   _",
    r" |   \ (_) ___  __ _  _  _  ___",
    r" | |) || |(_-< / _` || || |/ -_)",
    r" |___/ |_|/__/ \__, | \_,_|\___|",
    r"                  |_|",
];

/// Logs the banner, or one line in its place where the system's log would be torn by it.
pub fn show(config: &Config) {
    let (port, pid) = (config.port, process::id());
    if config.syslog_enabled {
        log::info!(
            "Disque {DISQUE_VERSION} ({GIT_SHA1}/{GIT_DIRTY}) {ARCH_BITS} bit, port {port}, pid \
             {pid} ready to start."
        );
    } else {
        let facts = [
            String::new(),
            format!("Disque {DISQUE_VERSION}, server {SERVER_VERSION}"),
            format!("({GIT_SHA1}/{GIT_DIRTY}) {ARCH_BITS} bit"),
            format!("Port: {port}"),
            format!("PID: {pid}"),
        ];
        let art: String = NAME
            .iter()
            .zip(&facts)
            .map(|(name, fact)| format!("{}\n", format!("    {name:36}{fact}").trim_end()))
            .collect();
        log::info!(target: RAW, "\n{art}\n");
    }
    log::warn!("Server started, Disque version {DISQUE_VERSION}");
}

/// Logs that clients are served from now on.
pub fn show_ready(config: &Config) {
    log::info!("The server is now ready to accept connections on port {}", config.port);
    if let Some(path) = &config.unixsocket {
        log::info!("The server is now ready to accept connections at {}", path.display());
    }
}
