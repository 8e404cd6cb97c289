//! Bar charts in the terminal, below the tables.

use stead::plot::{Bars, bars};
use stead::{Report, units};

/// Widest bar, in character cells.
const WIDTH: usize = 50;
/// Charts with more bars than fit a screen are left to `--plot`.
const MAX_BARS: usize = 30;

pub fn charts(report: &Report) -> String {
    shown(report).iter().map(chart).collect()
}

/// The results that have a chart.
pub fn titles(report: &Report) -> impl Iterator<Item = String> {
    shown(report).into_iter().map(|b| b.title)
}

fn shown(report: &Report) -> Vec<Bars> {
    let mut all = bars(report);
    all.retain(|b| {
        let histogram = b.labels.len() == b.values.len() + 1 || b.title.starts_with("digits");
        histogram && b.values.len() <= MAX_BARS
    });
    all
}

fn chart(b: &Bars) -> String {
    let edges = b.labels.len() == b.values.len() + 1;
    let labels: Vec<String> = (0..b.values.len())
        .map(|i| {
            if edges {
                format!("{} .. {}", b.labels[i], b.labels[i + 1])
            } else {
                b.labels[i].clone()
            }
        })
        .collect();
    let wide = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let most = b.values.iter().copied().fold(0.0, f64::max);
    let mut s = format!("\n{}\n", b.title);
    for (l, v) in labels.iter().zip(&b.values) {
        s.push_str(&format!(
            "  {l:>wide$}  {} {}\n",
            bar(*v, most),
            units::format_count(*v as u64)
        ));
    }
    s
}

/// Eighths of a cell make short bars tell apart.
fn bar(v: f64, most: f64) -> String {
    if !(v > 0.0 && most > 0.0) {
        return String::new();
    }
    let eighths = ((v / most) * (WIDTH * 8) as f64).round() as usize;
    let mut s = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        s.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8 - 1]);
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(1.0, 1.0).chars().count(), WIDTH);
        assert_eq!(bar(0.5, 1.0).chars().count(), WIDTH / 2);
        assert_eq!(bar(0.0, 1.0), "");
        assert_eq!(bar(f64::NAN, 1.0), "");
    }
}
