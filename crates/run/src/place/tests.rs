use super::*;
use facts::{Facts, Work};
use stead_model::Tier;

fn said(host: &str, tier: Option<&str>, cached: f64) -> Said {
    Said {
        machine: Machine::here(host),
        threads: 2,
        tier: tier.map(str::to_owned),
        cached,
        stretches: 1,
        kept: 1 << 30,
        compressed: false,
        vector_per_byte: None,
        profile: None,
    }
}

fn work(families: &[&str]) -> Work<'static> {
    let families: Vec<String> = families.iter().map(|f| f.to_string()).collect();
    let steps = vec![0.0; families.len()];
    Work {
        bytes: 1 << 30,
        format: "csv",
        steps,
        families,
        passes: 1,
        vector_per_byte: None,
        unit: 0,
    }
}

const MEASURED: &str = r#"
    version = 1
    sites = [{ name = "s1", cores = 4, speed = 0.5 }, { name = "h1", cores = 4 }, { name = "h2", cores = 4 }]
    tiers = [
        { name = "ext4-8:1", site = "s1", bytes_per_s = 3e8 },
        { name = "xfs-8:2", site = "s1", bytes_per_s = 9e9 },
    ]
    links = [
        { from = "s1", to = "h1", bytes_per_s = 1e8, latency_s = 1e-4 },
        { from = "s1", to = "h2", bytes_per_s = 3e8, latency_s = 1e-4 },
        { from = "h1", to = "h2", bytes_per_s = 9e9 },
    ]
    kernels = [
        { kernel = "sum", format = "csv", core_s_per_gb = 2.0, parse_share = 0.9, result_bytes = 40 },
        { kernel = "sum", format = "csv", site = "h2", core_s_per_gb = 4.0 },
    ]
"#;

#[test]
fn facts_are_those_of_the_hosts_that_take_part() {
    let measured = Profile::parse(MEASURED).expect("profile");
    let all = [said("s1", Some("ext4-8:1"), 0.25), said("h1", None, 0.0), said("h2", None, 0.0)];
    let facts = Facts::new(&all, &[true, false, false], Some(&measured), &work(&["sum"]));
    assert_eq!(facts.assumed, Vec::<String>::new());
    let p = &facts.profile;
    assert_eq!((p.sites[0].hosts, p.sites[0].speed), (1, 0.5));
    assert_eq!((p.sites[1].hosts, p.sites[1].speed), (2, 1.0));
    assert!(p.sites.iter().all(|s| s.cores <= 2.0 && s.cores > 0.0), "threads were asked for");
    assert_eq!(p.tiers[0], Tier::new("tier", "storage", 3e8));
    assert_eq!(p.links[0].bytes_per_s, 3e8, "the median of two is the greater one");
    // Half as fast, and the mean of two.
    let costs: Vec<f64> = p.kernels.iter().map(|c| c.core_s_per_gb).collect();
    assert_eq!(costs, [4.0, 3.0]);
    assert_eq!(facts.request.cached, 0.25);
    // All of them are this machine: two that ask, and all three.
    let shared: Vec<usize> = p.shared.iter().map(|s| s.sites.len()).collect();
    assert_eq!(shared, [1, 2]);
    let all = Machine::cores(&[&Machine::here("x")]);
    assert!(p.shared.iter().all(|s| s.cores > 0.0 && s.cores <= all), "{:?}", p.shared);
    decide(p, &facts.request, &Load::none()).expect("a decision");
}

#[test]
fn what_was_not_measured_is_assumed_and_said() {
    let all = [said("s9", Some("ext4-8:1"), 0.0), said("h9", None, 0.0), said("h9", None, 0.0)];
    let none = Facts::new(&all, &[true, false, false], None, &work(&["sum", "mine"]));
    let wanted = [
        "what sum takes over csv",
        "what mine takes over csv",
        "how fast the data are read",
        "a network of 1 Gb/s",
    ];
    assert_eq!(none.assumed, wanted);
    assert_eq!(none.profile.sites[1].hosts, 1);
    decide(&none.profile, &none.request, &Load::none()).expect("a decision");
    let measured = Profile::parse(MEASURED).expect("profile");
    let other = Facts::new(&all, &[true, false, false], Some(&measured), &work(&["sum"]));
    let wanted = [
        "the speed of 1 host(s) with the data",
        "the speed of 1 host(s) that ask",
        "that these hosts are linked as others are",
    ];
    assert_eq!(other.assumed, wanted, "a tier of the same name, and costs of the reference");
    assert_eq!(other.profile.tiers[0].bytes_per_s, 3e8);
    decide(&other.profile, &other.request, &Load::none()).expect("a decision");
}

#[test]
fn what_a_rank_holds_is_cut_where_parts_of_others_begin() {
    let held = |source, bytes: std::ops::Range<u64>| Held { source, bytes };
    let has = [held(0, 3..9), held(0, 20..30), held(2, 0..5)];
    let cuts = [(0, 0), (0, 3), (0, 5), (0, 9), (0, 25), (0, 26), (1, 4), (2, 0), (2, 5), (2, 9)];
    let wanted = [held(0, 3..5), held(0, 5..9), held(0, 20..25), held(0, 25..26), held(0, 26..30)];
    let wanted: Vec<Held> = wanted.into_iter().chain([held(2, 0..5)]).collect();
    assert_eq!(cut(&has, &cuts), Share::Held(wanted.into()));
    assert_eq!(cut(&[], &cuts), Share::Held([].into()));
}
