//! The producers and the consumers of a storm.

use disque::base::ids::JobId;
use disque::engine::policy::RetryFrom;
use disque::proto::reply::Resp;
use disque::proto::reply_reader::Value;

use super::policies::is_dead_queue;
use super::rest::{UNDER_WAY_MS, know_each_other};
use super::story::{Adding, Hold, InHand, Wanted};
use super::{EXPIRY_ERROR_MS, IN_TIME_MS, QUEUES, Storm, Weather, words};
use crate::node::State;

/// Jobs are given back, and leases taken, for at most this.
const LONGEST_HOLD_MS: u64 = 8000;
/// In fair weather a job comes within this once it is due: consumers are there.
const IN_FAIR_WEATHER_MS: u64 = 700;

impl Storm {
    pub(super) fn add(&mut self) {
        let n = self.node();
        if self.sim.nodes[n].state == State::Down {
            return;
        }
        let replicate = 1 + self.rng.index(self.sim.nodes.len().min(3));
        let retry_secs = match self.weather {
            Weather::Fair => [5, 8],
            Weather::Windy | Weather::Parted => [3, 5],
            Weather::Hazy | Weather::Stormy => [1, 3],
        }[self.rng.index(2)];
        let retry_secs = if replicate == 1 && self.rng.below(3) == 0 { 0 } else { retry_secs };
        let delay_secs = [0, 0, 0, 2][self.rng.index(4)];
        // An at-most-once job that is acknowledged elsewhere stays until it expires.
        let ttl_secs = if retry_secs == 0 { 20 } else { [20, 400, 400][self.rng.index(3)] };
        let ttl_secs = if self.weather == Weather::Hazy { ttl_secs.max(60) } else { ttl_secs };
        let is_async = self.rng.below(4) == 0;
        let queue = QUEUES[self.rng.index(QUEUES.len())];
        let (body, attributes) = self.draw_body(n);
        let (priority, priority_words) = self.draw_priority(n);
        let failing = self.draw_failing(n, queue);
        let ttl_secs = failing.ttl_secs.filter(|secs| *secs > delay_secs).unwrap_or(ttl_secs);
        let failing_words = failing.words();
        let line = format!(
            "ADDJOB {queue} {body} 1500 REPLICATE {replicate} RETRY {retry_secs} \
             DELAY {delay_secs} TTL {ttl_secs}{}{}",
            if is_async { " ASYNC" } else { "" },
            failing_words
        );
        // At level 1 that depends on the others.
        let keeps_a_copy = self.memory_levels[n] == 0 && !self.leaving[n];
        let sync = self.draw_sync(n, replicate).filter(|_| !is_async);
        let sync_words = sync.map_or(Vec::new(), |sync| words(&format!("SYNC {sync}")));
        let zones = match is_async {
            true => None,
            false => self.draw_zones(n, replicate, retry_secs == 0),
        };
        let zone_words = zones.map_or(Vec::new(), |zones| words(&format!("ZONES {zones}")));
        let copies = match (is_async, keeps_a_copy) {
            (false, _) => sync.unwrap_or(replicate),
            (true, true) => 1,
            (true, false) => 0,
        };
        let trace = self.tracing.draw_option();
        let asked_at = self.sim.now_ms;
        let wanted = Wanted {
            retry_ms: retry_secs * 1000,
            delay_ms: delay_secs * 1000,
            copies,
            zones: zones.unwrap_or(0),
            asked_at,
            promised_at: u64::MAX,
            expires_at: asked_at + ttl_secs * 1000,
            ttl_ms: ttl_secs * 1000,
            queue: queue.to_owned(),
            priority,
            failing,
            is_traced: !trace.is_empty(),
        };
        let client = self.sim.connect_client(n, Resp::V2);
        self.adding.push(Adding { node: n, client, wanted });
        let trace = words(trace);
        let more = [priority_words, attributes, trace, sync_words, zone_words].concat();
        self.sim.send(n, client, [words(&line), more].concat());
    }

    /// How many copies the producer of a job waits for, if it says so.
    fn draw_sync(&mut self, n: usize, replicate: usize) -> Option<usize> {
        let rng = self.sync_rng.as_mut().filter(|_| !self.sim.network.is_plain(n))?;
        (rng.below(3) > 0).then(|| 1 + rng.index(replicate))
    }

    /// Every consumer waits for jobs, and acknowledges what it is done with.
    pub(super) fn consume(&mut self) {
        // What came for the last GETJOBs has their leases.
        self.collect();
        if self.consumers_are_here() {
            self.fetch();
        }
        self.collect();
        let now = self.sim.now_ms;
        let (done, rest) =
            std::mem::take(&mut self.in_hand).into_iter().partition(|job| job.until <= now);
        self.in_hand = rest;
        for job in done {
            self.finish(job);
        }
    }

    fn fetch(&mut self) {
        for n in 0..self.sim.nodes.len() {
            self.consumers[n] =
                self.consumers[n].filter(|client| self.sim.nodes[n].clients.contains_key(client));
            if self.sim.nodes[n].state == State::Down {
                continue;
            }
            let sim = &mut self.sim;
            let client = *self.consumers[n].get_or_insert_with(|| sim.connect_client(n, Resp::V2));
            if self.is_up(n) && !self.sim.is_blocked(n, client) {
                let count = 1 + self.rng.below(3);
                let timeout_ms = 1 + self.rng.below(3000);
                let extras = self.with_attributes(n);
                let queues = self.queues_of_consumers();
                let lease = if self.gives_back_on(n) && self.rng.below(4) == 0 {
                    // Where consumers are in time, they are so with their leases too.
                    let is_patient = matches!(self.weather, Weather::Hazy | Weather::Stormy);
                    let secs = if is_patient { 1 } else { 5 } + self.rng.below(4);
                    self.leases_ms[n] = u64::from(secs) * 1000;
                    format!("LEASE {secs} ")
                } else {
                    self.leases_ms[n] = 0;
                    String::new()
                };
                let line = format!(
                    "GETJOB TIMEOUT {timeout_ms} COUNT {count} {extras} {lease}FROM {queues}"
                );
                self.sim.send(n, client, words(&line));
            }
        }
    }

    /// The consumer of a node hangs up.
    pub(super) fn hang_up(&mut self, n: usize) {
        if let Some(client) = self.consumers[n].take() {
            self.sim.disconnect_client(n, client);
        }
    }

    /// A consumer is done with a job: mostly it says so, somewhere.
    fn finish(&mut self, job: InHand) {
        // Who acknowledges a dead letter does so where it was fetched: another node, which does not
        // know it, keeps the ack for the TTL that the job had.
        let is_dead = is_dead_queue(&self.stories[&job.id].queue);
        let n = if is_dead { job.node } else { self.node() };
        let is_slow = self.busy_ms > IN_TIME_MS || self.weather == Weather::Hazy;
        let careless = is_slow && self.healed_at.is_none();
        if careless && self.rng.below(5) == 0 {
            return;
        }
        if !self.is_up(n) || self.leaving[n] {
            // It is turned away, and tries another node.
            self.in_hand.push(job);
            return;
        }
        let command = match self.rng.below(20) {
            0 if careless => "NACK",
            1 if careless && self.weather != Weather::Hazy => "WORKING",
            _ => "ACKJOB",
        };
        let copy = self.sim.copy_on(n, &job.id);
        let queue = copy.as_ref().map(|copy| copy.queue.clone()).unwrap_or_default();
        let state = copy.map(|copy| copy.state);
        let may_give_back = command == "ACKJOB"
            && self.gives_back_on(n)
            && state.as_deref() == Some("active")
            && self.has_time(&job.id);
        if may_give_back && (self.rng.below(8) == 0 || self.policies.draw_failure()) {
            self.give_back(n, &queue, &job.id);
            return;
        }
        let client = self.sim.connect_client(n, Resp::V2);
        let id = String::from_utf8_lossy(&job.id).into_owned();
        self.sim.send(n, client, words(&format!("{command} {id}")));
        let reply = self.sim.take_replies(n, client).pop().map(|(_, reply)| reply);
        self.sim.disconnect_client(n, client);
        if let Some(reply) = &reply {
            self.check_finish(command, &job.id, state.as_deref(), reply);
        }
        let now = self.sim.now_ms;
        let was_active = state.as_deref() == Some("active");
        let backoff_ms = match command {
            "NACK" => self.backoff_ms(n, &queue),
            _ => None,
        };
        let story = self.stories.get_mut(&job.id).expect("it was delivered");
        match (command, reply) {
            ("ACKJOB", None) => story.may_be_acked = true,
            ("ACKJOB", Some(_)) => {
                story.acked_at.get_or_insert(now);
                // An ack without a job is another thing.
                if matches!(state.as_deref(), Some("active" | "queued" | "wait-repl")) {
                    story.acked_on.get_or_insert((n, now));
                }
            }
            (_, Some(Value::Integer(_))) => {
                story.hold = None;
                if let Some((least_ms, most_ms)) = backoff_ms.filter(|_| was_active) {
                    story.hold(Hold {
                        since: now,
                        until: now + least_ms,
                        by: now + most_ms,
                        is_delay: true,
                    });
                }
                story.put_back_at = now;
            }
            _ => {}
        }
    }

    /// Whether a node is one to which consumers give jobs back for a while.
    fn gives_back_on(&self, n: usize) -> bool {
        self.gives_back && self.healed_at.is_none() && !self.sim.network.is_plain(n)
    }

    /// Whether a job comes again, and does not end before it has come.
    fn has_time(&self, id: &[u8]) -> bool {
        self.stories[id].wanted.as_ref().is_some_and(|wanted| {
            wanted.retry_ms > 0 && wanted.expires_at > self.sim.now_ms + LONGEST_HOLD_MS + 10_000
        })
    }

    /// A consumer gives back a job that is active on a node, where it is one of a queue, or asks for
    /// more time.
    fn give_back(&mut self, n: usize, queue: &str, id: &[u8]) {
        let secs = 1 + self.rng.below(LONGEST_HOLD_MS as u32 / 1000);
        let may_wait = self.weather != Weather::Fair;
        let backoff_ms = self.backoff_ms(n, queue);
        let dies = self.policies.draw_death();
        let fails = backoff_ms.is_some() || self.policies.are_used();
        let (command, options, hold_secs) = match self.rng.below(5) {
            _ if dies => ("NACK", "DEAD".into(), 0),
            0 if fails => ("NACK", String::new(), 0),
            0 => ("NACK", "SILENT".into(), 0),
            1 => ("NACK", format!("SILENT DELAY {secs}"), secs),
            2 if may_wait => ("WORKING", format!("LEASE {secs}"), secs),
            _ => ("NACK", format!("DELAY {secs}"), secs),
        };
        let client = self.sim.connect_client(n, Resp::V2);
        let line = format!("{command} {} {options}", String::from_utf8_lossy(id));
        self.sim.send(n, client, words(&line));
        let reply = self.sim.take_replies(n, client).pop().map(|(_, reply)| reply);
        self.sim.disconnect_client(n, client);
        if let Some(reply) = &reply {
            self.check_finish(command, id, Some("active"), reply);
        }
        let now = self.sim.now_ms;
        let story = self.stories.get_mut(id).expect("it was delivered");
        if !matches!(reply, Some(Value::Error(_))) {
            story.tries -= usize::from(options.starts_with("SILENT")).min(story.tries);
            match (hold_secs, backoff_ms) {
                (0, Some((least_ms, most_ms))) if options.is_empty() => {
                    let (until, by) = (now + least_ms, now + most_ms);
                    story.hold(Hold { since: now, until, by, is_delay: true });
                }
                (0, _) => story.hold = None,
                (secs, _) => {
                    story.hold(Hold::exact(now, u64::from(secs) * 1000, command == "NACK"));
                }
            }
            story.put_back_at = now;
            story.put_backs += 1;
        }
    }

    /// What a node answers is what became of the job there, given its state before.
    fn check_finish(&self, command: &str, id: &[u8], state: Option<&str>, reply: &Value) {
        let is_once = !JobId::parse(id).expect("IDs are valid").is_at_least_once();
        let due = match (command, state) {
            ("ACKJOB", Some(state)) => Ok(i64::from(state != "acked")),
            ("NACK", Some("active")) => Ok(i64::from(!is_once)),
            ("ACKJOB" | "NACK", _) => Ok(0),
            ("WORKING", None) => Err("NOJOB"),
            ("WORKING", Some("acked")) => Err("ACKED"),
            // A positive number of seconds, or that half of the TTL is over.
            _ => Err("TOOLATE"),
        };
        let is_right = match reply {
            Value::Integer(secs) if due == Err("TOOLATE") => is_once || *secs > 0,
            Value::Integer(count) => due == Ok(*count),
            Value::Error(text) if command == "NACK" => {
                self.weather == Weather::Stormy && text.starts_with(b"MISCONF ")
            }
            Value::Error(text) => due.is_err_and(|word| text.starts_with(word.as_bytes())),
            _ => false,
        };
        let id = id.escape_ascii();
        assert!(is_right, "{command} of {id}, which was {state:?}, answers {reply:?}");
    }

    /// Takes in all replies: IDs for producers, jobs for consumers.
    pub(super) fn collect(&mut self) {
        for adding in std::mem::take(&mut self.adding) {
            let (n, client) = (adding.node, adding.client);
            match self.sim.take_replies(n, client).pop() {
                None if self.sim.nodes[n].clients.contains_key(&client) => self.adding.push(adding),
                None => {}
                Some((promised_at, reply)) => {
                    self.sim.disconnect_client(n, client);
                    self.added(reply, Wanted { promised_at, ..adding.wanted });
                }
            }
        }
        for n in 0..self.sim.nodes.len() {
            let Some(client) = self.consumers[n] else { continue };
            for (at, reply) in self.sim.take_replies(n, client) {
                let Value::Array(rows) = reply else { continue };
                for row in rows {
                    let Value::Array(row) = row else { panic!("a row is an array: {row:?}") };
                    let Value::Bulk(id) = &row[1] else { panic!("an ID is a bulk: {row:?}") };
                    self.check_row(n, &row);
                    let Value::Bulk(queue) = &row[0] else { panic!("a queue is a bulk: {row:?}") };
                    self.check_queue(n, &row, at);
                    self.delivered(n, &String::from_utf8_lossy(queue), id, at);
                    self.note_delivery(n, at, &row);
                }
            }
        }
    }

    fn added(&mut self, reply: Value, wanted: Wanted) {
        match reply {
            Value::Status(id) => {
                let holders = self.sim.holders_when_promised.remove(&id).expect("it was promised");
                let (copies, lost) = (holders.len(), self.losers_of(&wanted).len());
                let story = self.stories.entry(id.clone()).or_default();
                assert!(story.wanted.is_none(), "IDs are given once: {story:?}");
                story.wanted = Some(wanted.clone());
                // An at-most-once job may be on its way to another node already.
                let is_over = story.acked_at.is_some() || story.may_be_acked;
                assert!(
                    copies + lost >= wanted.copies || is_over || wanted.retry_ms == 0,
                    "a job is promised when its copies are there, not when {copies} are: {story:?}"
                );
                if !is_over && wanted.retry_ms > 0 {
                    self.check_zones(&id, &wanted, &holders);
                }
            }
            Value::Error(text) => {
                let known: &[&[u8]] = match self.weather {
                    Weather::Fair | Weather::Hazy => &[],
                    Weather::Windy | Weather::Parted => &[b"NOREPL"],
                    Weather::Stormy => &[b"NOREPL", b"PAUSED", b"LEAVING", b"MISCONF"],
                };
                let text_shown = text.escape_ascii();
                let is_known = known.iter().any(|word| text.starts_with(word));
                assert!(is_known, "a job is refused in {:?} weather: {text_shown}", self.weather);
                self.refused_count += 1;
            }
            other => panic!("ADDJOB answers an ID or an error: {other:?}"),
        }
    }

    fn delivered(&mut self, n: usize, queue: &str, id: &[u8], at: u64) {
        if !is_dead_queue(queue) {
            self.check_hold(id, at);
        }
        let copy = self.sim.copy_on(n, id);
        self.check_priorities(id, copy.as_slice());
        let story = self.stories.entry(id.to_vec()).or_default();
        story.delivered_at.push(at);
        story.fetched_on.push((n, at));
        story.queue = queue.to_owned();
        self.check_death(n, queue, id, at);
        let story = self.stories.get_mut(id).expect("it was added");
        let told = format!("{} at {at}: {story:?}", id.escape_ascii());
        if let Some(wanted) = &story.wanted {
            // The TTL counts on another node from when it is told, by one that was frozen perhaps.
            let told_late_ms = wanted.promised_at.saturating_sub(wanted.asked_at);
            let expires_by = wanted.expires_at + told_late_ms + EXPIRY_ERROR_MS;
            assert!(at <= expires_by, "it came after its expiry, {told}");
        }
        let id_says = JobId::parse(id).expect("IDs are valid");
        let from_ms = story.wanted.as_ref().map_or(0, |wanted| wanted.asked_at);
        let may_forget = self.enqueued_once && self.sim.may_forget_ends(from_ms);
        let once = id_says.is_at_least_once() || story.delivered_at.len() == 1 || may_forget;
        assert!(once, "at most once is once, {told}");
        self.note_lease(n, queue, id, at);
        let busy_ms = if self.healed_at.is_some() { 1 } else { self.busy_ms };
        let until = self.sim.now_ms + u64::from(self.rng.below(busy_ms));
        self.in_hand.push(InHand { id: id.to_vec(), node: n, until });
    }

    /// A job that is held comes no earlier than its time, but where its holders do not know each
    /// other, and in fair weather no later.
    fn check_hold(&mut self, id: &[u8], at: u64) {
        let Some(story) = self.stories.get(id) else { return };
        let told = format!("{} at {at}: {story:?}", id.escape_ascii());
        let is_exact = self.weather == Weather::Fair && self.is_acting && story.put_backs > 0;
        if let Some(hold) = story.hold.filter(|_| is_exact) {
            let until = if story.was_moved_for_later { story.held_until } else { hold.by };
            assert!(at <= until + IN_FAIR_WEATHER_MS, "a held job is not late, {told}");
        }
        // Where nothing is slow, and who gives it back had it, it is in no queue then.
        let known_after_ms = if self.weather == Weather::Fair { 0 } else { UNDER_WAY_MS };
        if !story.comes_early(at, known_after_ms) {
            return;
        }
        let hold_since = story.hold.map_or(0, |hold| hold.since);
        let is_crossed = self.is_hold_crossed(id, hold_since, story.was_moved_for_later);
        if matches!(self.weather, Weather::Fair | Weather::Hazy) && !is_crossed {
            let copies = self.sim.survey();
            let copies = copies.get(id).map_or(&[][..], Vec::as_slice);
            assert!(!know_each_other(copies), "a held job waits, {told}, {copies:?}");
        }
        let story = self.stories.get_mut(id).expect("it was found");
        story.early += 1;
    }

    /// The consumer of a node has a job for the time of its lease; or, where retries count from
    /// the delivery, for three quarters of its retry, and a quarter less where it was lent.
    fn note_lease(&mut self, n: usize, queue: &str, id: &[u8], at: u64) {
        let said = self.policy_on(n, queue).retry_from;
        let retry_from = said.unwrap_or(self.sim.nodes[n].engine.config().retry_from);
        let from_delivery = retry_from == RetryFrom::Delivery;
        let story = self.stories.get_mut(id).expect("it was delivered");
        let Some(wanted) = story.wanted.as_ref().filter(|wanted| wanted.retry_ms > 0) else {
            return;
        };
        let secured_ms = match self.leases_ms[n] {
            0 if from_delivery => wanted.retry_ms / 2,
            lease_ms => lease_ms,
        };
        if secured_ms > 0 {
            story.hold(Hold::exact(at, secured_ms, false));
        }
    }
}
