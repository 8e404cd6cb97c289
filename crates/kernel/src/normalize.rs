//! The kernel `normalize`: writes columns beside the data, shifted and scaled by their own statistics.
//!
//! The first pass takes the statistics of the columns, the second one writes the new values in the order of
//! the rows. The statistics are exact, and each value is mapped on its own, so the file is the same to
//! the last byte for any split.

use crate::columns::Chosen;
use crate::exact::{ExactSum, ratio};
use crate::extremes::Range;
use crate::grouped::show_number;
use crate::moments::{Order, Sums};
use crate::{Built, Context, Info, Kernel, Sink, SinkHeader, Spec, Step};
use num_bigint::BigUint;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_core::{Block, Error, Needs, RecordKind, Result, Shape, Value, is_missing};
use stead_simd::{Vector, Work, dispatch};

/// About `normalize`.
pub const INFO: Info = Info {
    name: "normalize",
    summary: "writes columns shifted and scaled: min-max, z-score or L2",
    usage: "normalize:COLUMN[,COLUMN...][,minmax|zscore|l2][,ddof=0][,out=PATH] | normalize:*",
    definition: "minmax (the default): (x - min) / (max - min). zscore: (x - mean) / std, the standard \
        deviation with ddof=0 or 1. l2: x / sqrt(sum of x^2). method=zscore says the same as zscore. Each column has its own statistics, taken \
        over its finite values; missing and NaN stay what they are, infinities stay infinite. A column \
        whose values are all equal (l2: all zero) becomes 0. minmax lies in 0..1.\n\
        Two passes; the second one writes, in the order of the rows, to a temporary name that becomes PATH \
        when it is whole. PATH ends in .npy: little-endian doubles, one dimension for one column, (rows, \
        columns) for several, and for the elements of an n-d array the shape and order of the input. .csv \
        or .txt: a line of names, then numbers with commas that read back to the same bits, missing values \
        empty (\"\" if they stand alone). Default: FILE.COLUMNS.METHOD.npy beside the first file. Several \
        files make one output.\n\
        Result: {out, rows, method, parameters: {COLUMN: {min, max} or {mean, std} or {norm}, and missing, \
        not_finite}}.",
    error: "min and max are exact, mean, std and norm correctly rounded; each value has two roundings more \
        (relative error below 2^-52 of the larger of x and the shift, over the divisor)",
    cost: "two passes, about 0.3 ns a value (zscore: 1) and 1 ns (.csv: over 160 ns); memory about 2 KB a \
        column, and 8 bytes a value for the second pass where they fit an eighth of the budget",
    source: "-",
    examples: &["normalize:arr_delay", "normalize:x,y,zscore,out=xy.npy", "normalize:*,method=l2"],
};

const METHODS: [&str; 3] = ["minmax", "zscore", "l2"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    MinMax,
    ZScore { ddof: u64 },
    L2,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::MinMax => "minmax",
            Method::ZScore { .. } => "zscore",
            Method::L2 => "l2",
        }
    }
}

/// What was asked for.
#[derive(Debug)]
struct Plan {
    columns: Chosen,
    method: Method,
    out: PathBuf,
    /// Text with commas instead of `.npy`.
    text: bool,
    /// Shape of the input, where the output is to have it too.
    shape: Option<Shape>,
}

/// Makes `normalize`.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spec.only_options(&["method", "ddof", "out"])?;
    // A method may also stand alone, unless a column has its name.
    let column = |a: &str| context.schema.columns.iter().any(|c| c.name == a);
    let mut bare = None;
    let mut names: Vec<&str> = Vec::new();
    for a in &spec.args {
        match METHODS.contains(&a.as_str()) && !column(a) {
            true if bare.is_some() || spec.option("method").is_some() => {
                return Err(spec.error("more than one method is given"));
            }
            true => bare = Some(a.as_str()),
            false => names.push(a),
        }
    }
    let columns = Chosen::numbers(spec, &names, context)?;
    if context.grouped {
        return Err(spec
            .error("it writes one file and does not go together with groups")
            .with_hint("select the rows of one group with --where"));
    }
    let ddof = spec.parse_option("ddof", 0u64)?;
    let method = match bare.or(spec.option("method")).unwrap_or(METHODS[0]) {
        "minmax" => Method::MinMax,
        "zscore" => Method::ZScore { ddof },
        "l2" => Method::L2,
        other => return Err(spec.error(format!("method={other} is not one of minmax, zscore, l2"))),
    };
    if ddof > 1 || (spec.option("ddof").is_some() && !matches!(method, Method::ZScore { .. })) {
        return Err(spec.error("ddof is 0 or 1, and only method=zscore has it"));
    }
    let out = match (spec.option("out"), context.path) {
        (Some(""), _) => return Err(spec.error("out= needs a path")),
        (Some(o), _) => PathBuf::from(o),
        (None, Some(p)) => beside(p, &columns, method),
        (None, None) => return Err(spec.error("the data have no path, so out=PATH is needed")),
    };
    if context.path == Some(&out) {
        return Err(spec.error("out= is the file that is read"));
    }
    let ending = out.extension().map(|e| e.to_string_lossy().to_lowercase());
    let text = match ending.as_deref() {
        Some("npy") => false,
        Some("csv" | "txt") => true,
        _ => return Err(spec.error("out= must end in .npy, .csv or .txt")),
    };
    let schema = context.schema;
    // The only column of an array of items is its elements.
    let elements = schema.records == RecordKind::Items && schema.columns.len() == 1;
    let shape = schema.shape.clone().filter(|_| elements && columns.ids.len() == 1);
    let plan = Plan { columns, method, out, text, shape };
    Ok(Built::alone(spec, Fit { plan: Arc::new(plan) }))
}

/// `FILE.COLUMNS.METHOD.npy` in the folder of `data`.
fn beside(data: &Path, columns: &Chosen, method: Method) -> PathBuf {
    const LONGEST: usize = 100;
    let stem = data.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_alphanumeric() || c == '_' || c == '.' { c } else { '_' };
    let names: Vec<String> = columns.names.iter().map(|n| n.chars().map(plain).collect()).collect();
    let mut joined = names.join("-");
    if joined.len() > LONGEST {
        joined = format!("{}_columns", names.len());
    }
    data.with_file_name(format!("{stem}.{joined}.{}.npy", method.name()))
}

/// First pass: the statistics.
struct Fit {
    plan: Arc<Plan>,
}

/// Statistics of one column. What the method does not ask for stays empty.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Column {
    /// Of the finite values; infinite the wrong way round if there is none. Zeros are positive.
    min: f64,
    max: f64,
    sums: Sums,
    squares: ExactSum,
    missing: u64,
    /// NaN and infinities.
    not_finite: u64,
}

/// Statistics and number of rows.
#[derive(Serialize, Deserialize)]
struct Fitted {
    rows: u64,
    columns: Vec<Column>,
}

impl Column {
    fn new() -> Column {
        Column {
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sums: Sums::default(),
            squares: ExactSum::new(),
            missing: 0,
            not_finite: 0,
        }
    }

    fn add(&mut self, values: &[f64], method: Method) {
        let mut range = Range::default();
        range.add_finite_slice(values);
        if let Some((low, high)) = range.ends() {
            // Zeros are positive.
            self.min = self.min.min(low + 0.0);
            self.max = self.max.max(high + 0.0);
        }
        match method {
            Method::MinMax => {}
            Method::ZScore { .. } => self.sums.add(values, Order::Squares),
            Method::L2 => self.squares.add_square_slice(values),
        }
    }

    /// How to map values, and the parameters to report.
    fn scale(&self, method: Method) -> (Scale, Vec<(&'static str, Value)>) {
        let known = self.min <= self.max;
        let value = |v: f64| if known { Value::Float(v) } else { Value::Null };
        // Where a difference would overflow, everything is halved first.
        let halved = |a: f64, b: f64| if (a - b).is_finite() { 1.0 } else { 0.5 };
        let (scale, mut parameters) = match method {
            Method::MinMax => {
                let factor = halved(self.max, self.min);
                let shift = self.min * factor;
                let scale = Scale { factor, shift, divisor: self.max * factor - shift };
                (scale, vec![("min", value(self.min)), ("max", value(self.max))])
            }
            Method::ZScore { ddof } => {
                let (mean, std) =
                    (self.sums.mean(), self.sums.spread(ddof, ratio::round_sqrt_ratio));
                let shift = mean.as_f64().unwrap_or(0.0);
                // One value with ddof=1 has no deviation: as if all were equal.
                let divisor = std.as_f64().unwrap_or(0.0);
                let factor = halved(self.max, shift).min(halved(self.min, shift));
                let scale = Scale { factor, shift: shift * factor, divisor: divisor * factor };
                (scale, vec![("mean", mean), ("std", std)])
            }
            Method::L2 => {
                let (squares, exponent) = self.squares.to_scaled();
                let norm = |power: i64| {
                    ratio::round_sqrt_ratio(&squares, &BigUint::from(1u8), exponent + 2 * power)
                };
                // Fewer than 2^64 values: their norm is at most 2^32 times the largest one.
                let power = if norm(0).is_finite() { 0 } else { -64 };
                let factor = if power == 0 { 1.0 } else { (-64f64).exp2() };
                let scale = Scale { factor, shift: 0.0, divisor: norm(power) };
                (scale, vec![("norm", value(norm(0)))])
            }
        };
        parameters.push(("missing", Value::Int(self.missing)));
        parameters.push(("not_finite", Value::Int(self.not_finite)));
        (scale, parameters)
    }
}

impl Kernel for Fit {
    type State = Fitted;

    fn needs(&self) -> Needs {
        self.plan.columns.needs()
    }

    fn init(&self) -> Fitted {
        Fitted { rows: 0, columns: vec![Column::new(); self.plan.columns.ids.len()] }
    }

    fn update(&self, state: &mut Fitted, block: &Block<'_>) -> Result<()> {
        state.rows += block.rows as u64;
        let mut finite = Vec::new();
        for (column, id) in state.columns.iter_mut().zip(&self.plan.columns.ids) {
            let values = block.numbers(*id);
            if values.iter().fold(true, |all, v| all & v.is_finite()) {
                column.add(values, self.plan.method);
                continue;
            }
            finite.clear();
            for v in values {
                if v.is_finite() {
                    finite.push(*v);
                } else if is_missing(*v) {
                    column.missing += 1;
                } else {
                    column.not_finite += 1;
                }
            }
            column.add(&finite, self.plan.method);
        }
        Ok(())
    }

    fn merge(&self, state: &mut Fitted, other: Fitted) -> Result<()> {
        state.rows = state.rows.saturating_add(other.rows);
        for (a, b) in state.columns.iter_mut().zip(&other.columns) {
            a.min = a.min.min(b.min);
            a.max = a.max.max(b.max);
            a.sums.merge(&b.sums);
            a.squares.merge(&b.squares);
            a.missing = a.missing.saturating_add(b.missing);
            a.not_finite = a.not_finite.saturating_add(b.not_finite);
        }
        Ok(())
    }

    fn check(&self, state: &Fitted) -> Result<()> {
        if state.columns.len() == self.plan.columns.ids.len() {
            return Ok(());
        }
        Err(Error::format("a state of other columns came from another rank"))
    }

    fn finish(&self, state: Fitted) -> Result<Step> {
        let fits = |s: &&Shape| s.elements() == state.rows && s.ndim() > 1;
        let shape = self.plan.shape.as_ref().filter(fits).cloned();
        let (mut scales, mut parameters) = (Vec::new(), Vec::new());
        for (column, name) in state.columns.iter().zip(&self.plan.columns.names) {
            let (scale, named) = column.scale(self.plan.method);
            scales.push(scale);
            let named = named.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
            parameters.push((name.clone(), Value::Map(named)));
        }
        let parameters = Value::Map(parameters);
        Ok(Step::Next(Arc::new(Apply { plan: self.plan.clone(), scales, parameters, shape })))
    }

    fn more_passes(&self) -> bool {
        true
    }

    fn output(&self) -> Option<PathBuf> {
        Some(self.plan.out.clone())
    }

    fn maps(&self) -> bool {
        true
    }

    fn state_bytes(&self, state: &Fitted) -> usize {
        state.columns.len() * (size_of::<Column>() + 2048)
    }
}

/// `(x * factor - shift) / divisor`. The factor is a power of two.
#[derive(Debug, Clone, Copy)]
struct Scale {
    factor: f64,
    shift: f64,
    divisor: f64,
}

impl Scale {
    #[inline]
    fn of(self, x: f64) -> f64 {
        let scaled = (x * self.factor - self.shift) / self.divisor;
        let scaled = if self.divisor == 0.0 { 0.0 } else { scaled };
        // Others as they are: a missing value stays missing. No branch, so that vectors can do it.
        if x.is_finite() { scaled } else { x }
    }
}

/// Where the values of a column go: 8 bytes each, `step` times that apart.
struct Places<'a> {
    values: &'a [f64],
    out: &'a mut [u8],
    first: usize,
    step: usize,
}

/// Writes the scaled values of a column.
struct Write<'a> {
    scale: Scale,
    places: Places<'a>,
}

impl Work for Write<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, _: V) {
        let Write { scale, places: Places { values, out, first, step } } = self;
        let places = out.as_chunks_mut::<8>().0;
        if step == 1 {
            for (place, v) in places.iter_mut().zip(values) {
                *place = scale.of(*v).to_le_bytes();
            }
            return;
        }
        for (place, v) in places.iter_mut().skip(first).step_by(step).zip(values) {
            *place = scale.of(*v).to_le_bytes();
        }
    }
}

/// Second pass: writes.
struct Apply {
    plan: Arc<Plan>,
    scales: Vec<Scale>,
    parameters: Value,
    /// Shape of the output, if it is not just rows.
    shape: Option<Shape>,
}

impl Apply {
    fn header(&self) -> SinkHeader {
        if self.plan.text {
            let quoted = |n: &String| match n.contains([',', '"', '\n', '\r']) {
                true => format!("\"{}\"", n.replace('"', "\"\"")),
                false => n.clone(),
            };
            let names: Vec<String> = self.plan.columns.names.iter().map(quoted).collect();
            return SinkHeader::Bytes((names.join(",") + "\n").into_bytes());
        }
        match (&self.shape, self.scales.len()) {
            (Some(s), _) => SinkHeader::NpyShape {
                shape: s.dims().to_vec(),
                fortran: s.order() == stead_core::Order::Fortran,
            },
            (None, 1) => SinkHeader::Npy { row: Vec::new() },
            (None, n) => SinkHeader::Npy { row: vec![n as u64] },
        }
    }
}

impl Kernel for Apply {
    /// Rows.
    type State = u64;

    fn needs(&self) -> Needs {
        self.plan.columns.needs()
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, rows: &mut u64, block: &Block<'_>) -> Result<()> {
        *rows += block.rows as u64;
        Ok(())
    }

    fn merge(&self, rows: &mut u64, other: u64) -> Result<()> {
        *rows = rows.saturating_add(other);
        Ok(())
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, rows: u64) -> Result<Step> {
        Ok(Step::Done(Value::map([
            ("out", Value::Text(self.plan.out.to_string_lossy().into_owned())),
            ("rows", Value::Int(rows)),
            ("method", Value::Text(self.plan.method.name().into())),
            ("parameters", self.parameters.clone()),
        ])))
    }

    fn sink(&self) -> Option<Sink> {
        Some(Sink { path: self.plan.out.clone(), header: self.header() })
    }

    fn map(&self, block: &Block<'_>, out: &mut Vec<u8>) -> Result<()> {
        let columns: Vec<(&[f64], Scale)> = self
            .plan
            .columns
            .ids
            .iter()
            .zip(&self.scales)
            .map(|(id, scale)| (block.numbers(*id), *scale))
            .collect();
        if columns.iter().any(|(values, _)| values.len() != block.rows) {
            return Err(Error::internal("a block came without the columns to normalize"));
        }
        if !self.plan.text {
            let from = out.len();
            out.resize(from + 8 * block.rows * columns.len(), 0);
            for (i, (values, scale)) in columns.iter().enumerate() {
                let places =
                    Places { values, out: &mut out[from..], first: i, step: columns.len() };
                dispatch(Write { scale: *scale, places });
            }
            return Ok(());
        }
        for row in 0..block.rows {
            for (i, (values, scale)) in columns.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                let v = scale.of(values[row]);
                if !is_missing(v) {
                    out.extend_from_slice(show_number(v).as_bytes());
                } else if columns.len() == 1 {
                    // An empty line would be skipped by those who read it.
                    out.extend_from_slice(b"\"\"");
                }
            }
            out.push(b'\n');
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
