//! `top`: the queues of the cluster, its nodes, or its dead letters, again and again.
//!
//! In a terminal keys choose what is shown and in which order; see [`KEYS`]. Elsewhere, and for
//! programs, it is the queues, the longest first.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::nodes::LeftOut;
use super::options::{CliOptions, Repeat};
use super::output::PrintForm;
use super::queues::{self, QueueRow, SURVEY_EVERY};
use super::survey::Survey;
use super::table::{TextTable, counted};
use super::terminal::{self, CLEAR_SCREEN, Keys};
use super::{dead, nodes, roster, wait};

/// Lines around the rows: summary, empty line, heading, what was cut off, and one for the
/// cursor.
const LINES_AROUND: usize = 5;
/// What the keys do, as the last line of a page.
const KEYS: &str = "1 queues  2 nodes  3 dead  s next order  p pause  q quit";
const ESCAPE: u8 = 0x1b;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopView {
    Queues,
    Nodes,
    Dead,
}

/// In which order queues are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopOrder {
    Length,
    Oldest,
    In,
    Out,
    Name,
}

impl TopOrder {
    const ALL: [Self; 5] = [Self::Length, Self::Oldest, Self::In, Self::Out, Self::Name];

    fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Oldest => "oldest",
            Self::In => "in/s",
            Self::Out => "out/s",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Sorts rows that are in the order of their lengths, and of their names.
    fn sort(self, rows: &mut [QueueRow]) {
        rows.sort_by(|a, b| match self {
            Self::Length => Ordering::Equal,
            Self::Oldest => b.numbers.oldest_age.cmp(&a.numbers.oldest_age),
            Self::In => b.in_per_sec.total_cmp(&a.in_per_sec),
            Self::Out => b.out_per_sec.total_cmp(&a.out_per_sec),
            Self::Name => a.name.cmp(&b.name),
        });
    }
}

/// What somebody at the keys has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TopChoice {
    view: TopView,
    order: TopOrder,
    is_paused: bool,
    is_over: bool,
}

impl TopChoice {
    const FIRST: Self =
        Self { view: TopView::Queues, order: TopOrder::Length, is_paused: false, is_over: false };

    /// What a key makes of it. Any other key shows the page anew.
    fn with_key(self, key: u8) -> Self {
        match key {
            b'1' => Self { view: TopView::Queues, ..self },
            b'2' => Self { view: TopView::Nodes, ..self },
            b'3' => Self { view: TopView::Dead, ..self },
            b's' => Self { order: self.order.next(), view: TopView::Queues, ..self },
            b'p' | b' ' => Self { is_paused: !self.is_paused, ..self },
            b'q' | ESCAPE => Self { is_over: true, ..self },
            _ => self,
        }
    }
}

/// Shows pages until it is told to end; `-r` says how many at most.
pub fn run(options: &CliOptions) -> Result<u8, Failure> {
    let is_for_people = !options.format.form.is_for_programs();
    let keys = if is_for_people { Keys::watch() } else { None };
    let ends_itself = keys.is_some() && !wait::catches_interrupts();
    if ends_itself {
        // Ctrl-C has to leave the terminal as it was.
        wait::catch_interrupts()?;
    }
    match show_pages(options, keys.as_ref()) {
        Err(Failure::Interrupted) if ends_itself => Ok(0),
        result => result,
    }
}

fn show_pages(options: &CliOptions, keys: Option<&Keys>) -> Result<u8, Failure> {
    let patterns = &options.command;
    let mut before = Survey::take(&mut nodes::find(options)?, patterns)?;
    let mut choice = TopChoice::FIRST;
    let mut shown = 0;
    // Once is the default of -r, and of no use here.
    let limit = match options.repeat {
        Repeat::Times(times) if times > 1 => Some(times),
        _ => None,
    };
    while limit != Some(shown) {
        choice = pause(options.interval.unwrap_or(SURVEY_EVERY), keys, choice)?;
        if choice.is_over {
            break;
        }
        // Found anew each time: nodes come, go and restart while somebody watches.
        let after = match nodes::find(options) {
            Ok(mut nodes) => Survey::take(&mut nodes, patterns)?,
            Err(failure @ Failure::Interrupted) => return Err(failure),
            Err(failure) => {
                show_page(&format!("{failure}\n"))?;
                shown += 1;
                continue;
            }
        };
        let mut rows = queues::rows(&before, &after);
        match options.format.form {
            PrintForm::Json | PrintForm::Csv => {
                terminal::print(queues::table(&rows).render(options.format.form))?;
            }
            PrintForm::Standard | PrintForm::Raw => {
                choice.order.sort(&mut rows);
                let mut page = match choice.view {
                    TopView::Queues => queue_page(&rows, &after, keys.is_some()),
                    TopView::Nodes => other_page(roster::take(options), "node")?,
                    TopView::Dead => {
                        other_page(dead::take(options, patterns), "dead-letter queue")?
                    }
                };
                if keys.is_some() {
                    let _infallible = write!(page, "{KEYS}; by {}", choice.order.name());
                }
                show_page(&page)?;
            }
        }
        before = after;
        shown += 1;
    }
    Ok(0)
}

/// Lets time pass, until a key is pressed that says otherwise.
fn pause(
    length: Duration,
    keys: Option<&Keys>,
    mut choice: TopChoice,
) -> Result<TopChoice, Failure> {
    if keys.is_none() {
        return wait::pause(length).map(|()| choice);
    }
    const LONG: Duration = Duration::from_secs(3600);
    let until = Instant::now() + length;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Some(key) = wait::for_key(if choice.is_paused { LONG } else { left })? else {
            if choice.is_paused {
                continue;
            }
            return Ok(choice);
        };
        let chosen = choice.with_key(key);
        let is_other_page = chosen.view != choice.view || chosen.order != choice.order;
        choice = chosen;
        if is_other_page || choice.is_over {
            return Ok(choice);
        }
    }
}

/// Shows a page in place of the one before, with lines as long as the screen is wide.
fn show_page(page: &str) -> Result<(), Failure> {
    if !terminal::prints_to_terminal() {
        return terminal::print(page);
    }
    let columns = terminal::screen_size().map_or(usize::MAX, |screen| screen.columns);
    let mut cut = String::from(CLEAR_SCREEN);
    for line in page.lines() {
        cut.extend(terminal::one_line(line).chars().take(columns));
        cut.push('\n');
    }
    terminal::draw(cut)
}

fn queue_page(rows: &[QueueRow], survey: &Survey, has_keys: bool) -> String {
    let queued =
        |rows: &[QueueRow]| rows.iter().map(|row| row.numbers.length).fold(0, u64::saturating_add);
    let mut page = format!(
        "{}, {}, {} queued",
        counted(survey.nodes.len() as u64, "node"),
        counted(rows.len() as u64, "queue"),
        counted(queued(rows), "job"),
    );
    for (node, reason) in &survey.left_out {
        let _infallible = write!(page, "; without node {node}: {reason}");
    }
    page.push_str("\n\n");
    let lines = terminal::screen_size().map_or(usize::MAX, |screen| screen.lines);
    let rows_max = lines.saturating_sub(LINES_AROUND + usize::from(has_keys));
    page.push_str(&queues::table(rows).text(rows_max));
    if let Some(hidden @ [_, ..]) = rows.get(rows_max..) {
        let _infallible = writeln!(
            page,
            "... and {} with {}: `queues` shows them",
            counted(hidden.len() as u64, "more queue"),
            counted(queued(hidden), "job"),
        );
    }
    page
}

/// A page of a table, and of nodes that could not be asked.
fn other_page(
    taken: Result<(TextTable, Vec<LeftOut>), Failure>,
    noun: &str,
) -> Result<String, Failure> {
    let (table, left_out) = match taken {
        Ok(taken) => taken,
        Err(failure @ Failure::Interrupted) => return Err(failure),
        Err(failure) => return Ok(format!("{failure}\n")),
    };
    let mut page = counted(table.rows.len() as u64, noun);
    for (node, reason) in &left_out {
        let _infallible = write!(page, "; without node {node}: {reason}");
    }
    page.push_str("\n\n");
    let lines = terminal::screen_size().map_or(usize::MAX, |screen| screen.lines);
    page.push_str(&table.text(lines.saturating_sub(LINES_AROUND)));
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_keys(keys: &str) -> TopChoice {
        keys.bytes().fold(TopChoice::FIRST, TopChoice::with_key)
    }

    #[test]
    fn keys_choose_view_and_order() {
        assert_eq!(with_keys("2"), TopChoice { view: TopView::Nodes, ..TopChoice::FIRST });
        assert_eq!(with_keys("3"), TopChoice { view: TopView::Dead, ..TopChoice::FIRST });
        assert_eq!(with_keys("2s"), TopChoice { order: TopOrder::Oldest, ..TopChoice::FIRST });
        assert_eq!(with_keys("sssss2 1 x"), TopChoice::FIRST);
        assert!(with_keys("p").is_paused && !with_keys("p ").is_paused);
        assert!(with_keys("q").is_over && with_keys("\u{1b}").is_over);
    }

    #[test]
    fn rows_of_equal_rank_stay_in_the_order_of_their_lengths() {
        let row = |name: &str, in_per_sec| QueueRow {
            name: name.into(),
            in_per_sec,
            ..QueueRow::default()
        };
        let mut rows = vec![row("long", 1.0), row("b", 2.0), row("a", 1.0)];
        let names = |rows: &[QueueRow]| -> Vec<String> {
            rows.iter().map(|row| String::from_utf8_lossy(&row.name).into()).collect()
        };
        TopOrder::In.sort(&mut rows);
        assert_eq!(names(&rows), ["b", "long", "a"]);
        TopOrder::Name.sort(&mut rows);
        assert_eq!(names(&rows), ["a", "b", "long"]);
    }
}
