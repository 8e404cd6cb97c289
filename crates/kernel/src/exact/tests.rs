use super::*;
use num_bigint::BigInt;
use proptest::prelude::*;
use stead_core::MISSING;

/// `v` in units of 2^-1074.
fn units(v: f64) -> BigInt {
    let (negative, significand, exponent) = parts(v);
    let big = BigInt::from(significand) << (exponent + 1074) as u64;
    if negative { -big } else { big }
}

/// The sum by integer arithmetic alone.
fn oracle(values: &[f64]) -> f64 {
    ratio::round_scaled(&values.iter().map(|v| units(*v)).sum::<BigInt>(), -1074)
}

fn sum_of(values: &[f64]) -> ExactSum {
    let mut s = ExactSum::new();
    s.add_slice(values);
    s
}

/// Doubles of every exponent, with many of few exponents, so that they cancel.
fn any_finite() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |v| v.is_finite()),
        (-1000i32..1000).prop_map(f64::from),
        (-1.0..1.0f64),
        (-1.0..1.0f64).prop_map(|v| v * 1e-310),
        prop::sample::select(vec![1e308, -1e308, 1e-308, -1e-308, 5e-324, -5e-324, 0.0, -0.0, 1.0]),
    ]
}

#[test]
fn nothing_is_lost_to_cancellation() {
    for (values, want) in [
        (&[1e308, -1e308, 1e-308][..], 1e-308),
        (&[1e308, 1e308, -1e308, -1e308, 5e-324], 5e-324),
        (&[f64::MAX, f64::MAX, -f64::MAX], f64::MAX),
        (&[f64::MAX, f64::MAX], f64::INFINITY),
        (&[-f64::MAX, -f64::MAX], f64::NEG_INFINITY),
        (&[1.0, f64::EPSILON / 2.0], 1.0),
        (&[1.0, f64::EPSILON / 2.0, 5e-324], 1.0 + f64::EPSILON),
        (&[1.0 + f64::EPSILON, f64::EPSILON / 2.0], 1.0 + 2.0 * f64::EPSILON),
        (&[0.1; 10], 1.0),
        (&[], 0.0),
        (&[-0.0, -0.0], 0.0),
    ] {
        assert_eq!(sum_of(values).to_f64().to_bits(), want.to_bits(), "{values:?}");
        // Long enough for the fast path.
        let long: Vec<f64> = values.iter().copied().chain([0.0; 2000]).collect();
        assert_eq!(sum_of(&long).to_f64().to_bits(), want.to_bits(), "{values:?} and zeros");
    }
    // Half way between the largest double and the next one that there is not: to even, so to infinity.
    let half_ulp = 2f64.powi(970);
    assert_eq!(sum_of(&[f64::MAX, half_ulp]).to_f64(), f64::INFINITY);
    assert_eq!(sum_of(&[f64::MAX, half_ulp, -5e-324]).to_f64(), f64::MAX);
}

#[test]
fn infinities_nan_and_missing_values() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for n in [0, 1, 23, 24, 1023, 1024, 5000] {
        let ones = vec![1.0; n];
        for (some, want, present) in [
            (vec![MISSING, -MISSING], n as f64, 0),
            (vec![inf, MISSING], inf, 1),
            (vec![-inf, 1.0], -inf, 2),
            (vec![inf, -inf], nan, 2),
            (vec![nan], nan, 1),
            (vec![nan, inf], nan, 2),
        ] {
            let mut s = ExactSum::new();
            let all: Vec<f64> = ones.iter().chain(&some).copied().collect();
            let mut mirror = all.clone();
            mirror.reverse();
            for v in [&all, &mirror] {
                s = ExactSum::new();
                assert_eq!(s.add_slice(v), n as u64 + present);
                assert!(s.to_f64() == want || (s.to_f64().is_nan() && want.is_nan()), "{some:?}");
            }
            let mut one = ExactSum::new();
            all.iter().for_each(|v| one.add(*v));
            assert_eq!(one, s);
        }
    }
    let mut s = ExactSum::new();
    s.add_product(inf, MISSING);
    s.add_square_slice(&[MISSING]);
    assert_eq!(s, ExactSum::new());
    s.add_square_slice(&[-inf, 2.0]);
    assert_eq!(s.to_f64(), inf);
    s.add_product(inf, 0.0);
    assert!(s.to_f64().is_nan());
}

#[test]
fn carries_travel_up_and_down() {
    let mut s = ExactSum::new();
    let x = f64::MAX;
    s.add_slice(&vec![x; 100_000]);
    s.add_slice(&vec![5e-324; 100_000]);
    s.add_slice(&vec![-x; 100_000]);
    assert_eq!(s.to_f64(), 100_000.0 * 5e-324);
    s.add_slice(&vec![-5e-324; 100_001]);
    assert_eq!(s.to_f64(), -5e-324);
    // Doubling by merging: 2^60 copies and more.
    let mut s = sum_of(&[x, 3.0, -5e-324]);
    for _ in 0..60 {
        let t = s.clone();
        s.merge(&t);
    }
    let (big, e) = s.to_scaled();
    let want = (units(x) + units(3.0) + units(-5e-324)) << 60;
    assert_eq!(big << (e + BASE.abs()) as u64, want << (BASE.abs() - 1074) as u64);
    let back: ExactSum = postcard::from_bytes(&postcard::to_stdvec(&s).unwrap()).unwrap();
    assert_eq!(back, s);
}

#[test]
fn malformed_states_are_refused() {
    let good = (0u8, 5u16, vec![1u32, 0, 7]);
    let read = |w: &(u8, u16, Vec<u32>)| -> Result<ExactSum, _> {
        postcard::from_bytes(&postcard::to_stdvec(w).unwrap())
    };
    assert!(read(&good).is_ok());
    for bad in [
        (16, 5, vec![1]),
        (0, 5, vec![0, 1]),
        (0, 5, vec![1, 0]),
        (0, 5, vec![]),
        (8, 0, vec![]),
        (0, 65535, vec![1]),
        (0, 0, vec![1; MAX_LIMBS + 1]),
    ] {
        assert!(read(&bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn sums_are_exact(values in prop::collection::vec(any_finite(), 0..200), repeat in 1usize..30) {
        let values = values.repeat(repeat);
        let s = sum_of(&values);
        prop_assert_eq!(s.to_f64().to_bits(), oracle(&values).to_bits());
        let mut one = ExactSum::new();
        values.iter().for_each(|v| one.add(*v));
        prop_assert_eq!(&one, &s);
        prop_assert_eq!(postcard::to_stdvec(&one), postcard::to_stdvec(&s));
    }

    #[test]
    fn pieces_give_what_values_do_one_by_one(
        few in prop::collection::vec(any_finite(), 0..5),
        digits in prop::collection::vec(-1_000_000_000i64..1_000_000_000, 30..400),
        (places, exponent) in (0i32..12, -420i32..420),
        repeat in 1usize..12,
        spread in 0i32..60,
    ) {
        // Decimals as data have them, of some range of exponents, in several chunks, and a few others.
        let scaled = digits.iter().enumerate().map(|(i, d)| {
            let binade = if spread == 0 { 0 } else { i as i32 % spread };
            *d as f64 / 10f64.powi(places) * 2f64.powi(exponent - binade)
        });
        let mut values: Vec<f64> = scaled.collect::<Vec<_>>().repeat(repeat);
        values.extend(few);
        let (mut one, mut one2) = (ExactSum::new(), ExactSum::new());
        for v in &values {
            one.add(*v);
            one2.add_product(*v, *v);
        }
        let (mut sum, mut squares) = (ExactSum::new(), ExactSum::new());
        prop_assert_eq!(add_with_squares(&mut sum, &mut squares, &values), values.len() as u64);
        prop_assert_eq!(&sum, &one);
        prop_assert_eq!(&squares, &one2);
        prop_assert_eq!(&sum_of(&values), &one);
        let mut alone = ExactSum::new();
        alone.add_square_slice(&values);
        prop_assert_eq!(&alone, &one2);
    }

    #[test]
    fn any_split_is_the_same_sum(
        values in prop::collection::vec(any_finite(), 0..3000),
        cuts in prop::collection::vec(0usize..3000, 0..6),
    ) {
        let whole = sum_of(&values);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(values.len())).collect();
        cuts.extend([0, values.len()]);
        cuts.sort_unstable();
        let mut total = ExactSum::new();
        for w in cuts.windows(2).rev() {
            let part = sum_of(&values[w[0]..w[1]]);
            let bytes = postcard::to_stdvec(&part).unwrap();
            total.merge(&postcard::from_bytes(&bytes).unwrap());
        }
        prop_assert_eq!(postcard::to_stdvec(&total), postcard::to_stdvec(&whole));
    }

    #[test]
    fn squares_and_products_are_exact(
        values in prop::collection::vec(any_finite(), 0..60),
        near in prop::collection::vec(-1e6..1e6f64, 0..60),
    ) {
        for values in [&values, &near] {
            let mut fast = ExactSum::new();
            fast.add_square_slice(values);
            let mut slow = ExactSum::new();
            values.iter().for_each(|v| slow.add_product(*v, *v));
            prop_assert_eq!(&fast, &slow);
            let want: BigInt = values.iter().map(|v| units(*v).pow(2)).sum();
            prop_assert_eq!(slow.to_f64().to_bits(), ratio::round_scaled(&want, -2148).to_bits());
        }
        let mut cross = ExactSum::new();
        values.windows(2).for_each(|w| cross.add_product(w[0], w[1]));
        let want: BigInt = values.windows(2).map(|w| units(w[0]) * units(w[1])).sum();
        prop_assert_eq!(cross.to_f64().to_bits(), ratio::round_scaled(&want, -2148).to_bits());
    }

    #[test]
    fn a_single_double_rounds_to_itself(v in any_finite()) {
        let want = if v == 0.0 { 0.0 } else { v };
        prop_assert_eq!(sum_of(&[v]).to_f64().to_bits(), want.to_bits());
    }
}
