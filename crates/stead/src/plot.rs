//! Pictures of results: histograms and per-group values as one SVG.

use plotters::prelude::*;
use plotters::style::FontTransform;
use stead_core::{Error, Result, Value};
use stead_run::Report;

/// A series of labelled bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What is drawn: the specification.
    pub title: String,
    /// One label a bar.
    pub labels: Vec<String>,
    /// Heights; never NaN.
    pub values: Vec<f64>,
}

/// Most bars in one panel; more would not be told apart.
const MAX_BARS: usize = 400;
/// Most panels in one picture.
const MAX_PANELS: usize = 16;

/// The results that can be drawn as bars: histograms (`hist`), digit counts, and single numbers by group.
pub fn bars(report: &Report) -> Vec<Bars> {
    let grouped = !report.plan.by.is_empty();
    report.results.iter().filter_map(|(spec, value)| of(spec, value, grouped)).collect()
}

fn of(spec: &str, value: &Value, grouped: bool) -> Option<Bars> {
    let Value::Map(members) = value else { return None };
    if let (Some(Value::List(edges)), Some(Value::List(counts))) =
        (value.get("edges"), value.get("counts"))
    {
        let labels = edges.iter().filter_map(Value::as_f64).map(short).collect();
        let values: Vec<f64> = counts.iter().filter_map(Value::as_f64).collect();
        return (values.len() <= MAX_BARS && !values.is_empty()).then(|| Bars {
            title: spec.to_string(),
            labels,
            values,
        });
    }
    let numbers: Vec<(String, f64)> = members
        .iter()
        .filter_map(|(k, v)| Some((k.clone(), v.as_f64().filter(|f| f.is_finite())?)))
        .collect();
    let drawable = grouped || spec.starts_with("digits");
    (drawable && !numbers.is_empty() && numbers.len() <= MAX_BARS).then(|| {
        let (labels, values) = numbers.into_iter().unzip();
        Bars { title: spec.to_string(), labels, values }
    })
}

/// A number for an axis.
fn short(v: f64) -> String {
    if v != 0.0 && (v.abs() >= 1e6 || v.abs() < 1e-3) {
        format!("{v:.2e}")
    } else {
        let s = format!("{v:.3}");
        s.trim_end_matches('0').trim_end_matches('.').to_string()
    }
}

/// Draws all that [`bars`] finds, one panel below the other. An error of kind `Usage` if there is nothing
/// to draw.
pub fn svg(report: &Report) -> Result<String> {
    let mut panels = bars(report);
    if panels.is_empty() {
        return Err(Error::usage("none of the results can be drawn").with_hint(
            "ask for a histogram (-k hist:COLUMN) or for single numbers with --by COLUMN",
        ));
    }
    panels.truncate(MAX_PANELS);
    let mut out = String::new();
    draw(&panels, &mut out).map_err(|e| Error::internal(format!("cannot draw: {e}")))?;
    Ok(out)
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn draw(panels: &[Bars], out: &mut String) -> Drawn {
    let root = SVGBackend::with_string(out, (900, 340 * panels.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, bars) in root.split_evenly((panels.len(), 1)).iter().zip(panels) {
        let n = bars.values.len();
        let (low, high) = bars.values.iter().fold((0f64, 0f64), |(l, h), v| (l.min(*v), h.max(*v)));
        let pad = ((high - low) * 0.05).max(f64::MIN_POSITIVE);
        let low = if low < 0.0 { low - pad } else { 0.0 };
        let edges = bars.labels.len() == n + 1;
        let mut chart = ChartBuilder::on(area)
            .caption(&bars.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(if edges { 30 } else { 50 })
            .y_label_area_size(70)
            .build_cartesian_2d(0f64..n as f64, low..(high + pad).max(low + 1e-300))?;
        let shift = if edges { 0.0 } else { 0.5 };
        let label = |x: &f64| {
            let i = (*x - shift).round();
            if i >= 0.0 && ((*x - shift) - i).abs() < 1e-6 {
                bars.labels.get(i as usize).cloned().unwrap_or_default()
            } else {
                String::new()
            }
        };
        let style = ("sans-serif", 13).into_font();
        let x_style =
            if !edges && n > 12 { style.transform(FontTransform::Rotate90) } else { style };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_labels(if edges { 11 } else { 0 })
            .x_label_formatter(&label)
            .y_label_formatter(&|y| short(*y))
            .x_label_style(x_style)
            .draw()?;
        let fill = RGBColor(38, 102, 148).filled();
        chart.draw_series(bars.values.iter().enumerate().map(|(i, v)| {
            let gap = if edges { 0.02 } else { 0.12 };
            Rectangle::new([(i as f64 + gap, 0.0), (i as f64 + 1.0 - gap, *v)], fill)
        }))?;
        if !edges {
            // Labels under the bars themselves: the axis would place them at round numbers.
            let size = if n > 40 { 8 } else { 12 };
            chart.draw_series(bars.labels.iter().enumerate().map(|(i, l)| {
                let l: String = l.chars().take(12).collect();
                EmptyElement::at((i as f64 + 0.5, low))
                    + Text::new(l, (-(size / 2) * 2, 6), ("sans-serif", size))
            }))?;
        }
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_run::{Metrics, Plan};

    fn report(results: Vec<(String, Value)>, by: Vec<String>) -> Report {
        Report { results, plan: Plan { by, ..Plan::default() }, metrics: Metrics::default() }
    }

    #[test]
    fn histograms_and_groups_are_drawn() {
        let hist = Value::map([
            ("edges", Value::floats([0.0, 0.5, 1.0])),
            ("counts", Value::List(vec![Value::Int(3), Value::Int(4)])),
        ]);
        let s = svg(&report(vec![("hist:x".into(), hist)], vec![])).expect("svg");
        assert!(s.contains("hist:x") && s.matches("<rect").count() >= 3);
        let groups = Value::map([("UA", Value::Float(3.5)), ("AA", Value::Null)]);
        let r = report(vec![("mean:x".into(), groups)], vec!["carrier".into()]);
        assert_eq!(bars(&r)[0].labels, ["UA"]);
        assert!(svg(&r).expect("svg").contains("UA"));
    }

    #[test]
    fn nothing_to_draw_is_said() {
        let e = svg(&report(vec![("rows".into(), Value::Int(3))], vec![])).expect_err("nothing");
        assert!(e.hint().is_some());
    }
}
