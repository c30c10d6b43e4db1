//! What happens in the cluster, and what it means for jobs.
//!
//! The cluster is a machine of its own, see [`super::cluster`]. Each input in which something
//! may happen to it passes through here, and is followed by what the rest of the engine does
//! about its events.

use log::info;

use crate::base::ids::{LinkId, NodeId};
use crate::proto::bus::{Gossip, GossipKind, Header};

use super::Engine;
use super::cluster::{Cluster, Context, Event, LinkEnds};
use super::late_copies::Resend;
use super::node_set::{ME, NodeRef};

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

    /// Logs what happened, once, and sees to the jobs: a node that was away may have missed
    /// acks, and may have been started anew since it was sent a standing ask.
    fn on_cluster_event(&mut self, event: Event) {
        log_event(&self.cluster, event);
        match event {
            Event::Joined(node) => {
                self.resend_acks(node);
                self.resend_moves(node);
            }
            Event::Acquainted(node) => {
                self.link_count += 1;
                // What it was sent before came from an unknown node.
                self.copy_to(node, Resend::Yes);
            }
            Event::LinkUp(node) => {
                self.resend_acks(node);
                self.resend_moves(node);
                self.cluster.send_node_info(&mut self.out, &[node]);
                self.copy_to(node, Resend::Yes);
                self.link_count += 1;
                self.jobs.search_for_attributes();
            }
            Event::AbilitiesKnown(node) => {
                self.cluster.send_node_info(&mut self.out, &[node]);
                self.resend_moves(node);
                self.jobs.search_for_attributes();
            }
            Event::AnswersAgain(node) | Event::Stays(node) => self.copy_to(node, Resend::No),
            _ => {}
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
        if kind == GossipKind::Ping
            && let Some(node) = self.cluster.known_sender(header)
        {
            self.restored.note_ping(node);
            self.note_ping_for_copies(node, link);
        }
    }

    pub(super) fn on_fail(&mut self, from: NodeRef, about: NodeId) {
        self.with_cluster(|cluster, _| cluster.fail(from, about));
    }
}

/// The line of the log, at notice, for what happened to a node.
fn log_event(cluster: &Cluster, event: Event) {
    let name = |node| cluster.name(node);
    match event {
        Event::LinkUp(_) | Event::Acquainted(_) | Event::AbilitiesKnown(_) => {}
        Event::Joined(node) => info!("Node {} joined the cluster.", name(node)),
        Event::PossiblyFailing(node) => {
            info!("Node {} does not answer: it gets no jobs until it does.", name(node));
        }
        Event::Failing(node) => {
            info!("Node {} is failing: a majority of the nodes cannot reach it.", name(node));
        }
        Event::AnswersAgain(node) => info!("Node {} answers again.", name(node)),
        Event::AddressLost { node, address, other } => {
            info!("Node {} is not at {address} any more: node {other} answers there.", name(node));
        }
        Event::Leaving(ME) => info!("This node is leaving the cluster: it takes no new jobs."),
        Event::Leaving(node) => {
            info!("Node {} is leaving the cluster: it gets no new jobs.", name(node));
        }
        Event::Stays(ME) => info!("This node stays in the cluster."),
        Event::Stays(node) => info!("Node {} stays in the cluster.", name(node)),
        Event::Forgotten(node) => info!("Node {} was forgotten.", name(node)),
        Event::ForgottenAsFailing(node) => {
            info!(
                "Node {} was failing for so long that it is forgotten: it is back when it pings.",
                name(node)
            );
        }
        Event::Reset => {
            info!("All other nodes were forgotten. This node is {} now.", cluster.my_id());
        }
    }
}
