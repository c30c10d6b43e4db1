//! The life of a job on all nodes: TRACE.
//!
//! As QSTAT CLUSTER ([`crate::engine::queue_survey`]): each able node is asked, and the client waits
//! until all have answered or are silent. Each node notes events by its own clock. What it answers has
//! the time there, so the node that asks knows how far that clock is from its own, give or take half
//! of the round trip, and says so in a row of its own.

use std::collections::BTreeSet;

use crate::base::ids::{JobId, NodeId};
use crate::base::time::{MonoMs, UnixMs};
use crate::engine::Engine;
use crate::engine::blocked::Wait;
use crate::engine::command::{Call, Outcome};
use crate::engine::node_set::NodeRef;
use crate::proto::bus::QueryKind;
use crate::proto::reply::{ReplyWriter, Resp};
use crate::proto::trace::{NodeTrace, TraceRow, put_in_order};

/// A TRACE that waits for answers.
#[derive(Debug)]
pub struct TraceSurvey {
    pub resp: Resp,
    id: JobId,
    rows: Vec<(NodeId, TraceRow)>,
    /// What is known of clocks, one row a node that knows the job.
    clocks: Vec<(NodeId, TraceRow)>,
    waits_for: BTreeSet<(NodeRef, NodeId)>,
    silent: Vec<NodeId>,
}

impl TraceSurvey {
    /// Writes what there is; who has not answered is silent.
    pub fn write(mut self, reply: &mut ReplyWriter<'_>) {
        let at = |(_, row): &(NodeId, TraceRow)| i64::try_from(row.at.0).unwrap_or(i64::MAX);
        put_in_order(&mut self.rows, |(node, _)| *node, at);
        self.clocks.sort_by_key(|(node, _)| *node);
        self.silent.extend(self.waits_for.iter().map(|(_, id)| *id));
        self.silent.sort_unstable();
        let silent = self.silent.iter().map(|id| (*id, TraceRow::new(UnixMs(0), "silent")));
        let rows: Vec<_> = self.rows.into_iter().chain(self.clocks).chain(silent).collect();
        if rows.is_empty() {
            reply.null_array();
            return;
        }
        reply.array(rows.len());
        for (node, row) in rows {
            reply.array(3 + 2 * row.details.len());
            reply.integer(i64::try_from(row.at.0).unwrap_or(i64::MAX));
            reply.bulk(node.0);
            reply.bulk(&row.event);
            for (name, value) in &row.details {
                reply.bulk(name);
                reply.bulk(value);
            }
        }
    }
}

impl Engine {
    /// Asks all nodes what happened to a job, and waits for so many ms; answers at once when there
    /// is nobody to be waited for.
    pub(in crate::engine) fn survey_trace(
        &mut self,
        call: &Call<'_>,
        id: JobId,
        ms: u64,
    ) -> Outcome {
        let me = *self.cluster.my_id();
        let (waits_for, silent) = self.query_all(QueryKind::TRACE, &id.0, ms);
        let named = |node: NodeRef| (node, self.cluster.id(node));
        let survey = TraceSurvey {
            resp: call.resp,
            id,
            rows: self.trace_of(&id).into_iter().map(|row| (me, row)).collect(),
            clocks: Vec::new(),
            waits_for: waits_for.into_iter().map(named).collect(),
            silent: silent.into_iter().map(|node| self.cluster.id(node)).collect(),
        };
        if survey.waits_for.is_empty() {
            survey.write(&mut self.reply(call.client, call.resp));
            return Outcome::Done;
        }
        let deadline = self.now.mono.plus_ms(ms);
        self.blocked.begin(call.client, Wait::Trace(Box::new(survey)), deadline);
        Outcome::Blocked
    }

    /// What this node answers of a job: its time alone if it knows nothing. `None` for what is no
    /// ID.
    pub(in crate::engine) fn answer_trace(&self, id: &[u8]) -> Option<Vec<u8>> {
        let id = JobId::parse(id)?;
        Some(NodeTrace { now: self.now.wall, rows: self.trace_of(&id) }.encode())
    }

    /// A node answered what happened to a job there.
    pub(in crate::engine) fn on_trace_answered(
        &mut self,
        from: NodeRef,
        id: &[u8],
        asked_at: MonoMs,
        answer: &[u8],
    ) {
        let node = self.cluster.id(from);
        let Ok(trace) = NodeTrace::decode(answer) else { return };
        let clock = self.clock_row(&trace, asked_at);
        for client in self.blocked.surveying() {
            let survey = self.blocked.trace_survey(client).filter(|survey| survey.id.0 == *id);
            if let Some(survey) = survey
                && survey.waits_for.remove(&(from, node))
            {
                if !trace.rows.is_empty() {
                    survey.clocks.push((node, clock.clone()));
                }
                survey.rows.extend(trace.rows.iter().cloned().map(|row| (node, row)));
                if survey.waits_for.is_empty() {
                    self.on_deadline(client);
                }
            }
        }
    }

    /// How far the clock of a node is ahead of the one here, by its answer: it was read there about
    /// half of the round trip ago.
    fn clock_row(&self, trace: &NodeTrace, asked_at: MonoMs) -> TraceRow {
        let round_trip_ms = self.now.mono.ms_since(asked_at);
        let read_at = self.now.wall.0.saturating_sub(round_trip_ms / 2);
        let offset_ms = i128::from(trace.now.0) - i128::from(read_at);
        TraceRow::new(UnixMs(0), "clock")
            .with("offset-ms", offset_ms.to_string())
            .with("round-trip-ms", round_trip_ms.to_string())
    }
}
