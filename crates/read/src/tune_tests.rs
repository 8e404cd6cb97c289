//! Devices whose rate is told: what is found, in how many blocks, and what does no harm.

use super::*;
use proptest::prelude::*;

/// Huge pages: each reader has one in flight.
fn whole(readers: usize) -> Choice {
    Choice {
        readers,
        block: 2 << 20,
        depth: 1,
        most_depth: 1,
        least_depth: 1,
        readers_at_least: 1,
        readers_at_most: 16,
        blocks: 128,
        whole: true,
        pinned: false,
        measured: None,
    }
}

/// Several in flight for each reader.
fn several(readers: usize, depth: usize, most_depth: usize) -> Choice {
    let blocks = 2 * readers * most_depth;
    Choice { depth, most_depth, whole: false, blocks, ..whole(readers) }
}

/// So that only its depth is left.
fn one_reader(depth: usize, most_depth: usize) -> Choice {
    Choice { readers_at_most: 1, pinned: true, ..several(1, depth, most_depth) }
}

/// What is in force over time, with a device that gives `rate(setting, block)` blocks in a second.
struct Device {
    tuner: Tuner,
    now: Duration,
    blocks: u64,
    history: Vec<Setting>,
}

impl Device {
    fn new(choice: Choice) -> Device {
        let tuner = Tuner::new(choice);
        Device { history: vec![tuner.now()], tuner, now: Duration::ZERO, blocks: 0 }
    }

    fn run(&mut self, blocks: u64, rate: impl Fn(Setting, u64) -> f64) {
        for _ in 0..blocks {
            self.now += Duration::from_secs_f64(1.0 / rate(self.tuner.now(), self.blocks));
            self.blocks += 1;
            self.tuner.landed(1000, self.now, self.tuner.now().readers);
            if self.history.last() != Some(&self.tuner.now()) {
                self.history.push(self.tuner.now());
            }
        }
    }

    fn found(&self) -> (usize, usize) {
        let found = self.tuner.found().unwrap();
        assert!(found.settled, "{:?}", self.tuner);
        assert_eq!(self.tuner.now(), found.setting);
        (found.setting.readers, found.setting.depth)
    }

    fn told(&self) -> Vec<(String, String)> {
        let decision = |name, value: usize| Decision {
            name,
            value: value.to_string(),
            reason: "chosen".to_owned(),
        };
        let choice = self.tuner.choice;
        let mut all = [decision("readers", choice.readers), decision("queue depth", choice.depth)];
        self.tuner.tell(&mut all, 1000);
        all.into_iter().map(|d| (d.value, d.reason)).collect()
    }
}

/// A number between 0 and 1, as good as by chance.
fn noise(seed: u64) -> f64 {
    let mut n = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (n >> 11) as f64 / (1u64 << 53) as f64
}

#[test]
fn it_finds_where_more_in_flight_brings_nothing() {
    for (knee, found) in [(1.0, 4), (8.0, 8), (30.0, 32), (1e9, 64)] {
        let mut device = Device::new(one_reader(4, 64));
        let rate = |n: Setting| (n.flying() as f64).min(knee);
        device.run(4000, |s, _| rate(s));
        assert_eq!(device.found(), (1, found), "{knee}");
        let measured = device.tuner.found().unwrap().rate;
        assert!((measured / 1000.0 - (found as f64).min(knee)).abs() < 0.01, "{measured}");
    }
}

#[test]
fn it_finds_how_many_readers_of_huge_pages_are_best() {
    // One disk head; few; as many as were chosen; more; as many as there may be.
    for (best, found) in [(1.0, 1), (2.0, 2), (4.0, 4), (8.0, 8), (1e9, 16)] {
        let mut device = Device::new(whole(4));
        let rate = |s: Setting| {
            let n = s.readers as f64;
            if n <= best { n } else { best * (best / n).sqrt() }
        };
        device.run(4000, |s, _| rate(s));
        assert_eq!(device.found(), (found, 1), "{best}");
    }
}

#[test]
fn readers_are_tried_with_as_many_blocks_in_flight_as_before() {
    // The processor is what is slow, and each reader has one.
    let mut device = Device::new(several(2, 8, 8));
    device.run(4000, |s, _| (s.readers as f64).min(8.0));
    assert_eq!(device.found(), (8, 2));
    assert!(device.history.iter().all(|s| s.flying() == 16), "{:?}", device.history);
    // They are in each other's way.
    let mut device = Device::new(several(8, 2, 64));
    device.run(8000, |s, _| 1.0 / s.readers as f64);
    assert_eq!(device.found().0, 1);
}

#[test]
fn what_is_pinned_stays_and_is_measured() {
    let choice = several(5, 3, 3);
    let pinned = Choice { readers_at_least: 5, readers_at_most: 5, least_depth: 3, ..choice };
    let mut device = Device::new(Choice { pinned: true, ..pinned });
    device.run(500, |s, _| s.flying() as f64);
    assert_eq!((device.found(), device.history.len()), ((5, 3), 1));
    // A pinned depth, and readers that are not.
    let choice = Choice { least_depth: 3, readers_at_most: 16, blocks: 30, ..choice };
    let mut device = Device::new(choice);
    device.run(2000, |s, _| s.readers as f64);
    assert!(device.history.iter().all(|s| s.depth == 3), "{:?}", device.history);
    assert_eq!(device.found().0, 5, "15 blocks in flight are half of the memory");
    // A pinned number of readers, and a depth that is not.
    let choice = Choice { readers_at_least: 2, readers_at_most: 2, ..several(2, 4, 32) };
    let mut device = Device::new(choice);
    device.run(4000, |s, _| s.flying() as f64);
    assert_eq!(device.found(), (2, 32));
}

#[test]
fn noise_and_a_device_that_warms_up_change_nothing() {
    let mut bad = 0;
    for seed in 0..500u64 {
        let mut device = Device::new(whole(4));
        // Blocks that take half as long again or as short, and now and then ten times as long, whatever is tried.
        device.run(3000, |_, block| {
            let slow = if noise(seed * 7777 + block) < 0.02 { 0.1 } else { 1.0 };
            slow * (0.7 + 0.6 * noise(seed * 10_000 + block))
        });
        bad += usize::from(device.found() != (4, 1));
    }
    assert!(bad <= 1, "{bad}");
    // Ten times as fast after some time, whenever that is.
    for when in (0..400).step_by(3) {
        let mut device = Device::new(whole(4));
        device.run(3000, |_, block| if block < when { 1.0 } else { 10.0 });
        assert_eq!(device.found(), (4, 1), "{when}");
    }
}

#[test]
fn what_was_found_before_is_not_looked_for_again() {
    let before = Choice { measured: Some(1_000_000), ..whole(8) };
    for rate in [910.0, 1000.0, 1900.0, 5000.0] {
        let mut device = Device::new(before);
        device.run(1000, |_, _| rate);
        assert_eq!((device.found(), device.history.len()), ((8, 1), 1), "{rate}");
    }
    // It is slower than it was.
    for rate in [480.0, 900.0] {
        let mut device = Device::new(before);
        device.run(3000, |s, _| if s.readers < 8 { 2.0 * rate } else { rate });
        assert_eq!(device.found(), (4, 1), "{rate}");
    }
}

#[test]
fn what_was_found_under_another_load_is_looked_at_again() {
    let mut device = Device::new(Choice { measured: Some(1_000_000), ..whole(4) });
    device.run(3000, |s, _| if s.readers == 8 { 1140.0 } else { 880.0 });
    assert_eq!(device.found(), (8, 1));
}

#[test]
fn the_best_rate_is_remembered_and_not_the_last() {
    // It slows down when all is tried, to the end of the file.
    let mut device = Device::new(whole(4));
    device.run(3000, |_, block| if block < 1000 { 1000.0 } else { 300.0 });
    assert_eq!(device.found(), (4, 1));
    let rate = device.tuner.found().unwrap().rate;
    assert!((rate - 1e6).abs() < 1e3, "{rate}");
}

#[test]
fn pauses_do_not_count() {
    let mut tuner = Tuner::new(one_reader(4, 4));
    let mut now = Duration::ZERO;
    for i in 0..200 {
        if i % 10 == 0 {
            tuner.pause();
            now += Duration::from_secs(3600);
        }
        now += Duration::from_millis(1);
        tuner.landed(1000, now, 1);
    }
    let rate = tuner.found().unwrap().rate;
    assert!((rate - 1e6).abs() < 1e4, "{rate}");
}

#[test]
fn nothing_is_judged_by_readers_that_are_not_at_work() {
    let mut tuner = Tuner::new(whole(4));
    let land = |tuner: &mut Tuner, count: usize, busy: fn(usize) -> usize| {
        for i in 0..count {
            let now = Duration::from_millis(i as u64 + 1);
            tuner.landed(1000, now, busy(tuner.now().readers));
        }
    };
    land(&mut tuner, 1000, |n| n - 1);
    land(&mut tuner, 1000, |n| n + 1);
    assert_eq!(tuner.found(), None);
    // There is too little to read for more than four.
    let mut settled = 0;
    for i in 0..2000u64 {
        let busy = tuner.now().readers.min(4);
        tuner.landed(1000, Duration::from_millis(i), busy);
        settled = if tuner.found().is_some_and(|f| f.settled) { settled } else { i };
    }
    let found = tuner.found().unwrap();
    assert_eq!((found.setting.readers, tuner.now().readers), (4, 4));
    assert!(settled < 300, "{settled}");
}

#[test]
fn what_was_found_is_told() {
    let mut device = Device::new(whole(4));
    device.run(20, |_, _| 1000.0);
    assert_eq!(device.told()[0], ("4".to_owned(), "chosen".to_owned()));
    device.run(2000, |_, _| 1000.0 * 1.048576);
    let [readers, depth] = device.told().try_into().unwrap();
    assert_eq!(readers, ("4".into(), "chosen; 8 and 2 tried while reading, no faster".into()));
    assert_eq!(depth, ("1".into(), "chosen; read so with 1.0 MiB/s".into()));
    let mut device = Device::new(whole(4));
    device.run(2000, |s, _| (s.readers as f64).min(8.0));
    let readers = device.told().swap_remove(0);
    let found = "found while reading: clearly faster than 4; 16 tried while reading, no faster";
    assert_eq!(readers, ("8".into(), found.into()));
    let mut device = Device::new(several(1, 4, 16));
    device.run(2000, |s, _| (s.flying() as f64).min(8.0));
    let [readers, depth] = device.told().try_into().unwrap();
    assert_eq!(readers, ("1".into(), "chosen; 2 tried while reading, no faster".into()));
    assert!(
        depth.0 == "8" && depth.1.starts_with("found while reading: clearly faster than 4; 16")
    );
    // Few blocks have few readers.
    let mut few = [Decision { name: "readers", value: "1".into(), reason: "small".into() }];
    let mut device = Device::new(whole(4));
    device.run(2000, |_, _| 1.0);
    device.tuner.tell(&mut few, 1);
    assert_eq!((&*few[0].value, &*few[0].reason), ("1", "small"));
}

proptest! {
    #[test]
    fn it_comes_to_an_end_within_bounds(
        (readers, depth) in (1..9usize, 1..9usize),
        (times, whole_pages) in (1..9usize, any::<bool>()),
        rates in prop::collection::vec(1..1000u32, 64),
    ) {
        let choice = if whole_pages { whole(readers) } else { several(readers, depth, depth * times) };
        let mut device = Device::new(choice);
        device.run(12_000, |s, block| {
            f64::from(rates[(s.readers * 7 + s.depth * 3 + block as usize / 50) % rates.len()])
        });
        // At most four steps of a sort, each of which is tried three times.
        prop_assert!(device.history.len() <= 1 + 4 * 24, "{:?}", device.history);
        prop_assert!(device.tuner.found().unwrap().settled);
        for s in &device.history {
            prop_assert!(s.readers >= 1 && s.readers <= 16.max(readers) && s.depth >= 1);
            prop_assert!(whole_pages || s.flying() <= choice.blocks / 2, "{s:?}");
            prop_assert!(s.depth <= choice.most_depth, "{s:?}");
        }
    }
}
