//! The engine's tables, borrowed for reading while something is written from them.
//!
//! Whoever writes reads jobs, queues and nodes, and appends to a lane of the outbox. The two
//! are different parts of the engine, so a [`View`] borrows the one while the other changes.

use crate::base::time::Now;
use crate::proto::attributes::user_attribute;
use crate::proto::facts::{self, Facts};
use crate::proto::reply::ReplyWriter;

use super::Engine;
use super::ack_only::AckOnlyJobs;
use super::blocked::Extras;
use super::cluster::Cluster;
use super::jobs::{JobRef, Jobs};
use super::node_set::NodeRef;
use super::outbox::Outbox;
use super::queue::Queues;

/// All that is known here, to be read.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub now: Now,
    pub jobs: &'a Jobs,
    pub ack_only: &'a AckOnlyJobs,
    pub queues: &'a Queues,
    pub cluster: &'a Cluster,
}

impl Engine {
    /// What there is to be read.
    pub(super) fn view(&self) -> View<'_> {
        View {
            now: self.now,
            jobs: &self.jobs,
            ack_only: &self.ack_only,
            queues: &self.queues,
            cluster: &self.cluster,
        }
    }

    /// What there is to be read, and the lanes that it is written to.
    pub(super) fn view_and_out(&mut self) -> (View<'_>, &mut Outbox) {
        let view = View {
            now: self.now,
            jobs: &self.jobs,
            ack_only: &self.ack_only,
            queues: &self.queues,
            cluster: &self.cluster,
        };
        (view, &mut self.out)
    }
}

impl View<'_> {
    /// One job in a reply: `[queue, id, body]`, and behind it names and values of what else is
    /// answered.
    pub fn write_row(&self, reply: &mut ReplyWriter<'_>, r: JobRef, extras: Extras) {
        let job = &self.jobs[r];
        let with_counters = extras.contains(Extras::COUNTERS);
        let with_attributes = extras.contains(Extras::ATTRIBUTES);
        let facts = if with_attributes { self.jobs.facts(r) } else { None };
        let fields = 2 * usize::from(with_attributes) + 2 * usize::from(facts.is_some());
        reply.array(3 + 4 * usize::from(with_counters) + fields);
        reply.bulk(&self.queues[job.queue].name);
        reply.bulk(job.id.0);
        reply.bulk(&job.body);
        if with_counters {
            reply.bulk(b"nacks");
            reply.integer(i64::from(job.nack_count()));
            reply.bulk(b"additional-deliveries");
            reply.integer(i64::from(job.delivery_count()));
        }
        if with_attributes {
            self.write_attributes(reply, r);
        }
        if let Some(facts) = facts {
            write_facts(reply, &facts);
        }
    }

    /// The user attributes of a job: `attrs`, and their names and values in their order; null
    /// where they were lost on the way here.
    pub fn write_attributes(&self, reply: &mut ReplyWriter<'_>, r: JobRef) {
        reply.bulk(b"attrs");
        let Some(attributes) = self.jobs.attributes(r) else {
            reply.null_array();
            return;
        };
        reply.array(2 * attributes.users().count());
        for attribute in attributes.users() {
            if let Some((name, value)) = user_attribute(&attribute) {
                reply.bulk(name);
                reply.bulk(value);
            }
        }
    }

    /// An element of a reply: a name, and the IDs of some nodes.
    pub fn write_nodes(&self, reply: &mut ReplyWriter<'_>, name: &str, nodes: &[NodeRef]) {
        reply.bulk(name);
        reply.array(nodes.len());
        for node in nodes {
            reply.bulk(self.cluster.id(*node).0);
        }
    }
}

/// How a job died, or did before it was moved: `dead` or `was-dead`, and names and values.
pub(super) fn write_facts(reply: &mut ReplyWriter<'_>, value: &[u8]) {
    reply.bulk(if facts::are_in_force(value) { "dead" } else { "was-dead" });
    let Some(facts) = Facts::decode(value) else {
        // A later version of this server wrote them.
        reply.array(0);
        return;
    };
    let has_note = !facts.note.is_empty();
    reply.array(12 + 2 * usize::from(has_note));
    reply.bulk(b"reason");
    reply.bulk(facts.reason.name());
    reply.bulk(b"queue");
    reply.bulk(facts.origin);
    let numbers = [
        ("nacks", u64::from(facts.nacks)),
        ("additional-deliveries", u64::from(facts.deliveries)),
        ("died-at", facts.died_at.0),
        ("ttl", u64::from(facts.ttl_secs)),
    ];
    for (name, number) in numbers {
        reply.bulk(name);
        reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
    if has_note {
        reply.bulk(b"note");
        reply.bulk(facts.note);
    }
}
