//! `/metrics`: what Prometheus scrapes, in its text format or in OpenMetrics.
//!
//! A metric is a row in one of the tables of [`node`] and [`per_queue`]; [`text`] writes it in
//! either format. A scrape is a walk over all queues and then the tables, one after the other, in
//! small steps. Of the queues it takes the figures at one moment before it writes any.
//!
//! What it costs whoever keeps it is bounded: queues by [`QUEUES_MAX`], nodes by
//! [`node::PEERS_MAX`], commands by their table. Counters never fall while the server runs, not
//! by CONFIG RESETSTAT and not when queues are dropped. Figures of the other queues together
//! have no counters: such a sum would fall whenever a queue gets among the shown ones.

mod node;
mod per_queue;
pub mod text;

use super::answer::{HttpAnswer, Parts};
use super::queues::{QueueListing, QueueSums};
use super::request::HttpRequest;
use crate::engine::More;
use crate::engine::queue::Traffic;
use crate::server::Server;
use text::{MetricFormat, MetricText};

/// Most queues with series of their own.
pub const QUEUES_MAX: usize = 1000;
/// Queues whose samples of one metric are written in a step.
const STEP: usize = 64;

/// What the next scrape has to know of the one before.
#[derive(Debug, Default)]
pub struct LastScrape {
    /// The slots of the queues that were shown, in order.
    shown: Vec<u32>,
    traffic: Traffic,
}

/// GET /metrics -> every metric, in the format that the client prefers.
pub fn answer(server: &Server, request: &HttpRequest) -> HttpAnswer {
    let format = MetricFormat::preferred(&request.accept);
    let shown = server.http.last_scrape.borrow().shown.clone();
    let scrape = Scrape {
        format,
        stage: ScrapeStage::Walk(Box::new(QueueListing::longest(server, shown, QUEUES_MAX))),
        totals: QueueTotals::default(),
        rows: Vec::new(),
    };
    HttpAnswer::parts(format.content_type(), scrape)
}

/// What all queues come to.
#[derive(Clone, Copy, Debug, Default)]
struct QueueTotals {
    all: QueueSums,
    rest: QueueSums,
    traffic: Traffic,
}

enum ScrapeStage {
    Walk(Box<QueueListing>),
    /// The metrics of the node from this place of their table on.
    Node {
        family: usize,
    },
    OfAllQueues,
    /// The metrics of queues from this place of their table on, and from this queue on.
    Queues {
        family: usize,
        row: usize,
    },
    End,
}

struct Scrape {
    format: MetricFormat,
    stage: ScrapeStage,
    totals: QueueTotals,
    rows: Vec<per_queue::LabelledQueue>,
}

impl Parts for Scrape {
    fn write_some(&mut self, server: &Server, out: &mut Vec<u8>) -> More {
        let mut text = MetricText::new(out, self.format);
        self.stage = match std::mem::replace(&mut self.stage, ScrapeStage::End) {
            ScrapeStage::Walk(mut walk) => match walk.step(server) {
                More::Yes => ScrapeStage::Walk(walk),
                More::No => {
                    self.take(server, *walk);
                    ScrapeStage::Node { family: 0 }
                }
            },
            ScrapeStage::Node { family } => match node::FAMILIES.get(family) {
                Some(row) => {
                    text.family(&row.family, |samples| (row.write)(server, samples));
                    ScrapeStage::Node { family: family + 1 }
                }
                None => ScrapeStage::OfAllQueues,
            },
            ScrapeStage::OfAllQueues => {
                for row in per_queue::OF_ALL {
                    text.family(&row.family, |samples| (row.write)(&self.totals, samples));
                }
                ScrapeStage::Queues { family: 0, row: 0 }
            }
            ScrapeStage::Queues { family, row } => match per_queue::FAMILIES.get(family) {
                Some(table_row) => {
                    if row == 0 {
                        text.head(&table_row.family);
                    }
                    let until = (row + STEP).min(self.rows.len());
                    for queue in &self.rows[row..until] {
                        text.samples(&table_row.family, |samples| {
                            (table_row.write)(queue, samples)
                        });
                    }
                    match until == self.rows.len() {
                        true => ScrapeStage::Queues { family: family + 1, row: 0 },
                        false => ScrapeStage::Queues { family, row: until },
                    }
                }
                None => {
                    text.end();
                    return More::No;
                }
            },
            ScrapeStage::End => return More::No,
        };
        More::Yes
    }
}

impl Scrape {
    /// Takes over what a walk has found.
    fn take(&mut self, server: &Server, walk: QueueListing) {
        let mut last = server.http.last_scrape.borrow_mut();
        last.shown = walk.rows.iter().map(|row| row.slot).collect();
        last.shown.sort_unstable();
        // A queue that was dropped during the walk may have been missed.
        last.traffic.jobs_in = last.traffic.jobs_in.max(walk.traffic.jobs_in);
        last.traffic.jobs_out = last.traffic.jobs_out.max(walk.traffic.jobs_out);
        self.totals = QueueTotals { all: walk.sums, rest: walk.rest, traffic: last.traffic };
        self.rows = walk.rows.into_iter().map(per_queue::LabelledQueue::new).collect();
    }
}
