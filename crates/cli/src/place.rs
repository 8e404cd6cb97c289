//! Where a run computed, for people: what was expected of each place beside what came of it.

use stead::{Placing, units};

/// Lines of the plan.
pub fn rows(p: &Placing) -> Vec<(String, String)> {
    let mut rows = vec![(
        "place".to_owned(),
        format!(
            "{} ({}), with data on {} rank(s) and {} that ask: {}",
            p.place,
            if p.wish == "auto" { "chosen" } else { "asked for" },
            p.storage_ranks,
            p.compute_ranks,
            p.why
        ),
    )];
    let moved = |bytes: f64| units::format_size(bytes.max(0.0) as u64);
    for e in &p.alternatives {
        let estimate = format!(
            "estimated {}, {} moved, bound by {}",
            units::format_seconds(e.seconds),
            moved(e.moved_bytes),
            e.bound_by
        );
        let took = (e.place == p.place).then(|| {
            let seconds = units::format_seconds(p.took.seconds);
            format!("; took {seconds}, {} moved", moved(p.took.moved_bytes as f64))
        });
        rows.push((format!("  {}", e.place), estimate + &took.unwrap_or_default()));
    }
    for left in &p.left_out {
        rows.push((format!("  {}", left.place), format!("left out: {}", left.why)));
    }
    rows.push((
        "profile".to_owned(),
        p.profile.clone().unwrap_or_else(|| "none: 'stead calibrate' measures one".to_owned()),
    ));
    if !p.assumed.is_empty() {
        rows.push(("assumed".to_owned(), p.assumed.join(", ")));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead::{Alternative, LeftOut, Took};

    #[test]
    fn estimates_stand_beside_what_came_of_them() {
        let alternative = |place: &str, seconds| Alternative {
            place: place.into(),
            seconds,
            moved_bytes: 1024.0,
            bound_by: "the links".into(),
            asked_share: 0.0,
        };
        let placing = Placing {
            wish: "auto".into(),
            place: "push".into(),
            why: "push is better".into(),
            alternatives: vec![alternative("push", 1.0), alternative("pull", 2.0)],
            took: Took { seconds: 1.5, moved_bytes: 2048, asked_share: 0.0 },
            assumed: vec!["a network".into()],
            left_out: vec![LeftOut { place: "vector".into(), why: "no columns".into() }],
            ..Placing::default()
        };
        let rows = rows(&placing);
        let of = |name: &str| rows.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
        assert!(of("place").is_some_and(|v| v.starts_with("push (chosen)")));
        assert!(of("  push").is_some_and(|v| v.contains("estimated 1.00 s, 1.0 KiB moved")));
        assert!(of("  push").is_some_and(|v| v.ends_with("took 1.50 s, 2.0 KiB moved")));
        assert!(of("  pull").is_some_and(|v| v.contains("2.00 s") && !v.contains("took")));
        assert_eq!(of("assumed"), Some("a network"));
        assert_eq!(of("  vector"), Some("left out: no columns"));
        assert!(of("profile").is_some_and(|v| v.contains("stead calibrate")));
    }
}
