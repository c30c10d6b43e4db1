//! The metrics of queues: those of each that is shown, and those of all together.

use super::QueueTotals;
use super::text::{MetricRow, Samples, counter, gauge, histogram, shown_name};
use crate::engine::waits::WAIT_BOUNDS_MS;
use crate::server::http::queues::ShownQueue;

/// A queue, and its name as a label.
pub struct LabelledQueue {
    queue: ShownQueue,
    label: String,
}

impl LabelledQueue {
    pub fn new(queue: ShownQueue) -> Self {
        let label = shown_name(&queue.name);
        Self { queue, label }
    }

    fn with(&self, samples: &mut Samples<'_>, value: u64) {
        samples.with(&[("queue", &self.label)], value);
    }
}

/// Of each queue that is shown.
pub static FAMILIES: &[MetricRow<LabelledQueue>] = &[
    gauge("disque_queue_length", "Jobs queued.", |it, samples| {
        it.with(samples, it.queue.length);
    }),
    gauge(
        "disque_queue_oldest_age_seconds",
        "Age of the oldest job; not there for an empty queue.",
        |it, samples| {
            if let Some(ms) = it.queue.oldest_ms {
                samples.seconds_with(&[("queue", &it.label)], ms);
            }
        },
    ),
    gauge(
        "disque_queue_priority_length",
        "Jobs queued by priority, 1 being first; of queues with other priorities than 4.",
        |it, samples| {
            for jobs in &it.queue.priorities {
                let priority = jobs.priority.to_string();
                let labels = &[("queue", it.label.as_str()), ("priority", &priority)];
                samples.with(labels, jobs.length as u64);
            }
        },
    ),
    gauge(
        "disque_queue_priority_oldest_age_seconds",
        "Age of the oldest job of a priority; of queues with other priorities than 4.",
        |it, samples| {
            for jobs in &it.queue.priorities {
                let priority = jobs.priority.to_string();
                let labels = &[("queue", it.label.as_str()), ("priority", &priority)];
                samples.seconds_with(labels, jobs.oldest_ms);
            }
        },
    ),
    gauge("disque_queue_jobs_in_flight", "Jobs that clients of this node have.", |it, samples| {
        it.with(samples, it.queue.in_flight);
    }),
    gauge("disque_queue_jobs_delayed", "Jobs that wait for their time.", |it, samples| {
        it.with(samples, it.queue.delayed);
    }),
    gauge("disque_queue_blocked_clients", "Clients that wait for a job.", |it, samples| {
        it.with(samples, it.queue.blocked);
    }),
    counter("disque_queue_jobs_in", "Jobs that were put into the queue.", |it, samples| {
        it.with(samples, it.queue.jobs_in);
    }),
    counter(
        "disque_queue_jobs_out",
        "Jobs that clients fetched or other nodes got.",
        |it, samples| it.with(samples, it.queue.jobs_out),
    ),
    gauge("disque_queue_import_rate", "Jobs of other nodes, a second.", |it, samples| {
        it.with(samples, it.queue.import_rate);
    }),
    gauge("disque_queue_paused", "Whether the queue is paused in a direction.", |it, samples| {
        let pause = it.queue.pause;
        samples.with(&[("queue", &it.label), ("direction", "in")], pause.is_in().into());
        samples.with(&[("queue", &it.label), ("direction", "out")], pause.is_out().into());
    }),
    counter(
        "disque_queue_jobs_died",
        "Jobs of the queue that died on this node, by reason; of queues of which some did.",
        |it, samples| {
            if it.queue.deaths.sum() > 0 {
                for (reason, count) in it.queue.deaths.iter() {
                    samples.with(&[("queue", &it.label), ("reason", reason.name())], count);
                }
            }
        },
    ),
    histogram(
        "disque_queue_wait_seconds",
        "How long jobs waited in the queue on this node before a client got them.",
        |it, samples| {
            let labels = &[("queue", it.label.as_str())];
            samples.histogram(labels, &it.queue.waits, &WAIT_BOUNDS_MS, 1000.0);
        },
    ),
];

/// Of all queues together, and of those that have no series of their own.
pub(super) static OF_ALL: &[MetricRow<QueueTotals>] = &[
    gauge("disque_queues", "Queues.", |it, samples| samples.value(it.all.count)),
    gauge("disque_queues_length", "Jobs queued in all queues.", |it, samples| {
        samples.value(it.all.length);
    }),
    gauge(
        "disque_queues_oldest_age_seconds",
        "Age of the oldest job of all queues; not there without queued jobs.",
        |it, samples| {
            if let Some(ms) = it.all.oldest_ms {
                samples.seconds(ms);
            }
        },
    ),
    gauge("disque_queues_paused", "Queues that are paused.", |it, samples| {
        samples.value(it.all.paused);
    }),
    counter("disque_queues_jobs_in", "Jobs that were put into any queue.", |it, samples| {
        samples.value(it.traffic.jobs_in);
    }),
    counter(
        "disque_queues_jobs_out",
        "Jobs that clients fetched, or other nodes got, of any queue.",
        |it, samples| samples.value(it.traffic.jobs_out),
    ),
    gauge(
        "disque_other_queues",
        "Queues without series of their own: all but the longest, and those with long names.",
        |it, samples| samples.value(it.rest.count),
    ),
    gauge("disque_other_queues_length", "Jobs queued in those.", |it, samples| {
        samples.value(it.rest.length);
    }),
    gauge("disque_other_queues_blocked_clients", "Clients that wait there.", |it, samples| {
        samples.value(it.rest.blocked);
    }),
];
