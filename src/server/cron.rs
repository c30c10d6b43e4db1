//! Recurring work of the server, and its single appointments. The engine keeps its own.

use super::Server;
use super::client::{Client, Closing};
use super::info;
use super::stats::SAMPLE_PERIOD_MS;
use crate::base::ids::ClientId;
use crate::base::time::MonoMs;
use crate::engine::cluster::NodeLoad;

/// Work with a time of its own. A new kind is a variant, a line in
/// [`Server::start_timers`] or wherever it is appointed, and an arm in [`Server::run_timer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTimer {
    /// Clients: idle ones, slow ones, their buffers. C: clientsCron.
    Clients,
    /// Links that nothing comes in on.
    Links,
    /// Samples of the rates that INFO shows.
    Rates,
    /// Memory: how full it is, and jobs that may go early.
    Memory,
    /// Addresses of cluster-seeds, where there are some.
    Seeds,
    /// Connections of the HTTP port, where there is one.
    Http,
    /// Once: a starved listener tries again.
    AcceptAgain,
    /// Once: CLIENT PAUSE is over.
    Unpause,
}

/// Every client is looked at within this time.
const CLIENTS_ROUND_MS: u64 = 1000;
/// Links are visited this often.
const LINKS_PERIOD_MS: u64 = 1000;
/// A client idle for this long gives its buffers back.
const BUFFERS_KEPT_MS: u64 = 2000;
/// Jobs evicted in one go while memory is filling up.
const EVICTED_EARLY: usize = 64;

impl Server {
    /// Sets up the recurring work, `hz` times a second; again when that changes.
    pub(super) fn start_timers(&mut self, hz: u32) {
        let now_ms = self.clock.now.mono.0;
        let period_ms = u64::from(1000 / hz.clamp(1, 500));
        self.timers.every(ServerTimer::Clients, period_ms, now_ms);
        self.timers.every(ServerTimer::Memory, period_ms, now_ms);
        self.timers.every(ServerTimer::Links, LINKS_PERIOD_MS, now_ms);
        self.timers.every(ServerTimer::Rates, SAMPLE_PERIOD_MS, now_ms);
    }

    pub(super) fn run_timers(&mut self) {
        self.watchdog.beat();
        while let Some(timer) = self.timers.pop_due(self.clock.now.mono.0) {
            match timer {
                ServerTimer::Clients => self.visit_clients(),
                ServerTimer::Links => {
                    self.close_idle_links();
                    self.measure_load();
                }
                ServerTimer::Seeds => self.visit_seeds(),
                ServerTimer::Http => self.visit_http(),
                ServerTimer::Rates => self.stats.sample(self.clock.now.mono),
                ServerTimer::Memory => {
                    if self.measure_memory() == 1 {
                        self.engine.evict(self.clock.now, EVICTED_EARLY);
                    }
                    self.log_memory_level();
                    // Its limit falls as jobs become more.
                    self.bound_unfinished();
                }
                ServerTimer::AcceptAgain => self.accept_again(),
                ServerTimer::Unpause => self.unpause_clients(),
            }
        }
    }

    /// How full and how busy this node is, once a second.
    fn measure_load(&mut self) {
        let cpu_secs = info::cpu_secs();
        let busy_secs = cpu_secs - core::mem::replace(&mut self.cpu_secs_before, cpu_secs);
        let percent = |share: f64| (share * 100.0).clamp(0.0, 100.0) as u8;
        let max = self.config.maxmemory;
        let used = self.memory_used().saturating_mul(100);
        let memory_percent = used.checked_div(max).map(|percent| percent.min(100) as u8);
        let loop_percent = Some(percent(busy_secs * 1000.0 / LINKS_PERIOD_MS as f64));
        self.engine.set_load(NodeLoad { memory_percent, loop_percent });
    }

    /// Looks at the next part of the clients, so that all have their turn within a second.
    fn visit_clients(&mut self) {
        let period_ms = u64::from(1000 / self.config.hz.clamp(1, 500));
        let slots_end = self.clients.slots_end();
        let part = slots_end as u64 * period_ms / CLIENTS_ROUND_MS + 1;
        let from = if self.next_client_slot < slots_end { self.next_client_slot } else { 0 };
        let until = (from + part as usize).min(slots_end);
        self.next_client_slot = until;
        for slot in from..until {
            if let Some(id) = self.clients.at_slot(slot).map(|client| client.id) {
                self.visit_client(id);
            }
        }
    }

    fn visit_client(&mut self, id: ClientId) {
        let now = self.clock.now.mono;
        let (limits, timeout_secs) = (self.output_limits(), self.config.timeout_secs);
        let Some(client) = self.client_mut(id) else { return };
        let idle_ms = now.ms_since(client.active_at);
        if idle_ms > BUFFERS_KEPT_MS {
            client.connection.input.shrink();
        }
        let is_held_up = client.is_blocked && client.is_readable;
        if client.connection.unsent() > 0 && client.connection.exceeds(limits, now) {
            return self.drop_unread(id);
        }
        if timeout_secs > 0 && idle_ms > timeout_secs.saturating_mul(1000) && may_time_out(client) {
            log::debug!("Closing idle client");
            return self.close_later(id, Closing::AfterTurn);
        }
        if is_held_up {
            // It may have hung up behind what it has sent.
            self.serve_client(id);
        }
    }

    /// Executes nothing of any client for a while but what may end the pause. A pause that is
    /// already there ends no sooner for it.
    pub(super) fn pause_clients(&mut self, pause_ms: u64) {
        self.paused_until = self.paused_until.max(self.clock.now.mono.plus_ms(pause_ms));
        self.timers.once(ServerTimer::Unpause, self.paused_until.0);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_until > self.clock.now.mono
    }

    /// Goes on with what clients sent meanwhile.
    pub(super) fn unpause_clients(&mut self) {
        self.paused_until = MonoMs(0);
        self.timers.cancel(ServerTimer::Unpause);
        let waiting = |client: &&Client| client.is_readable || client.is_pending;
        let ids: Vec<ClientId> =
            self.clients.iter().filter(waiting).map(|client| client.id).collect();
        for id in ids {
            self.come_back_to(id);
        }
    }
}

/// C: server.c clientsCronHandleTimeout, whoever waits for a job may wait.
fn may_time_out(client: &Client) -> bool {
    !client.is_blocked && client.busy.is_none()
}
