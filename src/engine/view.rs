//! What replies, records and frames are written from.
//!
//! Whoever writes reads jobs, queues and nodes, and appends to a lane of the outbox. The two
//! are different parts of the engine, so a [`View`] borrows the one while the other changes.

use crate::base::time::Now;
use crate::proto::reply::ReplyWriter;

use super::Engine;
use super::ack_only::AckOnlyJobs;
use super::blocked::Counters;
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
    /// One job in a reply: `[queue, id, body]`, or seven elements with the counters.
    pub fn write_row(&self, reply: &mut ReplyWriter<'_>, r: JobRef, counters: Counters) {
        let job = &self.jobs[r];
        reply.array(if counters == Counters::Yes { 7 } else { 3 });
        reply.bulk(&self.queues[job.queue].name);
        reply.bulk(job.id.0);
        reply.bulk(&job.body);
        if counters == Counters::Yes {
            reply.bulk(b"nacks");
            reply.integer(i64::from(job.nack_count()));
            reply.bulk(b"additional-deliveries");
            reply.integer(i64::from(job.delivery_count()));
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
