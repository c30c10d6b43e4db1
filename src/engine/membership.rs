//! Inputs that concern the cluster, and what its events mean for jobs.
//!
//! The cluster is a machine of its own, see [`super::cluster`]. Each of its inputs passes
//! through here, and is followed by what the rest of the engine does about its events.

use crate::base::ids::{LinkId, NodeId};
use crate::base::time::Now;
use crate::proto::bus::{Gossip, GossipKind, Header};
use crate::proto::nodes_conf::NodeLine;

use super::Engine;
use super::cluster::{Cluster, Context, Event, LinkEnds};
use super::node_set::NodeRef;
use super::outbox::ConnectToken;

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

    /// A link that was requested is there.
    pub fn link_up(&mut self, now: Now, link: LinkId, token: ConnectToken) {
        self.now = now;
        self.with_cluster(|cluster, cx| cluster.link_up(cx, link, token));
    }

    /// A link that was requested could not be made.
    pub fn link_failed(&mut self, now: Now, token: ConnectToken) {
        self.now = now;
        self.cluster.link_failed(token);
    }

    /// A link is gone, made by this node or by the other.
    pub fn link_down(&mut self, now: Now, link: LinkId) {
        self.now = now;
        self.cluster.link_down(link);
    }

    /// Takes in what nodes.conf says, at start; see [`Cluster::load`].
    pub fn load_nodes(&mut self, now: Now, lines: &[NodeLine]) {
        self.now = now;
        self.cluster.load(now, lines);
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
