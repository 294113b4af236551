//! How a run looks on a terminal: its agent's stream, and beside it its items, iterations, notes and queued messages.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::model::{Asks, Mode, Model, Pane, Top, Watched as _, Writes};
use super::stream::Look;
use teamster_api::runs::{ItemStatus, Phase};
use teamster_core::Timestamp;
use teamster_core::spending::dollars;

use crate::cli::screen::{clean, clean_line, cut, fill, starts_hub, width, wrap};
use crate::cli::{budget, local_time};

/// Where there are fewer columns, the side bar is below.
const SIDE_FROM_COLUMNS: u16 = 66;
const SIDE_COLUMNS_LEAST: u16 = 28;
const SIDE_COLUMNS_MOST: u16 = 76;
/// As many rows as a pane of the side bar has if it wants them, before the others share the rest.
const ROWS_LEAST: usize = 3;

/// Where everything is.
struct Areas {
    head: Rect,
    /// A line for each of several workers.
    workers: Rect,
    stream: Rect,
    /// Between the stream and what is beside it.
    rule: Option<Rect>,
    side: Vec<(Pane, Rect)>,
    line: Rect,
    keys: Rect,
}

fn areas(model: &Model) -> Areas {
    let (columns, rows) = model.size;
    let row = |y: u16| Rect::new(0, y, columns, u16::from(y < rows));
    let body = rows.saturating_sub(3);
    let (head, line, keys) =
        (row(0), row(rows.saturating_sub(2).max(1)), row(rows.saturating_sub(1).max(1)));
    if columns >= SIDE_FROM_COLUMNS {
        let wide = u16::try_from(u32::from(columns) * 36 / 100).unwrap_or(SIDE_COLUMNS_MOST);
        let wide = wide.clamp(SIDE_COLUMNS_LEAST, SIDE_COLUMNS_MOST);
        let left = columns - wide - 1;
        let side = shared(model, Rect::new(left + 1, 1, wide, body));
        let (workers, stream) = below_workers(model, Rect::new(0, 1, left, body));
        let rule = Some(Rect::new(left, 1, 1, body));
        return Areas { head, workers, stream, rule, side, line, keys };
    }
    // Below the stream there is room for one of them.
    let pane = if model.focus == Pane::Stream { Pane::Items } else { model.focus };
    let below = body * 2 / 5;
    let (workers, stream) = below_workers(model, Rect::new(0, 1, columns, body - below));
    let side = vec![(pane, Rect::new(0, 1 + body - below, columns, below))];
    Areas { head, workers, stream, rule: None, side, line, keys }
}

/// Leaves room for the lines of several workers above the stream, of which most is the stream's.
fn below_workers(model: &Model, area: Rect) -> (Rect, Rect) {
    let wanted = match model.run.n_workers() {
        _ if model.run.is_over() => 0,
        1 => 0,
        n => u16::try_from(n).unwrap_or(u16::MAX),
    };
    let rows = wanted.min(area.height * 2 / 5);
    let workers = Rect { height: rows, ..area };
    (workers, Rect { y: area.y + rows, height: area.height - rows, ..area })
}

/// Shares an area among the panes that have something to show.
fn shared(model: &Model, area: Rect) -> Vec<(Pane, Rect)> {
    let is_shown = |pane: &Pane| *pane != Pane::Messages || model.n_rows(*pane) > 0;
    let panes: Vec<Pane> = Pane::SIDE.into_iter().filter(is_shown).collect();
    let wanted = |pane: Pane| model.n_rows(pane).max(1) + 1;
    let mut rows: Vec<usize> = panes.iter().map(|pane| wanted(*pane).min(ROWS_LEAST)).collect();
    let height = usize::from(area.height);
    while rows.iter().sum::<usize>() < height {
        let still = |n: &usize| rows[*n] < wanted(panes[*n]);
        // The smallest of those that want more; what nobody wants is the last one's.
        let next = (0..panes.len()).filter(still).min_by_key(|n| rows[*n]);
        rows[next.unwrap_or(panes.len() - 1)] += 1;
    }
    let mut y = 0;
    let mut placed = Vec::new();
    for (pane, rows) in panes.into_iter().zip(rows) {
        let rows = rows.min(height.saturating_sub(y));
        let place = |n: usize| u16::try_from(n).unwrap_or_default();
        placed.push((pane, Rect::new(area.x, area.y + place(y), area.width, place(rows))));
        y += rows;
    }
    placed
}

fn style(look: Look) -> Style {
    match look {
        Look::Plain => Style::new(),
        Look::Dim => Style::new().dim(),
        Look::Bad => Style::new().red(),
        Look::Head => Style::new().bold(),
        Look::Call => Style::new().cyan(),
        Look::Good => Style::new().green(),
        Look::Urgent => Style::new().yellow(),
    }
}

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let areas = areas(model);
    put(frame, areas.head, 0, head(model, usize::from(areas.head.width)));
    workers(frame, model, areas.workers);
    stream(frame, model, areas.stream);
    if let Some(rule) = areas.rule {
        for n in 0..usize::from(rule.height) {
            put(frame, rule, n, Line::from("│").dim());
        }
    }
    for (pane, area) in &areas.side {
        side(frame, model, *pane, *area);
    }
    bottom(frame, model, &areas);
    match &model.mode {
        Mode::Help => over(frame, "Keys", &help(), 0),
        Mode::Reading { title, text, first } => {
            let area = over_area(model.size);
            let columns = usize::from(area.width.saturating_sub(4));
            let lines = wrap(clean(text).trim_end(), columns);
            over(frame, &clean_line(title), &lines, *first);
        }
        Mode::Normal | Mode::Writing(..) | Mode::Asking(_) => {}
    }
}

/// Draws one line of an area, if it has so many.
fn put(frame: &mut Frame<'_>, area: Rect, row: usize, line: Line<'_>) {
    let row = u16::try_from(row).unwrap_or(u16::MAX);
    if row < area.height && area.width > 0 {
        let area = Rect { y: area.y + row, height: 1, ..area };
        frame.render_widget(line, area.intersection(frame.area()));
    }
}

/// Returns a duration as people read a stopwatch.
fn duration(ms: i64) -> String {
    let s = ms / 1_000;
    match s / 3_600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// Returns a large number so that it can be read at a glance.
fn about(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{}.{}k", n / 1_000, n % 1_000 / 100),
        _ => format!("{}.{}M", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

fn head(model: &Model, columns: usize) -> Line<'static> {
    let run = &model.run;
    let under_way = !run.open.is_empty();
    let (phase, look) = match run.phase {
        Phase::Working => ("working".to_owned(), Look::Good),
        Phase::Paused if under_way => ("pauses after this".to_owned(), Look::Urgent),
        Phase::Paused => ("paused".to_owned(), Look::Urgent),
        Phase::Stopping => ("stops after this".to_owned(), Look::Urgent),
        _ if under_way => ("stopping".to_owned(), Look::Urgent),
        Phase::Completed | Phase::Complete => ("complete".to_owned(), Look::Good),
        Phase::Open => ("nobody works on it".to_owned(), Look::Dim),
        phase @ (Phase::Leftovers
        | Phase::IterationsUsed
        | Phase::BudgetSpent
        | Phase::Stopped
        | Phase::Idle
        | Phase::Failed) => {
            (format!("over: {}", run.why.as_deref().unwrap_or(phase.as_str())), Look::Bad)
        }
    };
    let (phase, look) = match model.is_gone {
        true => ("the hub is gone; trying again".to_owned(), Look::Bad),
        false => (phase, look),
    };
    let most = match (run.iterations, run.iterations_max) {
        (Some(used), Some(most)) => format!(" ({used} of {most})"),
        (Some(_) | None, None) | (None, Some(_)) => String::new(),
    };
    let number = run.iteration.map(|n| format!(" · iteration {n}{most}")).unwrap_or_default();
    let since = run.begun_at.filter(|_| run.resumes > Some(0));
    let since = since.map(|at| local_time(Timestamp(at)).chars().take(16).collect::<String>());
    let since = since.map(|at| format!(" since {at}")).unwrap_or_default();
    let took = run.took_ms(model.now).map(|ms| format!(" · {}{since}", duration(ms)));
    let spent = run.spent();
    let cost = budget::cost(&spent);
    let cost = match run.budget_microdollars {
        Some(most) => format!("{cost} of {}", dollars(most)),
        None => cost,
    };
    let right = match columns {
        0..60 => cost,
        100.. => {
            let works = [&run.program, &run.model].into_iter().flatten();
            let works = works.map(|word| format!("{} · ", clean_line(word))).collect::<String>();
            format!("{works}{cost} · {}", spent.tokens_shown(about))
        }
        _ => format!("{cost} · {}", spent.tokens_shown(about)),
    };
    let room = columns.saturating_sub(width(&right) + 1);
    let (name, phase) = (clean_line(&run.name), clean_line(&phase));
    let name = cut(&name, room);
    let room = room.saturating_sub(width(&name) + 3);
    let phase = cut(&phase, room);
    let rest = format!("{number}{}", took.unwrap_or_default());
    let rest = fill(&rest, room.saturating_sub(width(&phase)));
    Line::from(vec![
        Span::from(name).bold(),
        Span::from(" · "),
        Span::styled(phase, style(look)),
        Span::from(rest),
        Span::from(" "),
        Span::from(right),
    ])
}

/// Draws the title of a pane; that with the focus stands out without colours as well.
fn title(frame: &mut Frame<'_>, area: Rect, text: &str, has_focus: bool) {
    let columns = usize::from(area.width);
    let rule = if has_focus { "━" } else { "─" };
    let text = cut(text, columns.saturating_sub(3));
    let rest = columns.saturating_sub(width(&text) + 2);
    let line = format!("{rule}{text} {}", rule.repeat(rest));
    let line = Line::from(cut(&line, columns));
    put(frame, area, 0, if has_focus { line.bold() } else { line.dim() });
}

/// Draws what each of several workers does; where there is no room for all, those around the one whose stream is shown.
fn workers(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let (columns, rows) = (usize::from(area.width), u32::from(area.height));
    let first = (model.worker + 1).saturating_sub(rows);
    for (n, worker) in (first..model.run.n_workers()).take(usize::from(area.height)).enumerate() {
        let is_shown = worker == model.worker;
        let mark = if is_shown { "▸" } else { " " };
        let does = clean_line(&model.works_on_briefly(worker));
        let works = model.run.open.iter().any(|open| open.worker == worker);
        let text = fill(&format!("{mark}{} {does}", worker + 1), columns);
        let style = style(if works { Look::Plain } else { Look::Dim });
        let style = if is_shown { style.bold() } else { style };
        put(frame, area, n, Line::styled(text, style));
    }
}

fn stream(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let worker = match model.run.n_workers() {
        1 => String::new(),
        n => format!("worker {} of {n} · ", model.worker + 1),
    };
    let scrolled = if model.top.is_some() { "End for the newest · " } else { "" };
    let does = clean_line(&model.works_on(model.worker));
    let text = format!(" {scrolled}{worker}{does}");
    title(frame, area, &text, model.focus == Pane::Stream);
    let (columns, rows) = room(area);
    let lines = match model.top {
        Some(top) => from(model, top, columns, rows),
        None => newest(model, columns, rows),
    };
    for (n, (look, line)) in lines.into_iter().enumerate() {
        put(frame, area, n + 1, Line::styled(line, style(look)));
    }
}

/// Returns how many columns and rows are below a pane's title.
fn room(area: Rect) -> (usize, usize) {
    (usize::from(area.width), usize::from(area.height).saturating_sub(1))
}

/// Returns the newest lines of the stream.
fn newest(model: &Model, columns: usize, rows: usize) -> Vec<(Look, String)> {
    let mut lines = Vec::new();
    for entry in model.stream.entries().rev() {
        lines.extend(entry.lines(columns, model.unfolded).into_iter().rev());
        if lines.len() >= rows {
            break;
        }
    }
    lines.truncate(rows);
    lines.reverse();
    lines
}

/// Returns the lines of the stream from one on.
fn from(model: &Model, top: Top, columns: usize, rows: usize) -> Vec<(Look, String)> {
    let entries = model.stream.entries().skip_while(|entry| entry.number < top.entry);
    let mut lines: Vec<(Look, String)> = Vec::new();
    for entry in entries {
        let skip = if entry.number == top.entry { top.line } else { 0 };
        lines.extend(entry.lines(columns, model.unfolded).into_iter().skip(skip));
        if lines.len() >= rows {
            break;
        }
    }
    lines.truncate(rows);
    lines
}

/// Returns where the stream is looked at after so many lines of scrolling; none means at its end.
pub(super) fn scrolled(model: &Model, by: isize) -> Option<Top> {
    let (columns, rows) = room(areas(model).stream);
    let mut places = Vec::new();
    for entry in model.stream.entries() {
        let n_lines = entry.lines(columns, model.unfolded).len();
        places.extend((0..n_lines).map(|line| Top { entry: entry.number, line }));
    }
    let last = places.len().saturating_sub(rows);
    let now = match model.top {
        Some(top) => {
            places.partition_point(|place| (place.entry, place.line) < (top.entry, top.line))
        }
        None => last,
    };
    let place = now.saturating_add_signed(by);
    if place >= last { None } else { places.get(place).copied() }
}

/// Returns the rows of a pane: how each looks, and what it says.
fn rows(model: &Model, pane: Pane) -> Vec<(Look, String)> {
    let run = &model.run;
    match pane {
        Pane::Stream => Vec::new(),
        Pane::Items => {
            let items = run.items();
            let shown = items.iter().map(|item| {
                let (mark, look) = match item.status {
                    ItemStatus::InProgress => ("~", Look::Urgent),
                    ItemStatus::Remaining => ("·", Look::Plain),
                    ItemStatus::Blocked => ("!", Look::Bad),
                    ItemStatus::Completed => ("✓", Look::Good),
                    ItemStatus::Cancelled => ("-", Look::Dim),
                };
                let after = match (item.status, item.depends_on.is_empty()) {
                    (ItemStatus::Remaining, false) => {
                        format!(" (after {})", item.depends_on.join(", "))
                    }
                    _ => String::new(),
                };
                let text = format!("{mark} P{} {} {}{after}", item.priority, item.id, item.content);
                (look, text)
            });
            shown.collect()
        }
        Pane::Iterations => {
            let shown = run.ended.iter().map(|ended| {
                let commit: String =
                    ended.commit.iter().flat_map(|hash| hash.chars()).take(7).collect();
                let commit = if commit.is_empty() { "-".to_owned() } else { commit };
                let about = match (ended.plans, &ended.item) {
                    (true, _) => "plan",
                    (false, Some(item)) => item.as_str(),
                    (false, None) => "-",
                };
                let first = ended.summary.iter().flat_map(|text| text.lines()).next();
                let (look, says) = match &ended.failed {
                    Some(why) => (Look::Bad, format!("✗ {why}")),
                    None => (Look::Plain, first.unwrap_or_default().to_owned()),
                };
                (look, format!("{} {about} {commit} {says}", ended.number))
            });
            shown.collect()
        }
        Pane::Notes => model
            .notes()
            .map(|note| (Look::Plain, format!("{}: {}", note.kind, note.content)))
            .collect(),
        Pane::Messages => {
            let shown = run.messages().iter();
            shown.map(|message| (Look::Urgent, format!("> {}", message.text))).collect()
        }
    }
}

fn side(frame: &mut Frame<'_>, model: &Model, pane: Pane, area: Rect) {
    let rows = rows(model, pane);
    let run = &model.run;
    let text = match pane {
        Pane::Stream => String::new(),
        Pane::Items => {
            let n_open = run.n_items(&[ItemStatus::Remaining, ItemStatus::InProgress]);
            let n_done = run.n_items(&[ItemStatus::Completed]);
            let some = |status: ItemStatus| match run.n_items(&[status]) {
                0 => String::new(),
                n => format!(", {n} {status}"),
            };
            let (blocked, cancelled) = (some(ItemStatus::Blocked), some(ItemStatus::Cancelled));
            format!(" Items: {n_open} open, {n_done} done{blocked}{cancelled}")
        }
        Pane::Iterations => format!(" Iterations: {}", rows.len()),
        Pane::Notes => format!(" Notes: {}", rows.len()),
        Pane::Messages => format!(" Messages queued: {}", rows.len()),
    };
    let has_focus = model.focus == pane;
    title(frame, area, &text, has_focus);
    let (columns, height) = room(area);
    let chosen = model.chosen(pane);
    let first = (chosen + 1).saturating_sub(height);
    for (n, (look, text)) in rows.iter().enumerate().skip(first).take(height) {
        let is_chosen = n == chosen && (has_focus || pane == Pane::Items);
        let mark = if is_chosen { "▸" } else { " " };
        let text = fill(&format!("{mark}{}", clean_line(text)), columns);
        let style = style(*look);
        let style = if is_chosen && has_focus { style.reversed() } else { style };
        put(frame, area, n - first + 1, Line::styled(text, style));
    }
}

/// Draws what is written, asked or said, and the keys.
fn bottom(frame: &mut Frame<'_>, model: &Model, areas: &Areas) {
    let columns = usize::from(areas.line.width);
    // Where there is no room for all, the last are shown nevertheless.
    let mut keys: Vec<(&str, &str)> = Vec::new();
    let mut last: Vec<(&str, &str)> = Vec::new();
    match &model.mode {
        Mode::Writing(what, editor) => {
            let label = match what {
                Writes::Message => "for the next iteration: ".to_owned(),
                Writes::NewItem => "new item: ".to_owned(),
                Writes::Item { id, .. } => format!("{id}: "),
                Writes::Note => "note: ".to_owned(),
            };
            let (text, at) = editor.shown(columns.saturating_sub(width(&label)));
            let x = u16::try_from(width(&label) + at).unwrap_or_default();
            put(frame, areas.line, 0, Line::from(vec![Span::from(label).bold(), Span::from(text)]));
            if x < areas.line.width {
                frame.set_cursor_position(Position::new(x, areas.line.y));
            }
            keys.extend([("Enter", "send"), ("Esc", "cancel")]);
        }
        Mode::Asking(asks) => {
            let text = match asks {
                Asks::Stop => "end its agents now?",
                Asks::Interrupt => "end its agents now, and leave?",
            };
            put(frame, areas.line, 0, Line::from(cut(text, columns)).bold());
            keys.extend([("y", "yes"), ("n", "no")]);
        }
        Mode::Help => keys.push(("any", "close")),
        Mode::Reading { .. } => keys.extend([("↑↓", "scroll"), ("Esc", "close")]),
        Mode::Normal => {
            if let Some(says) = &model.says {
                let (look, text) = match says {
                    Ok(text) => (Look::Good, text),
                    Err(text) => (Look::Bad, text),
                };
                put(
                    frame,
                    areas.line,
                    0,
                    Line::styled(cut(&clean_line(text), columns), style(look)),
                );
            } else if model.is_gone {
                let text = starts_hub(&model.starts_hub, "", columns);
                put(frame, areas.line, 0, Line::styled(cut(&text, columns), style(Look::Bad)));
            }
            let pauses = matches!(model.run.phase, Phase::Paused | Phase::Stopping);
            if model.run.under_way {
                let p = if pauses { "go on" } else { "pause" };
                keys.extend([("p", p), ("m", "message"), ("s", "stop"), ("S", "now")]);
            } else {
                keys.extend([("r", "go on"), ("m", "message")]);
            }
            keys.extend([("a", "add"), ("e", "edit"), ("c", "cancel"), ("n", "note")]);
            keys.extend([("Tab", "pane"), ("l", "thinking")]);
            if model.run.n_workers() > 1 {
                keys.push(("w 1-9", "worker"));
            }
            last.extend([("?", "help"), ("q", "leave")]);
        }
    }
    let wide = |(key, does): &(&str, &str)| width(key) + width(does) + 2;
    let mut room = (columns + 1).saturating_sub(last.iter().map(wide).sum());
    let fit = keys.iter().take_while(|key| {
        let fits = wide(key) <= room;
        room = room.saturating_sub(wide(key));
        fits
    });
    let shown = fit.chain(&last);
    let spans = shown.flat_map(|(key, does)| {
        [Span::from(key.to_string()).bold(), Span::from(format!(":{does} ")).dim()]
    });
    let mut spans: Vec<Span<'_>> = spans.collect();
    // The line above is taken by what is written.
    if let (Mode::Writing(..), Some(Err(text))) = (&model.mode, &model.says) {
        let used: usize = spans.iter().map(|span| width(&span.content)).sum();
        let text = cut(&clean_line(text), columns.saturating_sub(used + 1));
        spans.push(Span::styled(format!(" {text}"), style(Look::Bad)));
    }
    put(frame, areas.keys, 0, Line::from(spans));
}

fn help() -> Vec<String> {
    [
        "p        pause after what is under way; go on",
        "m        write a message for the next iteration",
        "s        stop after what is under way",
        "S        stop now: its agents are ended",
        "r        go on with a run that is over",
        "",
        "a        add an item",
        "e        edit the item that is marked",
        "c        cancel it; once more takes that back",
        "n        add a note",
        "",
        "Tab ←→   another pane",
        "↑↓ j k   scroll, choose; PgUp PgDn Home End",
        "Enter    read what is chosen, whole",
        "1-9 w    the worker whose stream is shown; the next one",
        "l        show thinking whole, or one line of it",
        "",
        "q        leave; the run goes on",
        "Ctrl-C   stop now, and leave",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn over_area(size: (u16, u16)) -> Rect {
    let (columns, rows) = size;
    let (wide, high) = (columns.min(100), rows.saturating_sub(3));
    Rect::new((columns - wide) / 2, 1, wide, high)
}

/// Returns the first line at which the end of a text can be read.
pub(super) fn last_line(model: &Model, text: &str) -> usize {
    let area = over_area(model.size);
    let lines = wrap(clean(text).trim_end(), usize::from(area.width.saturating_sub(4)));
    lines.len().saturating_sub(usize::from(area.height.saturating_sub(2)))
}

/// Draws something over everything else.
fn over(frame: &mut Frame<'_>, title: &str, lines: &[String], first: usize) {
    let area = frame.area();
    let mut area = over_area((area.width, area.height));
    let wanted = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    area.height = area.height.min(wanted);
    frame.render_widget(Clear, area);
    let block = ratatui::widgets::Block::bordered()
        .title(format!(" {} ", cut(title, usize::from(area.width.saturating_sub(6)))));
    let lines: Vec<Line<'_>> = lines
        .iter()
        .skip(first)
        .map(|line| Line::from(format!(" {line}")))
        .take(usize::from(area.height))
        .collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests;
