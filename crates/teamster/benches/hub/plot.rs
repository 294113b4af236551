//! The one picture: calls per second against clients at once, as an SVG that is legible on light and on dark pages.

use std::fmt::Write;

use crate::calls::CONNECTIONS;
use crate::results::Results;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 60.0;
/// From one label of the legend to the next.
const LEGEND_STEP: f64 = 160.0;

/// A line's label, its colour, how it is dashed, and what its results are called before and after the number of clients.
type Series = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The colours have enough contrast on white and on black; the dashes are for those who do not see them.
const SERIES: [Series; 4] = [
    ("bare axum echo", "#7f8791", "2 4", "axum_write_", "_modern_per_s"),
    ("rmcp echo", "#c9771e", "9 4", "rmcp_write_", "_modern_per_s"),
    ("Teamster: read", "#2f9e60", "none", "read_", "_modern_per_s"),
    ("Teamster: durable write", "#3d82d9", "none", "write_", "_modern_per_s"),
];

/// Returns the picture, if there is a result for every point of it.
pub(crate) fn svg(results: &Results) -> Option<String> {
    let curve = |(_, _, _, before, after): &Series| -> Option<Vec<f64>> {
        CONNECTIONS.iter().map(|n| results.get(&format!("{before}{n}{after}"))).collect()
    };
    let curves: Vec<Vec<f64>> = SERIES.iter().map(curve).collect::<Option<_>>()?;
    let highest = curves.iter().flatten().copied().fold(1.0, f64::max);
    let step = tick_step(highest);
    let n_steps = (highest / step).ceil();
    let y = |value: f64| HEIGHT - BOTTOM - value / (step * n_steps) * (HEIGHT - BOTTOM - TOP);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Calls per second against connections\">\n<style>\n\
         text {{ font: 13px system-ui, sans-serif; fill: #24292f; }}\n\
         .title {{ font-size: 16px; font-weight: 600; }}\n\
         .grid {{ stroke: #8c959f; stroke-opacity: 0.3; }}\n\
         .axis {{ stroke: #8c959f; }}\n\
         .curve {{ fill: none; stroke-width: 2.5; stroke-linejoin: round; }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3; }} }}\n</style>\n"
    );
    text(
        &mut svg,
        (LEFT, 26.0),
        "start",
        "title",
        "Calls per second, by clients that call at once",
    );
    for tick in 0..=n_steps as u32 {
        let value = f64::from(tick) * step;
        let class = if tick == 0 { "axis" } else { "grid" };
        let (at, right) = (y(value), WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        let label = if value == 0.0 { "0".into() } else { format!("{} k", value / 1e3) };
        text(&mut svg, (LEFT - 8.0, at + 4.0), "end", "", &label);
    }
    for n in CONNECTIONS {
        text(&mut svg, (x(n), HEIGHT - BOTTOM + 20.0), "middle", "", &n.to_string());
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    text(
        &mut svg,
        (middle, HEIGHT - 16.0),
        "middle",
        "",
        "connections (each sends its next call when the last is answered)",
    );
    let (turn_x, turn_y) = (18.0, (TOP + HEIGHT - BOTTOM) / 2.0);
    let _ = writeln!(
        svg,
        "<text x=\"{turn_x}\" y=\"{turn_y}\" text-anchor=\"middle\" transform=\"rotate(-90 {turn_x} {turn_y})\">calls/s</text>"
    );
    for (number, ((label, colour, dash, ..), curve)) in SERIES.iter().zip(&curves).enumerate() {
        let points: Vec<(f64, f64)> =
            CONNECTIONS.iter().zip(curve).map(|(n, value)| (x(*n), y(*value))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let path = path.join(" ");
        let _ = writeln!(
            svg,
            "<polyline class=\"curve\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\" points=\"{path}\"/>"
        );
        for (x, y) in points {
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
        let at = LEFT + number as f64 * LEGEND_STEP;
        let _ = writeln!(
            svg,
            "<line stroke=\"{colour}\" stroke-width=\"2.5\" stroke-dasharray=\"{dash}\" x1=\"{at}\" x2=\"{}\" y1=\"52\" y2=\"52\"/>",
            at + 26.0
        );
        text(&mut svg, (at + 32.0, 56.0), "start", "", label);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Clients are doubled from left to right.
fn x(n_connections: usize) -> f64 {
    let last = CONNECTIONS[CONNECTIONS.len() - 1];
    let share = (n_connections as f64).log2() / (last as f64).log2();
    LEFT + 16.0 + share * (WIDTH - RIGHT - LEFT - 32.0)
}

/// Returns a round step that makes four to ten ticks up to `highest`.
fn tick_step(highest: f64) -> f64 {
    let power = 10_f64.powf((highest / 4.0).log10().floor());
    let fits = [5.0, 2.0, 1.0].into_iter().find(|factor| factor * power <= highest / 4.0);
    fits.unwrap_or(1.0) * power
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, class: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
    );
}
