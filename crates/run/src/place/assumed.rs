//! What is taken for so where nobody has measured it.

use stead_kernel::Spec;
use stead_model::{Cost, Splitting};

/// Bytes in a second of a tier, and seconds until the first byte: a plain NVMe drive.
pub const TIER: (f64, f64) = (1e9, 1e-4);
/// Of a link: 1 Gb/s.
pub const LINK: (f64, f64) = (117e6, 1e-4);
/// Seconds that a request takes before the first byte is read.
pub const REQUEST_S: f64 = 2e-3;
/// What it takes to give chunks to both sides; the first pass of a split keeps none of them in memory. As was measured where
/// both sides share processors (`bench/runs`, k-means and pictures): splits took 1.6 times what both sides alone let expect.
pub const SPLITTING: Splitting = Splitting { seconds: 0.02, part: 0.6, again: 1 };
/// Bytes of a state.
const RESULT: f64 = 1024.0;
/// Most of them whose passes are counted.
const MOST_CENTRES: u32 = 1000;
/// What kernels of the caller's own are called here, as no others are.
pub const OWN: &str = "own kernels";
/// Centres that k-means has unless told otherwise.
const CENTRES: u32 = 8;
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
    ("kmeans", 3.0, 2.0),
    ("gram", 2.5, 1.0),
    ("render", 3.0, 3.0),
    ("render-unshaded", 1.5, 1.5),
    // Sums, extremes, moments, and what is not known.
    ("", 1.5, 0.2),
];
/// Of text, how much of that is parsing.
const PARSING: f64 = 0.6;

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
        result_bytes: RESULT,
        result_per_byte: 0.0,
        vector_per_byte: 0.0,
    }
}

/// The format whose costs these are: one of those that are measured.
pub fn format(name: &str) -> &str {
    match name {
        "tsv" => "csv",
        "npy" | "tipsy" | "table" => "raw",
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

/// Passes that a kernel will probably take over the data.
pub fn passes(spec: &Spec) -> u32 {
    let given = |key: &str| spec.option(key).is_some();
    match spec.name.as_str() {
        "kmeans" => {
            let rounds = spec.parse_option("rounds", ROUNDS).unwrap_or(ROUNDS).clamp(1, ROUNDS);
            // To choose them takes a pass for each, unless they are the first ones or any.
            let centres = spec.parse_option("k", CENTRES).unwrap_or(CENTRES).min(MOST_CENTRES);
            rounds
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
            ("kmeans:k=3", 13),
            ("kmeans:k=3,rounds=2", 5),
            ("kmeans:k=3,rounds=x", 13),
            ("kmeans:k=3,rounds=2,init=first", 3),
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
        let seconds = |family| cost(family, "raw").core_s_per_gb;
        assert!(seconds("render-unshaded") < seconds("render"));
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
