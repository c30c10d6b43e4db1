//! A queue on all nodes: QSTAT CLUSTER.
//!
//! Each able node is asked what it knows of the queue, and the client waits until all have answered
//! or are silent ([`super::queries`]), which is a quarter of a second at most. What is summed up is
//! what each node has: a job that waits in a queue is in that of one node, copies count nowhere.

use std::collections::BTreeSet;

use crate::proto::bus::QueryKind;
use crate::proto::queue_figures::QueueFigures;
use crate::proto::reply::{ReplyWriter, Resp};

use super::Engine;
use super::blocked::Wait;
use super::command::{Call, Outcome};
use super::node_set::NodeRef;
use super::queries::SILENT_AFTER_MS;

/// A QSTAT CLUSTER that waits for answers.
#[derive(Debug)]
pub struct QueueSurvey {
    pub resp: Resp,
    queue: Box<[u8]>,
    /// Summed up so far; `None` while no node knows the queue.
    figures: Option<QueueFigures>,
    waits_for: BTreeSet<NodeRef>,
    /// Nodes that answered, this one among them.
    node_count: usize,
    silent_count: usize,
}

impl QueueSurvey {
    fn add(&mut self, figures: Option<QueueFigures>) {
        self.node_count += 1;
        self.figures = match (self.figures.take(), figures) {
            (Some(before), Some(more)) => Some(before.with(&more)),
            (before, more) => before.or(more),
        };
    }

    /// Writes what there is; who has not answered is silent.
    pub fn write(&self, reply: &mut ReplyWriter<'_>) {
        let Some(figures) = &self.figures else {
            reply.null_array();
            return;
        };
        let silent_count = self.silent_count + self.waits_for.len();
        let counts = [("nodes", self.node_count as u64), ("silent", silent_count as u64)];
        let pairs = figures.pairs();
        reply.array(2 * (1 + pairs.len() + counts.len()));
        reply.bulk(b"name");
        reply.bulk(&self.queue);
        for (name, number) in pairs.into_iter().chain(counts) {
            reply.bulk(name);
            reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }
}

impl Engine {
    /// Asks all nodes about a queue; answers at once when there is nobody to be waited for.
    pub(super) fn survey_queue(&mut self, call: &Call<'_>, queue: &[u8]) -> Outcome {
        let (waits_for, silent) = self.query_all(QueryKind::QUEUE, queue, SILENT_AFTER_MS);
        let mut survey = QueueSurvey {
            resp: call.resp,
            queue: queue.into(),
            figures: None,
            waits_for: waits_for.into_iter().collect(),
            node_count: 0,
            silent_count: silent.len(),
        };
        survey.add(self.queue_figures(queue));
        if survey.waits_for.is_empty() {
            survey.write(&mut self.reply(call.client, call.resp));
            return Outcome::Done;
        }
        let deadline = self.now.mono.plus_ms(SILENT_AFTER_MS);
        self.blocked.begin(call.client, Wait::Survey(Box::new(survey)), deadline);
        Outcome::Blocked
    }

    /// What this node knows of a queue, if it has it, or jobs of it died here.
    fn queue_figures(&self, name: &[u8]) -> Option<QueueFigures> {
        let q = self.queues.find(name);
        let counts = q.map(|q| self.jobs.counts_of(q)).unwrap_or_default();
        let mut figures = QueueFigures {
            in_flight: counts.in_flight.into(),
            delayed: counts.delayed.into(),
            dead: self.deaths.of_queue(name).sum(),
            ..QueueFigures::default()
        };
        let queue = q.and_then(|q| self.queues[q].live());
        if queue.is_none() && figures == QueueFigures::default() {
            return None;
        }
        let now = self.now.mono;
        if let Some(queue) = queue {
            figures.len = queue.jobs.len() as u64;
            figures.age_secs = now.ms_since(queue.created_at) / 1000;
            figures.blocked = queue.waiters.len() as u64;
            figures.import_rate = queue.imports.rate(now);
            figures.jobs_in = queue.jobs_in;
            figures.jobs_out = queue.jobs_out;
        }
        Some(figures)
    }

    /// What this node answers of a queue: nothing if it does not know it.
    pub(super) fn answer_queue(&self, name: &[u8]) -> Vec<u8> {
        self.queue_figures(name).map_or_else(Vec::new, |figures| figures.encode())
    }

    /// A node answered what it knows of a queue.
    pub(super) fn on_queue_answered(&mut self, from: NodeRef, name: &[u8], answer: &[u8]) {
        for client in self.blocked.surveying() {
            let survey = self.blocked.survey(client).filter(|survey| *survey.queue == *name);
            if let Some(survey) = survey
                && survey.waits_for.remove(&from)
            {
                survey.add(QueueFigures::decode(answer));
                if survey.waits_for.is_empty() {
                    self.on_deadline(client);
                }
            }
        }
    }
}
