//! What happens in the cluster, and what it means for jobs.
//!
//! The cluster is a machine of its own, see [`super::cluster`]. Each input in which something
//! may happen to it passes through here, and is followed by what the rest of the engine does
//! about its events.

use crate::base::ids::{LinkId, NodeId};
use crate::proto::bus::{Gossip, GossipKind, Header};

use super::Engine;
use super::cluster::{Cluster, Context, Event, LinkEnds};
use super::node_set::NodeRef;

impl Engine {
    /// The cluster as this node knows it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Hands the cluster an input, and acts on what happened in it.
    pub(super) fn with_cluster<T>(
        &mut self,
        input: impl FnOnce(&mut Cluster, &mut Context<'_>) -> T,
    ) -> T {
        let mut cx = Context { now: self.now, rng: &mut self.rng, out: &mut self.out };
        let result = input(&mut self.cluster, &mut cx);
        while let Some(event) = self.cluster.poll_event() {
            self.on_cluster_event(event);
        }
        result
    }

    /// A node that was away may have missed acks, and may have been started anew since it
    /// was sent a standing ask.
    fn on_cluster_event(&mut self, event: Event) {
        match event {
            Event::Joined(node) => self.resend_acks(node),
            Event::LinkUp(node) => {
                self.resend_acks(node);
                self.ask_anew();
            }
        }
    }

    /// What nodes.conf has to hold.
    pub fn nodes_conf(&self) -> Vec<u8> {
        self.cluster.nodes_conf(self.now)
    }

    pub(super) fn on_heartbeat(
        &mut self,
        link: LinkId,
        ends: LinkEnds,
        header: &Header,
        kind: GossipKind,
        gossip: Gossip<'_>,
    ) {
        self.with_cluster(|cluster, cx| cluster.heartbeat(cx, (link, ends), header, kind, gossip));
    }

    pub(super) fn on_fail(&mut self, from: NodeRef, about: NodeId) {
        self.with_cluster(|cluster, cx| cluster.fail(cx, from, about));
    }
}
