//! The figures of a run as a picture: an SVG of two panels, written by hand.
//!
//! Left, jobs a second over the run, one step after the other. Right, latency by
//! percentile on logarithmic axes: each step to the right on the lower axis has ten
//! times fewer requests above it, so a long tail is as wide as the body.

use std::fmt::Write;

use super::report::FigureRow;

/// The area of one panel, in SVG units.
#[derive(Clone, Copy, Debug)]
struct Panel {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

const SIZE: (f64, f64) = (960.0, 420.0);
const THROUGHPUT: Panel = Panel { left: 70.0, top: 70.0, width: 370.0, height: 270.0 };
const LATENCY: Panel = Panel { left: 550.0, top: 70.0, width: 370.0, height: 270.0 };
/// Okabe and Ito's colours, which colour-blind readers can distinguish.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const INK: &str = "#333333";
const GRID: &str = "#dddddd";
/// The lower axis of the latencies: percentiles, one for each power of ten.
const PERCENTILES: [(f64, &str); 5] =
    [(0.0, "0"), (90.0, "90"), (99.0, "99"), (99.9, "99.9"), (99.99, "99.99 %")];
/// Points of a latency curve between two powers of ten.
const POINTS_PER_DECADE: u32 = 20;

impl Panel {
    /// A place in the panel; both parts go from 0 to 1, upwards.
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + x * self.width, self.top + (1.0 - y) * self.height)
    }
}

/// Draws the rows under a title.
pub fn draw(title: &str, rows: &[FigureRow]) -> String {
    let (width, height) = SIZE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    label(&mut svg, (THROUGHPUT.left, 28.0), "start", title, 16);
    draw_throughput(&mut svg, rows);
    draw_latencies(&mut svg, rows);
    draw_legend(&mut svg, rows);
    svg.push_str("</svg>\n");
    svg
}

fn draw_throughput(svg: &mut String, rows: &[FigureRow]) {
    let panel = THROUGHPUT;
    label(svg, (panel.left, panel.top - 14.0), "start", "jobs a second, over the run", 12);
    let steps = || rows.iter().enumerate().filter(|(_, row)| !row.samples.is_empty());
    let total_secs: f64 = steps().map(|(_, row)| row.elapsed.as_secs_f64()).sum();
    let total_secs = total_secs.max(1e-9);
    let most = steps().flat_map(|(_, row)| row.samples.iter().map(|sample| sample.per_second));
    let top = round_up(most.fold(1.0, f64::max));
    for quarter in 0..=4 {
        let y = f64::from(quarter) / 4.0;
        grid_line(svg, panel, y, &short(top * y));
        let (x, bottom) = panel.place(y, 0.0);
        let text = format!("{:.*}", if total_secs < 10.0 { 2 } else { 0 }, total_secs * y);
        label(svg, (x, bottom + 18.0), "middle", &text, 12);
    }
    let (x, bottom) = panel.place(0.5, 0.0);
    label(svg, (x, bottom + 36.0), "middle", "seconds", 12);
    let mut begun = 0.0;
    for (nth, row) in steps() {
        let secs = row.elapsed.as_secs_f64();
        let mut points = Vec::new();
        let mut from = 0.0;
        for sample in &row.samples {
            let until = sample.at_secs.min(secs);
            for at in [from, until] {
                points.push(panel.place((begun + at) / total_secs, sample.per_second / top));
            }
            from = until;
        }
        line(svg, &points, nth);
        begun += secs;
    }
}

fn draw_latencies(svg: &mut String, rows: &[FigureRow]) {
    let panel = LATENCY;
    label(svg, (panel.left, panel.top - 14.0), "start", "latency, by percentile", 12);
    let measured = || rows.iter().enumerate().filter(|(_, row)| !row.measure.latency.is_empty());
    let least = measured().map(|(_, row)| row.latency_us(0.0)).fold(f64::INFINITY, f64::min);
    let most = measured().map(|(_, row)| row.latency_us(100.0)).fold(1.0, f64::max);
    let floor = if least.is_finite() { least.max(1.0).log10().floor() } else { 0.0 };
    let ceiling = most.log10().ceil().max(floor + 1.0);
    let decades = ceiling - floor;
    let mut power = floor;
    while power <= ceiling {
        grid_line(svg, panel, (power - floor) / decades, &duration(10f64.powf(power)));
        power += 1.0;
    }
    let powers = PERCENTILES.len() as f64 - 1.0;
    for (nth, (_, text)) in PERCENTILES.iter().enumerate() {
        let (x, bottom) = panel.place(nth as f64 / powers, 0.0);
        label(svg, (x, bottom + 18.0), "middle", text, 12);
    }
    let (x, bottom) = panel.place(0.5, 0.0);
    label(svg, (x, bottom + 36.0), "middle", "percentile of the requests", 12);
    for (nth, row) in measured() {
        let last = POINTS_PER_DECADE * (PERCENTILES.len() as u32 - 1);
        let points: Vec<_> = (0..=last)
            .map(|point| {
                let power = f64::from(point) / f64::from(POINTS_PER_DECADE);
                let percent = 100.0 * (1.0 - 10f64.powf(-power));
                let height = (row.latency_us(percent).max(1.0).log10() - floor) / decades;
                panel.place(power / powers, height)
            })
            .collect();
        line(svg, &points, nth);
    }
}

fn draw_legend(svg: &mut String, rows: &[FigureRow]) {
    let y = SIZE.1 - 18.0;
    let mut x = THROUGHPUT.left;
    for (nth, row) in rows.iter().enumerate() {
        line(svg, &[(x, y - 4.0), (x + 22.0, y - 4.0)], nth);
        label(svg, (x + 28.0, y), "start", &row.name, 12);
        x += 52.0 + 8.0 * row.name.len() as f64;
    }
}

fn grid_line(svg: &mut String, panel: Panel, y: f64, text: &str) {
    let (from, height) = panel.place(0.0, y);
    let (until, _) = panel.place(1.0, y);
    let _ = writeln!(
        svg,
        "<path d=\"M{from:.1} {height:.1}H{until:.1}\" stroke=\"{GRID}\" fill=\"none\"/>"
    );
    label(svg, (from - 8.0, height + 4.0), "end", text, 12);
}

fn line(svg: &mut String, points: &[(f64, f64)], nth: usize) {
    let colour = COLOURS[nth % COLOURS.len()];
    let _ = write!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"");
    for (x, y) in points {
        let _ = write!(svg, "{x:.1},{y:.1} ");
    }
    svg.push_str("\"/>\n");
}

fn label(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str, size: u32) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>"
    );
}

/// The next number that begins with 1, 2, 4 or 8, so that a quarter of it is short.
fn round_up(number: f64) -> f64 {
    let power = 10f64.powf(number.log10().floor());
    let lead = [1.0, 2.0, 4.0, 8.0, 10.0].into_iter().find(|lead| lead * power >= number);
    lead.unwrap_or(10.0) * power
}

fn short(number: f64) -> String {
    match number {
        million if million >= 1e6 => format!("{}M", million / 1e6),
        thousand if thousand >= 1e3 => format!("{}k", thousand / 1e3),
        small => small.to_string(),
    }
}

fn duration(us: f64) -> String {
    match us {
        secs if secs >= 1e6 => format!("{:.0} s", secs / 1e6),
        ms if ms >= 1e3 => format!("{:.0} ms", ms / 1e3),
        us => format!("{us:.0} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Sample;
    use super::super::worker::Tally;
    use super::*;
    use std::time::Duration;

    fn row(name: &str) -> FigureRow {
        let mut measure = Tally::new().added;
        measure.operations = 3;
        for latency_ns in [20_000, 30_000, 9_000_000] {
            measure.record(latency_ns);
        }
        let samples = vec![Sample { at_secs: 0.1, per_second: 12_345.0 }];
        FigureRow { samples, ..FigureRow::beside(name, measure, Duration::from_millis(100)) }
    }

    #[test]
    fn every_row_is_a_line_in_both_panels_and_in_the_legend() {
        let svg = draw("a < b & c", &[row("add"), row("get")]);
        assert_eq!(svg.matches("<polyline").count(), 6);
        assert!(svg.contains(">a &lt; b &amp; c</text>"));
        assert!(svg.contains(">add</text>") && svg.contains(">get</text>"));
    }

    #[test]
    fn nothing_is_drawn_outside_the_picture() {
        let svg = draw("t", &[row("add")]);
        let points = svg.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for point in points.flat_map(str::split_whitespace) {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((0.0..=SIZE.0).contains(&x) && (0.0..=SIZE.1).contains(&y), "{point}");
        }
    }

    #[test]
    fn no_rows_make_an_empty_picture() {
        assert!(draw("t", &[]).ends_with("</svg>\n"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([1.0, 3.0, 41.0, 90.0, 800.0].map(round_up), [1.0, 4.0, 80.0, 100.0, 800.0]);
    }
}
