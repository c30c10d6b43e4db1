//! How a message of another node becomes a call, and the messages about a job's next
//! delivery: ENQUEUE, QUEUED, WORKING and WILLQUEUE.
//!
//! Anyone may ping and is answered, and anyone may ask to be met with MEET: that is
//! membership, see [`super::cluster`]. All other messages are accepted from known nodes
//! only. Those of unknown nodes, and of a node that uses this node's own ID, change nothing.
//!
//! Messages come late, twice, or not at all, and their sender may not know what this node
//! knows. So a valid message at the wrong moment is normal and changes nothing, and no message
//! undoes what is final: a job that is acked here stays acked whatever a node says of it, and
//! that node is sent SETACK. The sender of QUEUED, WORKING, WILLQUEUE, YOURJOBS, or of a GOTACK
//! that knows the job, has it or had it, and so becomes one of its holders here: were it left out
//! of the set, it would never get the ack.
//!
//! Two holders may queue a job at the same time, each before the other's QUEUED came. Then one
//! of them has to give in, and both must choose the same one without asking: the node that
//! ranks higher for this job keeps it queued. Who ranks lower takes it out of its queue; who
//! ranks higher says that it has it queued, since its own QUEUED may have been lost, or never
//! sent for a first enqueue.
//!
//! A job that was lent waits for its lender too: others may have given in to that one, and who
//! ranked higher than the borrower may be among them when its QUEUED comes. So a borrower does
//! not give in. It answers WORKING, which takes a job out of a queue whatever the ranks.
//!
//! Of two that queued a job at once each may have lent it before it learned of the other, and a
//! borrower queues in silence. So whoever goes on says so to all holders, and not only to the one
//! whose QUEUED met it: two borrowers learn of each other by that.

use crate::base::ids::{JobId, LinkId};
use crate::proto::bus::{GossipKind, Header, Message, MessageFlags};

use super::Engine;
use super::ack::KnowsJob;
use super::cluster::LinkEnds;
use super::jobs::{JobRef, JobState, Nack};
use super::node_set::NodeRef;
use super::queue::Pause;
use super::replication::Confirm;
use super::trace::{By, Event, Gone};

/// The message by which another node postpones a job's next delivery here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Postponed {
    Queued,
    Working,
}

impl Engine {
    /// A message of a peer came on a link.
    pub(super) fn on_bus_message(
        &mut self,
        link: LinkId,
        ends: LinkEnds,
        header: &Header,
        message: &Message<'_>,
    ) {
        self.cluster.count_received(message);
        match *message {
            Message::Ping(gossip) => {
                self.on_heartbeat(link, ends, header, GossipKind::Ping, gossip);
            }
            Message::Pong(gossip) => {
                self.on_heartbeat(link, ends, header, GossipKind::Pong, gossip);
            }
            Message::Meet(gossip) => {
                self.on_heartbeat(link, ends, header, GossipKind::Meet, gossip);
            }
            _ => {
                if let Some(from) = self.cluster.known_sender(header) {
                    self.message_of_node(from, header.message_flags, message);
                }
            }
        }
    }

    /// A message other than a heartbeat, from a node that is known.
    fn message_of_node(&mut self, from: NodeRef, flags: MessageFlags, message: &Message<'_>) {
        // Until its jobs are loaded this node would answer wrongly; senders will ask again. What is
        // said of nodes is not said again.
        let is_about_nodes = matches!(message, Message::Fail(_) | Message::NodeInfo(_));
        if self.storage.is_loading() && !is_about_nodes {
            return;
        }
        match message {
            Message::ReplJob(record) => {
                let confirm =
                    if flags.contains(MessageFlags::NOREPLY) { Confirm::No } else { Confirm::Yes };
                self.on_repl_job(from, record, confirm);
            }
            Message::GotJob { id, move_digest } => self.on_got_job(from, *id, *move_digest),
            Message::Enqueue { id, delay_secs } => self.on_enqueue(from, *id, *delay_secs, flags),
            Message::Queued { id, hold_secs } => {
                self.on_postponed(from, *id, Postponed::Queued, *hold_secs, flags);
            }
            Message::Working { id, hold_secs } => {
                self.on_postponed(from, *id, Postponed::Working, *hold_secs, flags);
            }
            Message::SetAck { id, may_have } => self.on_set_ack(from, *id, *may_have, flags),
            Message::WillQueue(id) => self.on_will_queue(from, *id, flags),
            Message::GotAck { id, known } => {
                let knows_job = if *known { KnowsJob::Yes } else { KnowsJob::No };
                self.on_got_ack(from, *id, knows_job);
            }
            Message::DelJob(id) => {
                self.delete_as_told(id);
            }
            Message::NeedJobs { queue, count } if flags.contains(MessageFlags::BETTER_ONLY) => {
                self.on_ask_for_better(from, queue, *count);
            }
            Message::NeedJobs { queue, count } => self.on_need_jobs(from, queue, *count, flags),
            Message::Offer { queue, number } => self.on_offer(from, queue, *number),
            Message::YourJobs(jobs) => self.on_your_jobs(from, *jobs),
            Message::Pause { queue, flags } => {
                self.set_pause(queue, Pause::NONE.with(Pause(*flags)))
            }
            Message::Query(query) => self.on_query(from, query),
            Message::Answer(answer) => self.on_answer(from, answer),
            Message::Moved(moved) => self.on_moved(from, moved),
            Message::NodeInfo(info) => self.cluster.note_node_info(self.now, from, info),
            Message::Fail(about) => self.on_fail(from, *about),
            Message::Ping(_) | Message::Pong(_) | Message::Meet(_) => {}
        }
    }

    /// DELJOB: another node has the job collected, or dropped.
    fn delete_as_told(&mut self, id: &JobId) {
        let is_acked = self.jobs.find(id).is_some_and(|r| self.jobs[r].is_acked());
        self.delete(id, if is_acked { Gone::Collected } else { Gone::Deleted });
    }

    /// ENQUEUE: this node is to be the first that queues the job, after a delay.
    ///
    /// Differs from C, where an at-most-once job has no requeue time on a node that got
    /// a copy, and so is never queued: one that was not delivered gets one now.
    fn on_enqueue(&mut self, from: NodeRef, id: JobId, delay_secs: u32, flags: MessageFlags) {
        if self.is_acked_here(&id) {
            self.send_set_ack(from, id);
            return;
        }
        let Some(r) = self.jobs.find(&id) else { return };
        if flags.contains(MessageFlags::GO_ON) {
            self.take_over_late_copies(r);
        }
        let job = &self.jobs[r];
        // A job that waits for copies here is nobody else's to enqueue.
        if !job.is_active()
            || job.is_spent()
            || job.awaits_burial()
            || self.queues[job.queue].live().is_some_and(|queue| queue.pause.is_in())
        {
            return;
        }
        self.jobs.wait_as_first(r, self.now.mono.plus_ms(u64::from(delay_secs) * 1000));
        if delay_secs == 0 {
            self.enqueue(r, Nack::No);
        }
    }

    /// QUEUED, WORKING: another node queued the job, or a client works on it there, or it is
    /// held there.
    fn on_postponed(
        &mut self,
        from: NodeRef,
        id: JobId,
        why: Postponed,
        hold_secs: u32,
        flags: MessageFlags,
    ) {
        if self.is_acked_here(&id) {
            self.send_set_ack(from, id);
            return;
        }
        let Some(r) = self.jobs.find(&id) else { return };
        self.jobs.add_may_have(r, from);
        if self.answer_other_move(from, r, flags) {
            return;
        }
        if why == Postponed::Working && self.jobs[r].is_at_most_once() {
            // As with the command, and differs from C: it would never be queued again.
            return;
        }
        if why == Postponed::Queued {
            if flags.contains(MessageFlags::INCR_NACKS) {
                self.jobs.count_nack(r);
            }
            if flags.contains(MessageFlags::INCR_DELIV) {
                self.jobs.count_delivery(r);
            }
        }
        if why == Postponed::Queued && self.answer_from_old_queue(from, r) {
            return;
        }
        if self.jobs[r].awaits_burial() {
            return;
        }
        self.give_way(from, r, why, hold_secs, flags);
    }

    /// Another node that agrees about where a job is has it queued, at work or held.
    pub(super) fn give_way(
        &mut self,
        from: NodeRef,
        r: JobRef,
        why: Postponed,
        hold_secs: u32,
        flags: MessageFlags,
    ) {
        if hold_secs > 0 {
            self.on_hold_elsewhere(from, r, why, hold_secs);
            return;
        }
        if self.jobs[r].is_held() {
            self.on_postponed_while_held(from, r, why, flags);
            return;
        }
        if why == Postponed::Working {
            self.trace(r, || Event::Working(By::Node(from)));
            self.dequeue(r);
            self.postpone(r);
        } else {
            self.on_queued_elsewhere(from, r);
        }
    }

    /// Another node has a job queued, or had it when it said so: if it is queued here too, the
    /// node of the higher rank keeps it.
    pub(super) fn on_queued_elsewhere(&mut self, from: NodeRef, r: JobRef) {
        self.trace(r, || Event::QueuedElsewhere(from));
        let id = self.jobs[r].id;
        if self.outranks_me(from, r) {
            // Differs from C, where a lent job may so leave all queues.
            if self.jobs[r].is_queued_as_borrowed() {
                let working = Message::Working { id, hold_secs: 0 };
                self.send_about(r, &[from], MessageFlags::NONE, &working);
                let others = self.holders_but(r, Some(from));
                let queued = Message::Queued { id, hold_secs: 0 };
                self.send_about(r, &others, MessageFlags::NONE, &queued);
            } else {
                self.dequeue(r);
            }
        } else if self.jobs[r].is_queued() {
            // Differs from C, where the sender may never learn that the job is queued here: the
            // first enqueue of a lent job is silent.
            self.send_to_holders(r, MessageFlags::NONE, &Message::Queued { id, hold_secs: 0 });
        }
        self.jobs.note_elsewhere(r);
        self.postpone(r);
    }

    /// Whether another node ranks higher than this one for a job: of two that queued or hold
    /// it the higher keeps it, and it buries first. The rank depends on the job, so that no node
    /// gets all of the load. C: cluster.c compareNodeIDsByJob.
    pub(super) fn outranks_me(&self, node: NodeRef, r: JobRef) -> bool {
        let random_part = &self.jobs[r].id.0[11..35];
        let rank = |id: &[u8; 40]| -> [u8; 40] {
            core::array::from_fn(|i| id[i] ^ random_part[i % random_part.len()])
        };
        rank(&self.cluster.id(node).0) > rank(&self.cluster.my_id().0)
    }

    /// WILLQUEUE: another node is about to queue the job.
    fn on_will_queue(&mut self, from: NodeRef, id: JobId, flags: MessageFlags) {
        if self.is_acked_here(&id) {
            self.send_set_ack(from, id);
            return;
        }
        let Some(r) = self.jobs.find(&id) else { return };
        if matches!(self.jobs[r].state(), JobState::Active | JobState::Queued) {
            self.jobs.add_may_have(r, from);
        }
        if self.answer_other_move(from, r, flags) || self.answer_from_old_queue(from, r) {
            return;
        }
        if self.jobs[r].awaits_burial() {
            self.give_way_at_burial(from, r);
        } else if self.jobs[r].is_queued() {
            self.send_to_holders(r, MessageFlags::NONE, &Message::Queued { id, hold_secs: 0 });
        } else if self.jobs[r].is_held() {
            self.answer_hold(from, r);
        }
    }
}
