//! What every prediction promises, whatever the machines.

use crate::{
    Cost, Decision, Estimate, Link, Load, Place, Profile, Request, Shared, Site, Splitting, Stage,
    Tier, Wish, decide,
};
use proptest::prelude::*;
use stead_core::Kind;

/// Two sites that have data, one or two that ask, and a kernel.
#[derive(Debug, Clone)]
struct Case {
    profile: Profile,
    request: Request,
}

impl Case {
    fn decide(&self) -> Decision {
        decide(&self.profile, &self.request, &Load::none()).unwrap()
    }
}

fn log(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.log10()..high.log10()).prop_map(|e| 10f64.powf(e))
}

fn site(name: &'static str) -> impl Strategy<Value = Site> {
    (1..9u32, log(1.0, 64.0), log(0.05, 4.0), 0.0..3.0f64, log(1e5, 1e10), 0.0..1e-2f64).prop_map(
        move |(hosts, cores, speed, load, memory_bytes, request_s)| Site {
            name: name.into(),
            hosts,
            cores,
            speed,
            load,
            memory_bytes,
            request_s,
            pass_core_s: 0.0,
        },
    )
}

fn tier(site: &'static str) -> impl Strategy<Value = Tier> {
    (log(1e7, 1e10), 0.0..1e-2f64, 0.0..1.0f64).prop_map(
        move |(bytes_per_s, latency_s, core_s_per_gb)| {
            let tier = Tier::new("t", site, bytes_per_s);
            Tier { latency_s, core_s_per_gb, ..tier }
        },
    )
}

fn link(from: &'static str, to: &'static str) -> impl Strategy<Value = Link> {
    (log(1e6, 1e10), 0.0..1e-2f64, 0.0..2.0f64, 0.0..2.0f64).prop_map(
        move |(bytes_per_s, latency_s, send_core_s_per_gb, receive_core_s_per_gb)| {
            let link = Link::new(from, to, bytes_per_s);
            Link { latency_s, send_core_s_per_gb, receive_core_s_per_gb, ..link }
        },
    )
}

fn cost() -> impl Strategy<Value = Cost> {
    let steps = log(1e-3, 1e2);
    (log(1e-3, 1e3), 0.0..1.0f64, log(1.0, 1e8), any::<bool>(), 0.0..1.0f64, 0.0..2.0f64, steps)
        .prop_map(
            |(core_s_per_gb, parse_share, result_bytes, none, result, vector, core_s_per_gstep)| {
                Cost {
                    kernel: "k".into(),
                    format: "f".into(),
                    site: None,
                    core_s_per_gb,
                    parse_share,
                    core_s_per_gstep,
                    result_bytes,
                    result_per_byte: if none { 0.0 } else { result },
                    vector_per_byte: if none { 0.0 } else { vector },
                }
            },
        )
}

fn case() -> impl Strategy<Value = Case> {
    let sites = (site("a"), site("b"), site("x"), site("y"));
    let links = (link("a", "x"), link("b", "x"), link("y", "a"), link("y", "b"), link("a", "b"));
    let request = (0..1u64 << 34, 0..1u64 << 34, 1..30u32, 0.0..1.0f64, any::<bool>());
    (sites, (tier("a"), tier("b")), links, cost(), request, prop::option::of(log(1e7, 1e11)))
        .prop_map(
            |(
                (a, b, x, y),
                (ta, tb),
                (ax, bx, ya, yb, ab),
                cost,
                (on_a, on_b, passes, cached, two),
                switch,
            )| {
                let mut request = Request::new(0, "k", "f").in_passes(passes).asked_by("x");
                request = request.with_held("a", "t", on_a).with_held("b", "t", on_b);
                request.cached = cached;
                request.steps_per_byte = vec![if on_a % 2 == 0 { 0.0 } else { 2.0 }];
                if two {
                    request = request.asked_by("y");
                }
                let profile = Profile {
                    version: 1,
                    note: String::new(),
                    switch_bytes_per_s: switch,
                    sites: vec![a, b, x, y],
                    tiers: vec![ta, tb],
                    links: vec![ax, bx, ya, yb, ab],
                    kernels: vec![cost],
                    ..Profile::default()
                };
                Case { profile, request }
            },
        )
}

/// If the best split is looked for, and not a good one.
///
/// It is looked for among those in which all stores are busy equally long. Where results grow with the data, there may be better
/// ones. Of several passes each is the best after the one before, in runs as well, which need not be the best for all of them:
/// whoever is faster may fetch less at first and more later, and take longer on the whole. No split is expected to take longer
/// than the better one of the two sides alone: see `the_choice_is_the_best`.
fn finds_the_best_split(case: &Case) -> bool {
    case.request.passes == 1 && case.profile.kernels[0].result_per_byte == 0.0
}

/// `better` takes no longer than `worse`, in any place.
fn no_slower(better: &Case, worse: &Case) -> Result<(), TestCaseError> {
    let splits = finds_the_best_split(better) && finds_the_best_split(worse);
    no_slower_choices(&better.decide(), &worse.decide(), splits)
}

fn no_slower_choices(
    better: &Decision,
    worse: &Decision,
    splits: bool,
) -> Result<(), TestCaseError> {
    for w in worse.alternatives() {
        let b = better.alternatives().iter().find(|b| b.place == w.place).unwrap();
        // Times are halved to find a split, so that it is not exact.
        let slack = match w.place {
            Place::Split if splits => 1e-3,
            Place::Split => continue,
            _ => 1e-9,
        };
        prop_assert!(b.seconds <= w.seconds * (1.0 + slack) + 1e-12, "{b:?} is worse than {w:?}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_choice_is_the_best(case in case()) {
        let decision = case.decide();
        let choice = decision.choice();
        let find = |p: Place| decision.alternatives().iter().find(|e| e.place == p);
        for e in decision.alternatives() {
            prop_assert!(e.seconds.is_finite() && e.seconds >= 0.0 && e.moved_bytes >= 0.0, "{e:?}");
            prop_assert!((0.0..=1.0).contains(&e.asked_share));
            prop_assert!(choice.seconds <= e.seconds);
            for (stage, seconds) in e.parts.stages() {
                prop_assert!(seconds <= e.seconds * (1.0 + 1e-9), "{stage}: {e:?}");
            }
        }
        let split = find(Place::Split).unwrap();
        prop_assert!(split.seconds <= find(Place::Push).unwrap().seconds);
        prop_assert!(split.seconds <= find(Place::Pull).unwrap().seconds);
        let numbers = case.profile.kernels[0].vector_per_byte > 0.0;
        prop_assert_eq!(find(Place::VectorUp).is_some(), numbers);
        prop_assert!(decision.why().starts_with(&choice.place.to_string()));
        let wished = decision.wished(Wish::Auto).unwrap();
        prop_assert_eq!(wished, choice);
    }

    #[test]
    fn a_faster_link_is_never_slower(case in case(), which in 0..5usize, by in 1.0..100.0f64) {
        let mut better = case.clone();
        better.profile.links[which].bytes_per_s *= by;
        no_slower(&better, &case)?;
        better.profile.links[which].latency_s /= by;
        no_slower(&better, &case)?;
        better.profile.switch_bytes_per_s = case.profile.switch_bytes_per_s.map(|s| s * by);
        no_slower(&better, &case)?;
    }

    #[test]
    fn a_faster_site_is_never_slower(case in case(), which in 0..4usize, by in 1.0..100.0f64) {
        let mut better = case.clone();
        better.profile.sites[which].speed *= by;
        no_slower(&better, &case)?;
        better.profile.sites[which].cores *= by;
        no_slower(&better, &case)?;
        better.profile.sites[which].load /= by;
        no_slower(&better, &case)?;
        better.profile.sites[which].memory_bytes *= by;
        no_slower(&better, &case)?;
        better.profile.sites[which].request_s /= by;
        no_slower(&better, &case)?;
    }

    #[test]
    fn a_faster_tier_and_less_data_are_never_slower(case in case(), which in 0..2usize, by in 1.0..100.0f64) {
        let mut better = case.clone();
        better.profile.tiers[which].bytes_per_s *= by;
        no_slower(&better, &case)?;
        better.request.cached = better.request.cached.max(1.0 - 1.0 / by);
        no_slower(&better, &case)?;
        better.profile.kernels[0].core_s_per_gb /= by;
        no_slower(&better, &case)?;
        better.request.passes = better.request.passes.div_ceil(2);
        no_slower(&better, &case)?;
        // Unless there is no data left, which is a request of its own.
        let least = |b: u64| (b as f64 / by) as u64 + 1;
        let held = &mut better.request.held[which].bytes;
        *held = least(*held).min(*held);
        no_slower(&better, &case)?;
    }

    #[test]
    fn load_of_the_moment_replaces_that_of_the_profile(case in case(), load in 0.0..4.0f64, busy in 0.0..1.0f64) {
        let now = Load::none().on("a", load).on("x", load);
        let with = decide(&case.profile, &case.request, &now).unwrap();
        let mut told = case.clone();
        for s in &mut told.profile.sites {
            if s.name == "a" || s.name == "x" {
                s.load = load;
            }
        }
        let told = told.decide();
        prop_assert_eq!(with.alternatives(), told.alternatives());
        let busy = decide(&case.profile, &case.request, &Load::none().between("a", "x", busy)).unwrap();
        no_slower_choices(&case.decide(), &busy, finds_the_best_split(&case))?;
    }
}

/// A storage host and a host, 100 MB, link 100 MB/s, a second of one core for the data.
fn plain() -> Case {
    let profile = Profile::parse(
        r#"
        version = 1
        sites = [{ name = "storage", cores = 1 }, { name = "host", cores = 4 }]
        tiers = [{ name = "disk", site = "storage", bytes_per_s = 1e9 }]
        links = [{ from = "storage", to = "host", bytes_per_s = 1e8 }]
        kernels = [{ kernel = "k", format = "csv", core_s_per_gb = 10, result_bytes = 8 }]
        "#,
    )
    .unwrap();
    let mut request =
        Request::new(100_000_000, "k", "csv").held_on("storage", "disk").asked_by("host");
    request.chunk = 100_000;
    Case { profile, request }
}

fn of(decision: &Decision, place: Place) -> Estimate {
    decision.alternatives().iter().find(|e| e.place == place).unwrap().clone()
}

#[test]
fn stages_overlap_and_the_slowest_binds() {
    let case = plain();
    let decision = case.decide();
    // 1 s over the link, and the first chunk is read, sent and computed on: 0.1 + 1 + 1 ms.
    let pull = of(&decision, Place::Pull);
    assert_eq!(pull.binds(), Stage::Link);
    assert!((pull.seconds - 1.0011).abs() < 2e-4, "{pull:?}");
    assert_eq!(pull.moved_bytes, 1e8);
    let push = of(&decision, Place::Push);
    assert_eq!(push.binds(), Stage::Storage);
    assert!((push.seconds - 1.0001).abs() < 2e-4, "{push:?}");
    assert_eq!(push.moved_bytes, 8.0);
    // Both take a second alone, so half of it together.
    let split = decision.choice();
    assert_eq!(split.place, Place::Split);
    assert!(
        (split.seconds - 0.5).abs() < 5e-3 && (split.asked_share - 0.5).abs() < 5e-3,
        "{split:?}"
    );
    assert_eq!(
        decision.why(),
        "split takes 500.6 ms, bound by the cores of the storage, with 50 % of the data at the hosts, and moves 47.6 MiB; \
         push would take 1.00 s, bound by the cores of the storage"
    );
    // One chunk: nothing overlaps.
    let mut one = case.clone();
    one.request.chunk = 1 << 40;
    let pull = of(&one.decide(), Place::Pull);
    assert!((pull.seconds - (0.1 + 1.0 + 1.0)).abs() < 1e-6, "{pull:?}");
}

#[test]
fn a_stressed_host_does_less() {
    let mut case = plain();
    case.profile.links[0].bytes_per_s = 1e9;
    let idle = case.decide();
    assert!(of(&idle, Place::Pull).seconds < 0.3);
    // 4 threads of others on each of its cores leave a fifth.
    let now = Load::none().on("host", 4.0);
    let stressed = decide(&case.profile, &case.request, &now).unwrap();
    assert!((of(&stressed, Place::Pull).seconds - 1.25).abs() < 0.01);
    let share = |d: &Decision| of(d, Place::Split).asked_share;
    assert!(share(&stressed) < share(&idle));
}

#[test]
fn numbers_move_where_that_pays() {
    let mut case = plain();
    let cost = &mut case.profile.kernels[0];
    (cost.parse_share, cost.vector_per_byte) = (0.1, 0.1);
    // Text of which a tenth is numbers: parsed by a slow store in 0.1 s, computed on by a fast host in 0.225 s.
    let up = of(&case.decide(), Place::VectorUp);
    assert_eq!(case.decide().choice().place, Place::VectorUp);
    assert!((up.seconds - 0.225).abs() < 0.01 && up.moved_bytes == 1e7, "{up:?}");
    // A host that reads for a store that cannot parse well.
    let cost = &mut case.profile.kernels[0];
    cost.parse_share = 0.99;
    case.profile.links[0].bytes_per_s = 1e10;
    case.profile.sites[1].load = 1.0;
    let decision = case.decide();
    let down = of(&decision, Place::VectorDown);
    assert_eq!(down.binds(), Stage::Host);
    assert!(down.seconds < of(&decision, Place::Push).seconds);
    assert_eq!(decision.wished(Wish::Vector).unwrap().place, Place::VectorDown);
}

#[test]
fn later_passes_are_fed_from_memory_where_the_data_fit() {
    let mut case = plain();
    case.request = case.request.in_passes(10);
    let pull = of(&case.decide(), Place::Pull);
    // The link is paid once, then nine passes of 0.25 s.
    assert!((pull.seconds - (1.0 + 9.0 * 0.25)).abs() < 0.01, "{pull:?}");
    assert_eq!(pull.moved_bytes, 1e8);
    case.profile.sites[1].memory_bytes = 0.0;
    let pull = of(&case.decide(), Place::Pull);
    assert!((pull.seconds - 10.0).abs() < 0.02, "{pull:?}");
    assert_eq!(pull.moved_bytes, 1e9);
}

#[test]
fn hosts_that_have_the_data_move_less() {
    let mut case = plain();
    case.profile.sites[0].hosts = 4;
    case.profile.links[0].to = "storage".into();
    case.request =
        Request::new(100_000_000, "k", "csv").held_on("storage", "disk").asked_by("storage");
    let decision = case.decide();
    assert_eq!(of(&decision, Place::Pull).moved_bytes, 0.75e8 + 3.0 * 8.0);
    assert_eq!(decision.choice().place, Place::Push);
    assert!(decision.wished(Wish::Split).unwrap_err().message().contains("nothing to split"));
    // One host needs no link at all.
    case.profile.sites[0].hosts = 1;
    case.profile.links.clear();
    assert_eq!(of(&case.decide(), Place::Pull).moved_bytes, 0.0);
}

#[test]
fn requests_without_sense_are_refused() {
    let good = plain();
    let refused = |change: &dyn Fn(&mut Case)| {
        let mut case = good.clone();
        change(&mut case);
        decide(&case.profile, &case.request, &Load::none()).unwrap_err()
    };
    type Change<'a> = &'a dyn Fn(&mut Case);
    let says: [(&str, Change<'_>); 9] = [
        ("no site 'moon'", &|c| c.request.asked_by[0] = "moon".into()),
        ("no tier 'tape' of site 'storage'", &|c| c.request.held[0].tier = "tape".into()),
        ("no cost of 'grep' in 'csv'", &|c| c.request.kernels.push("grep".into())),
        ("no link from 'storage' to 'host'", &|c| c.profile.links.clear()),
        ("has data twice", &|c| c.request = c.request.clone().with_held("storage", "disk", 1)),
        ("asks twice", &|c| c.request = c.request.clone().asked_by("host")),
        ("1 or more passes", &|c| c.request.passes = 0),
        ("1 or more passes", &|c| c.request.cached = f64::NAN),
        ("without kernels", &|c| c.request.kernels.clear()),
    ];
    for (message, change) in says {
        let e = refused(change);
        assert_eq!(e.kind(), Kind::Usage);
        assert!(e.message().contains(message), "{e}");
    }
    assert_eq!(refused(&|c| c.profile.sites[0].cores = f64::NAN).kind(), Kind::Format);
    assert!(Wish::parse("moon").is_err());
    assert_eq!(Wish::parse("split").unwrap(), Wish::Split);
    let decision = good.decide();
    assert!(decision.wished(Wish::Vector).unwrap_err().message().contains("no numbers"));
    // Nothing to read is a request, too.
    let mut empty = good.clone();
    empty.request.held[0].bytes = 0;
    assert!(empty.decide().choice().seconds < 1e-6);
}

#[test]
fn what_is_known_of_a_request_goes_before_what_kernels_send() {
    let mut case = plain();
    assert!(!case.decide().alternatives().iter().any(|e| e.place == Place::VectorUp));
    case.profile.kernels[0].parse_share = 0.1;
    case.request.vector_per_byte = Some(0.1);
    // A tenth of the bytes, and of the work where the data are.
    let up = of(&case.decide(), Place::VectorUp);
    assert!((up.moved_bytes - 1e7).abs() < 1.0 && up.seconds < 0.3, "{up:?}");
    assert_eq!(case.decide().wished(Wish::Vector).unwrap().place, Place::VectorUp);
    // Columns are kept in less memory than the bytes.
    case.request.passes = 10;
    case.profile.sites[1].memory_bytes = 1.1e7;
    assert!((of(&case.decide(), Place::VectorUp).moved_bytes - 1e7).abs() < 1e6);
    case.request.vector_per_byte = Some(0.0);
    assert!(case.decide().wished(Wish::Vector).is_err());
    case.request.vector_per_byte = Some(f64::NAN);
    assert!(decide(&case.profile, &case.request, &Load::none()).is_err());
}

#[test]
fn what_a_split_takes_is_a_part_of_the_choice() {
    let profile = Profile::parse(
        r#"
        version = 1
        sites = [{ name = "storage", cores = 1 }, { name = "host", cores = 4 }]
        tiers = [{ name = "nvme", site = "storage", bytes_per_s = 1e9 }]
        links = [{ from = "storage", to = "host", bytes_per_s = 1e8 }]
        kernels = [{ kernel = "k", format = "f", core_s_per_gb = 10.0, parse_share = 0.5 }]
    "#,
    )
    .expect("profile");
    let asked = |bytes, splitting, passes| {
        let request = Request::new(bytes, "k", "f").held_on("storage", "nvme").asked_by("host");
        let mut request = request.in_passes(passes);
        request.splitting = splitting;
        decide(&profile, &request, &Load::none()).expect("a decision")
    };
    let free = Splitting::default();
    let costs = Splitting { seconds: 0.02, part: 0.05 };
    let of = |d: &Decision| d.among(|p| p == Place::Split).expect("split").clone();
    // A second alone, half of it together.
    let (without, with) = (of(&asked(100_000_000, free, 1)), of(&asked(100_000_000, costs, 1)));
    assert!((with.seconds - (without.seconds + 0.05 + 0.02)).abs() < 2e-3, "{with:?}");
    // Milliseconds, which it is not worth.
    let little = asked(1_000_000, costs, 1);
    assert_eq!(of(&little).seconds, little.choice().seconds);
    assert_ne!(little.choice().place, Place::Split);
    // In each pass.
    let (without, with) = (of(&asked(100_000_000, free, 3)), of(&asked(100_000_000, costs, 3)));
    let slower = 0.05 * asked(100_000_000, free, 3).alternatives()[0].seconds;
    assert!((with.seconds - (without.seconds + slower + 0.06)).abs() < 5e-3, "{with:?}");
    let mut request = Request::new(1, "k", "f").held_on("storage", "nvme").asked_by("host");
    request.splitting = Splitting { seconds: f64::NAN, ..free };
    assert!(decide(&profile, &request, &Load::none()).is_err());
}

/// What those who ask have fetched stays with them, so that they do more in each pass.
#[test]
fn a_split_of_many_passes_moves_the_work_to_who_is_faster() {
    let profile = Profile::parse(
        r#"
        version = 1
        sites = [{ name = "storage", cores = 1 }, { name = "host", cores = 8 }]
        tiers = [{ name = "nvme", site = "storage", bytes_per_s = 1e12 }]
        links = [{ from = "storage", to = "host", bytes_per_s = 1e8 }]
        kernels = [{ kernel = "k", format = "f", core_s_per_gb = 1.0 }]
    "#,
    )
    .expect("profile");
    let asked = |passes| {
        let request = Request::new(100_000_000, "k", "f").held_on("storage", "nvme");
        decide(&profile, &request.asked_by("host").in_passes(passes), &Load::none())
            .expect("a decision")
    };
    let of = |passes| {
        let decision = asked(passes);
        let of = |place| of(&decision, place);
        (of(Place::Push), of(Place::Pull), of(Place::Split))
    };
    // In one pass 1 GB/s near the data and 0.1 GB/s over the link; then hosts are eight times as fast.
    let (push, pull, once) = of(1);
    assert!((push.seconds - 0.1).abs() < 0.01 && pull.seconds > 1.0);
    assert!(
        once.seconds < push.seconds && (once.asked_share - 1.0 / 11.0).abs() < 0.03,
        "{once:?}"
    );
    let (push, pull, split) = of(12);
    assert!(split.seconds < 0.7 * push.seconds && split.seconds < 0.7 * pull.seconds, "{split:?}");
    assert!(split.asked_share > 3.0 * once.asked_share, "{split:?}");
    // Each byte crosses once, at most.
    assert!(split.moved_bytes < 1.05e8);
    // Seconds of the passes as they follow from each other: what is fetched in one is there in the next.
    let (mut has, mut seconds) = (0.0, 0.0);
    for _ in 0..12 {
        let now: f64 = (1e8 - has + has / 8.0 * 0.1) / 1.1e9;
        has += (now - has / 8e9).max(0.0) * 1e8;
        seconds += now;
    }
    assert!((split.seconds / seconds - 1.0).abs() < 0.15, "{} for {seconds}", split.seconds);
}

#[test]
fn steps_take_time_beside_bytes() {
    let text = r#"
        version = 1
        sites = [{ name = "storage", cores = 1, speed = 0.5 }, { name = "host", cores = 1 }]
        tiers = [{ name = "nvme", site = "storage", bytes_per_s = 1e12 }]
        links = [{ from = "storage", to = "host", bytes_per_s = 1e12 }]
        kernels = [{ kernel = "k", format = "f", core_s_per_gb = 1.0, core_s_per_gstep = 3.0 }]
    "#;
    let profile = Profile::parse(text).expect("profile");
    let asked = |steps: Vec<f64>| {
        let mut request =
            Request::new(1_000_000_000, "k", "f").held_on("storage", "nvme").asked_by("host");
        request.steps_per_byte = steps;
        decide(&profile, &request, &Load::none())
    };
    let seconds = |steps, place| of(&asked(steps).expect("a decision"), place).parts;
    assert!((seconds(vec![], Place::Pull).host - 1.0).abs() < 1e-6);
    assert!((seconds(vec![2.0], Place::Pull).host - 7.0).abs() < 1e-6);
    assert!((seconds(vec![2.0], Place::Push).storage - 14.0).abs() < 1e-6);
    assert!(asked(vec![f64::NAN]).is_err() && asked(vec![-1.0]).is_err());
}

proptest! {
    /// What is shared can only take longer, and no more than with a core of all.
    #[test]
    fn who_shares_cores_is_never_faster(case in case(), cores in 0.1..64.0f64, by in 1.0..100.0f64) {
        let sharing = |cores: f64| {
            let mut case = case.clone();
            let sites = case.profile.sites.iter().map(|s| s.name.clone()).collect();
            case.profile.shared = vec![Shared { sites, cores }];
            case
        };
        no_slower(&case, &sharing(cores))?;
        no_slower(&sharing(cores * by), &sharing(cores))?;
    }
}

/// Two hosts that are containers of one machine.
#[test]
fn hosts_that_share_cores_gain_nothing_together() {
    let mut case = plain();
    case.profile.sites[1].cores = 1.0;
    case.profile.links[0].bytes_per_s = 1e9;
    assert!(of(&case.decide(), Place::Split).seconds < 0.6);
    let sites = vec!["storage".to_owned(), "host".to_owned()];
    case.profile.shared = vec![Shared { sites, cores: 1.0 }];
    case.request.splitting = Splitting { seconds: 0.0, part: 0.01 };
    let decision = case.decide();
    let split = of(&decision, Place::Split);
    assert!(split.seconds > 0.99 && decision.choice().place == Place::Push, "{split:?}");
    // With half a core more than one of them they gain a third.
    case.profile.shared[0].cores = 1.5;
    let split = of(&case.decide(), Place::Split);
    assert!(
        (split.seconds - 1.0 / 1.5 - 0.01).abs() < 0.01 && split.binds() == Stage::Shared,
        "{split:?}"
    );
    // Others take of them, too.
    case.profile.sites[0].load = 1.0;
    assert!(of(&case.decide(), Place::Push).seconds > 1.9);
    case.profile.sites[0].load = 0.0;
    // Bytes of those who send are paid by the same cores.
    case.profile.links[0].send_core_s_per_gb = 5.0;
    case.profile.links[0].receive_core_s_per_gb = 10.0;
    let pull = of(&case.decide(), Place::Pull);
    assert!((pull.seconds - 2.5 / 1.5).abs() < 0.67 && pull.parts.shared > 1.6, "{pull:?}");
}

#[test]
fn to_send_and_to_receive_takes_cores() {
    let mut case = plain();
    let link = &mut case.profile.links[0];
    (link.send_core_s_per_gb, link.receive_core_s_per_gb) = (8.0, 2.0);
    case.profile.tiers[0].core_s_per_gb = 1.0;
    let decision = case.decide();
    let (push, pull, split) =
        (of(&decision, Place::Push), of(&decision, Place::Pull), of(&decision, Place::Split));
    // 10 to compute and 1 to take; 8 to send and 1 to take, on a link that takes a second; 12 on four cores.
    assert!((push.parts.storage - 1.1).abs() < 1e-6, "{push:?}");
    assert!((pull.parts.storage - 0.9).abs() < 1e-6, "{pull:?}");
    assert!((pull.parts.host - 0.3).abs() < 1e-6, "{pull:?}");
    // A host that sends for 0.9 what it computes on for 1.1 gains little.
    assert!(split.seconds > 0.9 && split.seconds <= pull.seconds, "{split:?}");
    let columns = |per_byte| {
        let mut case = case.clone();
        case.request.vector_per_byte = Some(per_byte);
        case.profile.kernels[0].parse_share = 0.5;
        of(&case.decide(), Place::VectorUp).parts
    };
    // 5 to parse, 1 to take, a quarter of 8 to send.
    assert!((columns(0.25).storage - 0.8).abs() < 1e-6, "{:?}", columns(0.25));
    assert!((columns(0.25).host - (0.5 + 0.05) / 4.0).abs() < 1e-6, "{:?}", columns(0.25));
}
