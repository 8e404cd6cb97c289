//! What is taken for so where nobody has measured it.

use stead_core::Result;
use stead_core::block::brick_planes;
use stead_format::Dataset;
use stead_kernel::Spec;
use stead_model::Cost;

/// Bytes in a second of a tier, and seconds until the first byte: a plain NVMe drive.
pub const TIER: (f64, f64) = (1e9, 1e-4);
/// Of a link: 1 Gb/s.
pub const LINK: (f64, f64) = (117e6, 1e-4);
/// Seconds that a request takes before the first byte is read.
pub const REQUEST_S: f64 = 2e-3;
/// Of a small message, while all compute.
pub const BUSY_S: f64 = 1e-3;
/// Core-seconds of a pass, whatever the data.
pub const PASS_S: f64 = 3e-4;
/// Core-seconds for 10^9 bytes that are sent, or received, and of those that are taken from the page cache.
pub const SENDING: f64 = 0.5;
pub const TAKING: f64 = 0.05;
/// Messages of each pass of a split that all wait for while both sides' processors have been busy: that there are no more chunks,
/// and the states. Others come while chunks are computed on, or when processors are free again.
pub const MESSAGES: f64 = 2.0;
/// Smallest chunks that the slower side has at the end of a pass, and how much of the data they have together, at least.
pub const LAST_CHUNKS: f64 = 2.0;
pub const LEAST_PART: f64 = 0.02;
/// Bytes of a state.
const RESULT: f64 = 1024.0;
/// Most of them whose passes are counted.
const MOST_CENTRES: u32 = 1000;
/// What kernels of the caller's own are called here, as no others are.
pub const OWN: &str = "own kernels";
/// Centres that k-means has unless told otherwise, and pixels of a side of a picture.
const CENTRES: u32 = 20;
const PIXELS: u64 = 512;
/// Samples that take as long as what a pixel takes whatever lies along its ray: to begin it, to put its parts together and to write it.
const OF_A_PIXEL: f64 = 256.0;
/// Passes of a kernel that ends when it is good enough.
const ROUNDS: u32 = 10;

/// Core-seconds for 10^9 bytes of text and of binary data, and how much of that is parsing: a core of a server at 2.5 GHz.
const COSTS: [(&str, f64, f64); 12] = [
    ("rows", 0.3, 0.05),
    ("lines", 0.3, 0.3),
    ("grep", 0.6, 0.6),
    ("digits", 0.3, 0.3),
    ("entropy", 0.5, 0.5),
    ("hist", 2.0, 0.5),
    ("quantile", 2.0, 0.8),
    ("kmeans", 1.0, 0.15),
    ("gram", 2.5, 1.0),
    ("render", 0.3, 0.3),
    ("render-unshaded", 0.3, 0.3),
    // Sums, extremes, moments, and what is not known.
    ("", 1.5, 0.2),
];
/// Of text, how much of that is parsing.
const PARSING: f64 = 0.6;

/// Core-seconds for 10^9 steps, of kernels that have some.
const STEPS: [(&str, f64); 3] = [("kmeans", 0.07), ("render", 2.5), ("render-unshaded", 0.5)];

/// The cost of a kernel that was not measured.
pub fn cost(kernel: &str, format: &str) -> Cost {
    let is = |name: &str| name == kernel || name.is_empty();
    let (_, text, binary) = COSTS.iter().find(|(name, ..)| is(name)).unwrap_or(&COSTS[11]);
    let of_text = matches!(format, "csv" | "lines");
    Cost {
        kernel: kernel.to_owned(),
        format: format.to_owned(),
        site: None,
        core_s_per_gb: if of_text { *text } else { *binary },
        parse_share: if of_text { PARSING } else { 0.1 },
        core_s_per_gstep: STEPS.iter().find(|(name, _)| *name == kernel).map_or(0.0, |(_, s)| *s),
        result_bytes: RESULT,
        result_per_byte: 0.0,
        vector_per_byte: 0.0,
    }
}

/// The format whose costs these are: one of those that are measured.
pub fn format(name: &str) -> &str {
    match name {
        "tsv" => "csv",
        "npy" | "tipsy" | "table" | "recorded" => "raw",
        other => other,
    }
}

/// What kernels that take about as long are called together: mostly by their name.
pub fn family(spec: &Spec) -> String {
    match (spec.name.as_str(), spec.option("shading")) {
        // A colour is looked up, and no gradient.
        ("render", Some("none")) => "render-unshaded".to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// What a kernel does over all of the data in one pass that does not follow from their bytes: samples along the rays of a picture
/// of an array of these dimensions; for k-means each value with each centre. 0 for others.
pub fn steps(spec: &Spec, bytes: u64, dims: Option<&[u64]>) -> f64 {
    let number = |key: &str, or: u64| spec.parse_option(key, or).unwrap_or(or) as f64;
    match (spec.name.as_str(), dims) {
        ("render", Some(&[a, b, c])) => {
            let step = spec.parse_option("step", 1.0f64).unwrap_or(1.0).clamp(0.05, 100.0);
            let along = (a as f64 * b as f64 * c as f64).cbrt() / step;
            number("width", PIXELS) * number("height", PIXELS) * (along + OF_A_PIXEL)
        }
        ("kmeans", _) => number("k", u64::from(CENTRES)) * (bytes / 8) as f64,
        _ => 0.0,
    }
}

/// Bytes of the data that some of these kernels compute on together or not at all: bricks are whole cells of planes. 0 if all take
/// the data in any parts.
///
/// # Errors
/// `Usage` for specifications that are none.
pub fn unit(kernels: &[String], dataset: &Dataset) -> Result<u64> {
    let specs = kernels.iter().map(|k| Spec::parse(k)).collect::<Result<Vec<_>>>()?;
    let shape = dataset.schema().shape.as_ref().map(|s| s.dims());
    Ok(match shape {
        Some(&[a, b, c]) if specs.iter().any(|s| s.name == "render") => {
            (dataset.total_bytes() / a.max(1)).saturating_mul(brick_planes([a, b, c]))
        }
        _ => 0,
    })
}

/// Passes that a kernel will probably take over the data.
pub fn passes(spec: &Spec) -> u32 {
    let given = |key: &str| spec.option(key).is_some();
    match spec.name.as_str() {
        "kmeans" => {
            let rounds = spec.parse_option("rounds", ROUNDS).unwrap_or(ROUNDS).clamp(1, ROUNDS);
            // To choose them takes a pass for each, unless they are the first ones or any.
            let centres = spec.parse_option("k", CENTRES).unwrap_or(CENTRES).min(MOST_CENTRES);
            // And one for the sizes at the end.
            rounds
                + 1
                + if matches!(spec.option("init"), None | Some("kmeans++")) { centres } else { 1 }
        }
        "hist" | "render" if !(given("min") && given("max")) => 2,
        "normalize" => 2,
        "quantile" if spec.args.iter().any(|a| a == "exact") => 5,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_follow_from_what_is_asked_for() {
        for (spec, wanted) in [
            ("sum:x", 1),
            ("kmeans:k=3", 14),
            ("kmeans:k=3,rounds=2", 6),
            ("kmeans:k=3,rounds=x", 14),
            ("kmeans:k=3,rounds=2,init=first", 4),
            ("hist:x,bins=3", 2),
            ("hist:x,min=0,max=1", 1),
            ("normalize:x", 2),
            ("quantile:x", 1),
            ("quantile:x,exact", 5),
        ] {
            assert_eq!(passes(&Spec::parse(spec).expect("spec")), wanted, "{spec}");
        }
    }

    #[test]
    fn pictures_without_shading_are_a_family_of_their_own() {
        let of = |spec: &str| family(&Spec::parse(spec).expect("spec"));
        assert_eq!(of("render:shading=none"), "render-unshaded");
        assert_eq!(
            (of("render"), of("render:shading=gradient"), of("sum:x")),
            ("render".into(), "render".into(), "sum".into())
        );
        let seconds = |family| cost(family, "raw").core_s_per_gstep;
        assert!(seconds("render-unshaded") < seconds("render"));
    }

    #[test]
    fn pictures_and_clusters_take_steps() {
        let of =
            |spec: &str, dims: Option<&[u64]>| steps(&Spec::parse(spec).expect("spec"), 8000, dims);
        assert_eq!(
            of("render:width=10,height=20", Some(&[8, 8, 8][..])).round(),
            200.0 * (8.0 + OF_A_PIXEL)
        );
        assert_eq!(
            of("render:width=10,height=20,step=0.5", Some(&[8, 8, 8])).round(),
            200.0 * (16.0 + OF_A_PIXEL)
        );
        assert_eq!(of("render", Some(&[8, 8])), 0.0);
        assert_eq!((of("kmeans:x,k=3", None), of("kmeans", None)), (3000.0, 20_000.0));
        assert_eq!(of("sum:x", None), 0.0);
    }

    #[test]
    fn every_kernel_has_a_cost() {
        for kernel in stead_kernel::registry::list().map(|i| i.name).chain(["mine"]) {
            for format in ["csv", "tsv", "lines", "records", "raw", "npy", "tipsy"] {
                let cost = cost(kernel, self::format(format));
                assert!(cost.core_s_per_gb > 0.0 && cost.core_s_per_gb < 10.0, "{kernel}");
            }
        }
    }
}
