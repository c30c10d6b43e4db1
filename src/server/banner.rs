//! What the server says of itself when it starts.

use std::process;

use super::config::Config;
use super::log::RAW;
use super::version::{ARCH_BITS, DISQUE_VERSION, GIT_DIRTY, GIT_SHA1, SERVER_VERSION};

/// Logs the banner, or one line in its place where the system's log would be torn by it.
pub fn show(config: &Config) {
    let (port, pid) = (config.port, process::id());
    if config.syslog_enabled {
        log::info!(
            "Disque {DISQUE_VERSION} ({GIT_SHA1}/{GIT_DIRTY}) {ARCH_BITS} bit, port {port}, pid \
             {pid} ready to start."
        );
    } else {
        log::info!(
                                    target: RAW,
                                    r"
       ___   _
      |   \ (_) ___  __ _  _  _  ___    Disque {DISQUE_VERSION}, server {SERVER_VERSION}
      | |) || |(_-< / _` || || |/ -_)   ({GIT_SHA1}/{GIT_DIRTY}) {ARCH_BITS} bit
      |___/ |_|/__/ \__, | \_,_|\___|   Port: {port}
                       |_|              PID: {pid}

"
                                );
    }
    log::warn!("Server started, Disque version {DISQUE_VERSION}");
}
