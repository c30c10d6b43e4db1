//! The two text formats of metrics, which differ in little: how a counter's name stands in its
//! heading, whether units are told, and how a text ends.
//!
//! Values of labels are UTF-8. A name that is not, or that has control characters in it, is
//! shown as `base64:` and its bytes in base64, and so is one that begins with that word: no two
//! names are shown alike.

use std::fmt::Write as _;

use crate::base::histogram::Histogram;
use crate::base::{json, number};

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricFormat {
    /// Prometheus text, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl MetricFormat {
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The one that an Accept header prefers: OpenMetrics only where it is asked for.
    pub fn preferred(accept: &str) -> Self {
        let (mut open_metrics, mut others) = (0.0, 0.0_f64);
        for range in accept.split(',') {
            let mut words = range.split(';').map(str::trim);
            let media = words.next().unwrap_or("");
            let (mut quality, mut version) = (1.0, "1.0.0");
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                match name.trim() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => version = value.trim().trim_matches('"'),
                    _ => {}
                }
            }
            if media.eq_ignore_ascii_case("application/openmetrics-text") {
                if version == "1.0.0" {
                    open_metrics = quality;
                }
            } else {
                others = others.max(quality);
            }
        }
        if open_metrics > 0.0 && open_metrics >= others {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Gauge,
    Counter,
    Histogram,
    /// Labels and no value.
    Info,
}

/// A metric with all its series.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamily {
    /// Without `_total` and `_info`. A unit stands at its end.
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
}

/// A row of a table of metrics: the metric, and what writes its samples.
pub struct MetricRow<T: 'static + ?Sized> {
    pub family: MetricFamily,
    pub write: fn(&T, &mut Samples<'_>),
}

const fn row<T: ?Sized>(
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    write: fn(&T, &mut Samples<'_>),
) -> MetricRow<T> {
    MetricRow { family: MetricFamily { name, kind, help }, write }
}

pub const fn gauge<T: ?Sized>(
    name: &'static str,
    help: &'static str,
    write: fn(&T, &mut Samples<'_>),
) -> MetricRow<T> {
    row(MetricKind::Gauge, name, help, write)
}

pub const fn counter<T: ?Sized>(
    name: &'static str,
    help: &'static str,
    write: fn(&T, &mut Samples<'_>),
) -> MetricRow<T> {
    row(MetricKind::Counter, name, help, write)
}

pub const fn histogram<T: ?Sized>(
    name: &'static str,
    help: &'static str,
    write: fn(&T, &mut Samples<'_>),
) -> MetricRow<T> {
    row(MetricKind::Histogram, name, help, write)
}

pub const fn info<T: ?Sized>(
    name: &'static str,
    help: &'static str,
    write: fn(&T, &mut Samples<'_>),
) -> MetricRow<T> {
    row(MetricKind::Info, name, help, write)
}

/// Names and values of labels.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The units that names end with.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// A text of metrics under way.
pub struct MetricText<'a> {
    out: &'a mut Vec<u8>,
    format: MetricFormat,
}

impl<'a> MetricText<'a> {
    pub fn new(out: &'a mut Vec<u8>, format: MetricFormat) -> Self {
        Self { out, format }
    }

    /// Writes a metric with its heading.
    pub fn family(&mut self, family: &MetricFamily, write: impl FnOnce(&mut Samples<'_>)) {
        self.head(family);
        self.samples(family, write);
    }

    /// Writes the heading of a metric.
    pub fn head(&mut self, family: &MetricFamily) {
        let is_open = self.format == MetricFormat::OpenMetrics;
        let suffix = match family.kind {
            MetricKind::Counter if !is_open => "_total",
            MetricKind::Info if !is_open => "_info",
            _ => "",
        };
        let kind = match family.kind {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Histogram => "histogram",
            MetricKind::Info if is_open => "info",
            MetricKind::Info => "gauge",
        };
        let MetricFamily { name, help, .. } = family;
        let mut head = format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
        let unit = UNITS
            .iter()
            .find(|unit| name.strip_suffix(**unit).is_some_and(|rest| rest.ends_with('_')));
        if let Some(unit) = unit.filter(|_| is_open) {
            let _infallible = writeln!(head, "# UNIT {name} {unit}");
        }
        self.out.extend_from_slice(head.as_bytes());
    }

    /// Writes samples of a metric whose heading is written.
    pub fn samples(&mut self, family: &MetricFamily, write: impl FnOnce(&mut Samples<'_>)) {
        write(&mut Samples { out: self.out, family });
    }

    /// Ends the text.
    pub fn end(&mut self) {
        if self.format == MetricFormat::OpenMetrics {
            self.out.extend_from_slice(b"# EOF\n");
        }
    }
}

/// Writes the samples of one metric.
pub struct Samples<'a> {
    out: &'a mut Vec<u8>,
    family: &'a MetricFamily,
}

impl Samples<'_> {
    /// A sample without labels.
    pub fn value(&mut self, value: u64) {
        self.with(&[], value);
    }

    /// A flag without labels: 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.value(value.into());
    }

    /// A number of seconds, given in ms, without labels.
    pub fn seconds(&mut self, ms: u64) {
        self.seconds_with(&[], ms);
    }

    /// A sample with labels.
    pub fn with(&mut self, labels: Labels<'_>, value: u64) {
        self.name(self.suffix(), labels, None);
        number::append_u64(self.out, value);
        self.out.push(b'\n');
    }

    /// A number of seconds, given in ms, with labels.
    pub fn seconds_with(&mut self, labels: Labels<'_>, ms: u64) {
        self.name(self.suffix(), labels, None);
        self.float(ms as f64 / 1000.0);
    }

    /// Any number without labels.
    pub fn real(&mut self, value: f64) {
        self.name(self.suffix(), &[], None);
        self.float(value);
    }

    /// A histogram of seconds, whose bounds and sum are given in so many parts of a second.
    pub fn histogram<const N: usize>(
        &mut self,
        labels: Labels<'_>,
        histogram: &Histogram<N>,
        bounds: &[u64; N],
        per_second: f64,
    ) {
        for (bound, count) in bounds.iter().zip(histogram.up_to()) {
            let le = match *bound {
                u64::MAX => "+Inf".to_owned(),
                bound => format!("{:?}", bound as f64 / per_second),
            };
            self.name("_bucket", labels, Some(&le));
            number::append_u64(self.out, count);
            self.out.push(b'\n');
        }
        self.name("_sum", labels, None);
        self.float(histogram.sum() as f64 / per_second);
        self.name("_count", labels, None);
        number::append_u64(self.out, histogram.count());
        self.out.push(b'\n');
    }

    fn suffix(&self) -> &'static str {
        match self.family.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        }
    }

    fn float(&mut self, value: f64) {
        self.out.extend_from_slice(format!("{value}\n").as_bytes());
    }

    /// Name and labels, and the blank behind them.
    fn name(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>) {
        self.out.extend_from_slice(self.family.name.as_bytes());
        self.out.extend_from_slice(suffix.as_bytes());
        let mut opening = b'{';
        for (name, value) in labels.iter().copied().chain(le.map(|le| ("le", le))) {
            self.out.push(std::mem::replace(&mut opening, b','));
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(b"=\"");
            append_escaped(self.out, value);
            self.out.push(b'"');
        }
        self.out.extend_from_slice(if opening == b',' { b"} " } else { b" " });
    }
}

fn append_escaped(out: &mut Vec<u8>, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.push(byte),
        }
    }
}

/// A name as the value of a label; see the module's text.
pub fn shown_name(name: &[u8]) -> String {
    const PREFIX: &str = "base64:";
    match str::from_utf8(name) {
        Ok(text) if !text.contains(char::is_control) && !text.starts_with(PREFIX) => text.into(),
        _ => {
            let mut shown = PREFIX.as_bytes().to_vec();
            json::write_base64(name, &mut shown);
            String::from_utf8(shown).expect("base64 is ASCII")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: MetricFormat, row: &MetricRow<()>) -> String {
        let mut out = Vec::new();
        let mut text = MetricText::new(&mut out, format);
        text.family(&row.family, |samples| (row.write)(&(), samples));
        text.end();
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_formats_differ_in_headings() {
        let row = counter("a_bytes", "Some help.", |(), samples| samples.value(7));
        assert_eq!(
            written(MetricFormat::Prometheus, &row),
            "# HELP a_bytes_total Some help.\n# TYPE a_bytes_total counter\na_bytes_total 7\n"
        );
        assert_eq!(
            written(MetricFormat::OpenMetrics, &row),
            "# HELP a_bytes Some help.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
             a_bytes_total 7\n# EOF\n"
        );
    }

    #[test]
    fn labels_are_escaped_and_histograms_are_sums() {
        let row = histogram("a_seconds", "Help.", |(), samples| {
            const BOUNDS: [u64; 3] = [5, 1000, u64::MAX];
            let mut histogram = Histogram::default();
            for ms in [1, 7, 2000] {
                histogram.note(&BOUNDS, ms);
            }
            samples.histogram(&[("queue", "a\"\\\n")], &histogram, &BOUNDS, 1000.0);
        });
        assert_eq!(
            written(MetricFormat::Prometheus, &row),
            "# HELP a_seconds Help.\n# TYPE a_seconds histogram\n\
             a_seconds_bucket{queue=\"a\\\"\\\\\\n\",le=\"0.005\"} 1\n\
             a_seconds_bucket{queue=\"a\\\"\\\\\\n\",le=\"1.0\"} 2\n\
             a_seconds_bucket{queue=\"a\\\"\\\\\\n\",le=\"+Inf\"} 3\n\
             a_seconds_sum{queue=\"a\\\"\\\\\\n\"} 2.008\n\
             a_seconds_count{queue=\"a\\\"\\\\\\n\"} 3\n"
        );
    }

    #[test]
    fn open_metrics_is_for_who_prefers_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,\
                          text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (prometheus, MetricFormat::OpenMetrics),
            ("application/openmetrics-text", MetricFormat::OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\"; q=1", MetricFormat::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", MetricFormat::Prometheus),
            ("application/openmetrics-text;q=0.1,text/plain", MetricFormat::Prometheus),
            ("application/openmetrics-text;q=x", MetricFormat::Prometheus),
            ("text/html,*/*;q=0.8", MetricFormat::Prometheus),
            ("", MetricFormat::Prometheus),
        ] {
            assert_eq!(MetricFormat::preferred(accept), format, "{accept}");
        }
    }

    #[test]
    fn no_two_names_are_shown_alike() {
        for (name, shown) in [
            (&b"mail"[..], "mail"),
            ("\u{e9}<script>".as_bytes(), "\u{e9}<script>"),
            (b"\xff", "base64:/w=="),
            (b"a\tb", "base64:YQli"),
            (b"base64:/w==", "base64:YmFzZTY0Oi93PT0="),
            (b"", ""),
        ] {
            assert_eq!(shown_name(name), shown);
        }
    }
}
