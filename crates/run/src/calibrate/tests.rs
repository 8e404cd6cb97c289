use super::*;
use std::sync::Mutex;
use std::time::Duration;
use stead_core::Kind;
use stead_model::{Load, Request, decide};

/// What ranks on these hosts get.
fn each(hosts: &[&str], options: &Calibrate) -> Vec<Result<Profile>> {
    let nodes: Vec<usize> =
        hosts.iter().map(|h| hosts.iter().position(|o| o == h).unwrap_or(0)).collect();
    let group = Local::over_nodes(&nodes, Duration::from_secs(60));
    std::thread::scope(|scope| {
        let rank = |(fabric, host): (Local, &&str)| {
            let here = Here { host: host.to_string(), folder: None };
            scope.spawn(move || calibrate_on(&fabric, &here, options, None))
        };
        let all: Vec<_> = group.into_iter().zip(hosts).map(rank).collect();
        all.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

fn quick(tiers: &[&std::path::Path]) -> Calibrate {
    let tiers = tiers.iter().map(|t| t.to_path_buf()).collect();
    Calibrate { tiers, seconds: 0.2, ..Calibrate::default() }
}

#[test]
fn ranks_get_one_profile_with_which_can_be_decided() {
    let dir = tempfile::tempdir().expect("dir");
    let all = each(&["a", "b", "a", "b", "c"], &quick(&[dir.path()]));
    let profiles: Vec<Profile> = all.into_iter().map(|p| p.expect("profile")).collect();
    let profile = &profiles[0];
    assert!(profiles.iter().all(|p| p == profile));
    let sites: Vec<&str> = profile.sites.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(sites, ["a", "b", "c"]);
    assert!(profile.sites.iter().all(|s| s.hosts == 1 && s.cores > 0.0 && s.request_s > 0.0));
    let mut links: Vec<(&str, &str)> =
        profile.links.iter().map(|l| (l.from.as_str(), l.to.as_str())).collect();
    links.sort_unstable();
    assert_eq!(links, [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")]);
    let busy = |l: &Link| l.busy_latency_s > 0.0 && l.latency_s > 0.0;
    assert!(profile.links.iter().all(busy), "{:?}", profile.links);
    // Their cores are those of this machine.
    let [shared] = &profile.shared[..] else { panic!("{:?}", profile.shared) };
    assert_eq!(shared.sites, ["a", "b", "c"]);
    assert!(shared.cores > 0.0);
    // Columns of a text that has some, and those of which numbers are made.
    let columns = |kernel: &str, format: &str| {
        let cost =
            profile.kernels.iter().find(|c| (&c.kernel[..], &c.format[..]) == (kernel, format));
        cost.expect("a cost").vector_per_byte
    };
    assert!((0.1..0.5).contains(&columns("sum", "csv")), "{}", columns("sum", "csv"));
    assert!(columns("kmeans", "csv") > 2.0 * columns("sum", "csv"));
    assert_eq!((columns("grep", "csv"), columns("render", "raw")), (0.0, 0.0));
    assert!(["a", "b", "c"].iter().all(|s| profile.tiers.iter().any(|t| t.site == *s)));
    // Nothing is left of what was written.
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
    let tier = profile.tiers.iter().find(|t| t.site == "b").expect("a tier").name.clone();
    let families: [(&str, &[&str]); 4] = [
        ("csv", &["sum", "mean", "std", "grep", "kmeans", "gram", "digits", "entropy", "lines"]),
        (
            "raw",
            &[
                "sum",
                "hist",
                "quantile",
                "kmeans",
                "gram",
                "render",
                "render-unshaded",
                "digits",
                "rows",
            ],
        ),
        ("lines", &["lines", "grep", "digits", "entropy", "rows"]),
        ("records", &["rows", "grep", "digits", "entropy"]),
    ];
    for (format, kernels) in families {
        for kernel in kernels {
            let request = Request::new(1 << 30, *kernel, format);
            let request = request.held_on("b", tier.clone()).asked_by("a");
            let decision = decide(profile, &request, &Load::none()).expect("a decision");
            assert!(decision.choice().seconds > 0.0, "{kernel} over {format}");
        }
    }
    let text = profile.to_text().expect("text");
    assert_eq!(Profile::parse(&text).expect("parse"), *profile);
}

#[test]
fn a_file_is_read_and_left_alone() {
    let dir = tempfile::tempdir().expect("dir");
    let (file, bytes) = (dir.path().join("data"), vec![7u8; 300_000]);
    std::fs::write(&file, &bytes).expect("write");
    let told = Mutex::new(Vec::new());
    let tell = |what: &str| told.lock().expect("lock").push(what.to_owned());
    let profile = calibrate(&quick(&[&file]), Some(&tell)).expect("profile");
    assert_eq!((profile.sites.len(), profile.links.len()), (1, 0));
    assert!(!profile.tiers.is_empty() && profile.tiers.iter().all(|t| t.bytes_per_s > 1.0));
    assert_eq!(std::fs::read(&file).expect("read"), bytes);
    let told = told.into_inner().expect("lock");
    assert!(told.iter().any(|t| t.contains("data")) && told.iter().any(|t| t == "sum over raw"));
}

#[test]
fn what_cannot_be_measured_is_one_error_of_all_ranks() {
    let dir = tempfile::tempdir().expect("dir");
    let (empty, none) = (dir.path().join("empty"), dir.path().join("none"));
    std::fs::write(&empty, b"").expect("write");
    let stopped = quick(&[]);
    stopped.cancel.cancel();
    for (options, kind, says) in [
        (quick(&[&none]), Kind::NotFound, "no such folder or file on any host"),
        (quick(&[&empty]), Kind::Usage, "too little in it"),
        (Calibrate { seconds: 0.0, ..quick(&[]) }, Kind::Usage, "0 seconds"),
        (Calibrate { seconds: f64::NAN, ..quick(&[]) }, Kind::Usage, "seconds"),
        (stopped, Kind::Cancelled, "stopped"),
    ] {
        let all = each(&["a", "b"], &options);
        let errors: Vec<Error> = all.into_iter().map(|p| p.expect_err("an error")).collect();
        assert!(
            errors.iter().all(|e| e.kind() == kind && e.to_string().contains(says)),
            "{errors:?}"
        );
        let alone = calibrate(&options, None).expect_err("an error");
        assert_eq!(alone.kind(), kind);
    }
}

#[test]
fn speeds_are_means_and_what_is_unlike_them_is_told() {
    let cost = |kernel: &str, s: f64| Cost {
        kernel: kernel.into(),
        format: "csv".into(),
        site: None,
        core_s_per_gb: s,
        parse_share: 0.0,
        core_s_per_gstep: 0.0,
        result_bytes: 0.0,
        result_per_byte: 0.0,
        vector_per_byte: 0.0,
    };
    let reference = [cost("a", 1.0), cost("b", 1.0), cost("c", 4.0)];
    let half = [cost("a", 2.0), cost("b", 2.0), cost("c", 8.0)];
    assert!((speed(&reference, &half) - 0.5).abs() < 1e-12);
    assert!(unlike(&reference, &half, 0.5, "x").is_empty());
    assert_eq!(speed(&reference, &[]), 1.0);
    let odd = [cost("a", 2.0), cost("b", 2.0), cost("d", 8.0), cost("c", 4.0)];
    let told = unlike(&reference, &odd, 0.5, "x");
    let names: Vec<&str> = told.iter().map(|c| c.kernel.as_str()).collect();
    assert_eq!(names, ["d", "c"]);
    assert!(told.iter().all(|c| c.site.as_deref() == Some("x")));
}
