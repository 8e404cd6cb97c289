//! Every sort of vectors that this machine has, against [`Portable`].

use super::*;
use proptest::prelude::*;

/// Every operation, as bits.
#[derive(Clone)]
struct All([f64; 4], [f64; 4], [f64; 4]);

impl Work for All {
    type Out = (Vec<[u64; 4]>, u32, Vec<[u32; 8]>, u32);

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Self::Out {
        let (a, b, c) = (v.load(&self.0), v.load(&self.1), v.load(&self.2));
        let less = v.less(a, b);
        let all = [
            v.add(a, b),
            v.sub(a, b),
            v.mul(a, b),
            v.fma(a, b, c),
            v.min(a, b),
            v.max(a, b),
            v.select(less, a, c),
            v.splat(self.0[0]),
        ];
        let bits = |x: V::Four| {
            let mut out = [0.0; 4];
            v.store(x, &mut out);
            // Which NaN comes out of two is not the same everywhere.
            out.map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() })
        };
        // Floats of the doubles' sizes, and beyond their range.
        let (x, y) = (v.narrow(a, b), v.narrow(c, a));
        let less8 = v.less8(x, y);
        let all8 = [
            x,
            v.sub8(x, y),
            v.add8(x, y),
            v.mul8(x, y),
            v.min8(x, y),
            v.max8(x, y),
            v.select8(less8, x, y),
            v.splat8(self.0[0] as f32),
            v.load8(&[1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]),
            v.floor8(x),
            v.fours(&[1.5, 2.5, 3.5, 4.5], &[5.5, 6.5, 7.5, 8.5]),
            v.splats(self.1[0] as f32, self.1[1] as f32),
            v.fourths(x),
        ];
        let bits8 = |x: V::Eight| {
            let mut out = [0.0; 8];
            v.store8(x, &mut out);
            out.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
        };
        (all.map(bits).to_vec(), v.bits(less), all8.map(bits8).to_vec(), v.bits8(less8))
    }
}

/// Integers of numbers in their range.
#[derive(Clone)]
struct Whole([f64; 4]);

impl Work for Whole {
    type Out = ([f64; 4], [i32; 4], [i32; 8]);

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Self::Out {
        let floor = v.floor(v.load(&self.0));
        let mut out = [0.0; 4];
        v.store(floor, &mut out);
        // Within the integers that floats have.
        let small = v.mul(floor, v.splat(1.0 / 512.0));
        (out, v.integers(floor), v.integers8(v.floor8(v.narrow(small, floor))))
    }
}

/// `a * b + c` for estimates: near it.
#[derive(Clone)]
struct About([f64; 4]);

impl Work for About {
    type Out = ([f64; 4], [f32; 8]);

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Self::Out {
        let a = v.load(&self.0);
        let e = v.narrow(a, a);
        let (mut four, mut eight) = ([0.0; 4], [0.0; 8]);
        v.store(v.about(a, a, v.splat(1.0)), &mut four);
        v.store8(v.about8(e, e, v.splat8(1.0)), &mut eight);
        (four, eight)
    }
}

/// The operations of lanes on eight values, as bits.
#[derive(Clone)]
struct EightLanes([f64; 8], [f64; 8], [i32; 8]);

impl EightLanes {
    #[inline(always)]
    fn on<L: Lanes>(&self, l: L) -> Vec<u64> {
        // Which NaN comes out of two is not the same everywhere, and of `larger` only the upper half counts.
        let bits = |v: f64, shift| match shift {
            0 if v.is_nan() => u64::MAX,
            _ => v.to_bits() >> shift,
        };
        let mut out = Vec::new();
        let small = self.2.map(|v| f64::from(v >> 8));
        let mut put = |f: &dyn Fn(L::V, L::V, L::V) -> L::V, shift: u32| {
            for i in (0..8).step_by(L::N) {
                let v = f(l.load(&self.0[i..]), l.load(&self.1[i..]), l.load(&small[i..]));
                let v = l.store(v);
                assert!(v[L::N..].iter().all(|v| *v == 0.0));
                out.extend(v[..L::N].iter().map(|v| bits(*v, shift)));
            }
        };
        put(&|a, b, _| l.add(a, b), 0);
        put(&|a, b, _| l.sub(a, b), 0);
        put(&|_, _, s| l.or(s, l.splat(3.0)), 0);
        put(&|a, b, _| l.or(a, b), 1);
        put(&|_, _, s| l.mul_add(s, s, s), 0);
        put(&|_, _, s| l.add(s, l.splat(self.0[0])), 0);
        put(&|a, b, _| l.larger(a, b), 32);
        out
    }
}

impl Work for EightLanes {
    type Out = [Vec<u64>; 2];

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Self::Out {
        [self.on(v.lanes()), self.on(v.pair())]
    }
}

/// Too few values to load are zeros.
#[derive(Clone)]
struct Short;

impl Work for Short {
    type Out = bool;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        let l = v.lanes();
        l.store(l.load(&[1.0])) == [0.0; MOST]
    }
}

/// What there is to find in bytes.
#[derive(Clone)]
struct Look<'a> {
    group: &'a [u8; GROUP],
    window: &'a [u8; 16],
    len: usize,
}

impl Work for Look<'_> {
    type Out = (Masks, u64, u64, u32);

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Self::Out {
        let quotes = v.equal(self.group, b'"');
        let masks = v.masks(self.group, b',', b'"');
        (masks, quotes, v.parity(quotes), v.others(self.window, self.len))
    }
}

/// The number that digits say.
#[derive(Clone)]
struct Say<'a>(&'a [u8; 16], usize, usize);

impl Work for Say<'_> {
    type Out = u64;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> u64 {
        v.digits(self.0, self.1, self.2)
    }
}

/// What every sort of vectors makes of it; all must be the same.
fn same<W: Work + Clone>(work: W) -> W::Out
where
    W::Out: PartialEq + std::fmt::Debug,
{
    let want = work.clone().run(Portable);
    for vectors in Vectors::all() {
        assert_eq!(vectors.run(work.clone()), want, "{}", vectors.name());
    }
    assert_eq!(dispatch(work), want);
    want
}

/// Doubles that are odd more often than not.
fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => any::<f64>(),
        2 => -1e3..1e3,
        1 => prop::sample::select(vec![
            0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, -1e-310, f64::MAX,
        ]),
    ]
}

fn four() -> impl Strategy<Value = [f64; 4]> {
    prop::array::uniform4(double())
}

proptest! {
    #[test]
    fn integers_are_found(a in prop::array::uniform4(-2e9..2e9)) {
        let (floor, integers, _) = same(Whole(a));
        prop_assert_eq!(integers, a.map(|a| a.floor() as i32));
        prop_assert_eq!(floor, a.map(f64::floor));
    }

    #[test]
    fn numbers_are_the_same_bits(a in four(), b in four(), c in four(), equal in 0usize..5) {
        let mut b = b;
        b[..equal.min(4)].copy_from_slice(&a[..equal.min(4)]);
        same(All(a, b, c));
    }

    #[test]
    fn estimates_are_near(a in prop::array::uniform4(-1e3..1e3)) {
        for vectors in Vectors::all() {
            let (four, eight) = vectors.run(About(a));
            for i in 0..8 {
                let want = a[i % 4] * a[i % 4] + 1.0;
                prop_assert!((f64::from(eight[i]) - want).abs() <= 1e-6 * want);
                prop_assert!((four[i % 4] - want).abs() <= 1e-15 * want);
            }
        }
    }

    #[test]
    fn lanes_are_the_same_bits(
        a in prop::array::uniform8(double()),
        b in prop::array::uniform8(double()),
        small: [i32; 8],
    ) {
        let [one, two] = same(EightLanes(a, b, small));
        prop_assert_eq!(&one, &two);
        let add: Vec<_> = a.iter().zip(b).map(|(a, b)| (a + b).to_bits()).collect();
        for (got, want) in one.iter().zip(add) {
            prop_assert!(*got == want || *got == u64::MAX && f64::from_bits(want).is_nan());
        }
    }

    #[test]
    fn bytes_are_found(
        bytes in prop::collection::vec(
            prop_oneof![Just(b','), Just(b'\n'), Just(b'"'), b'0'..=b'9', any::<u8>()],
            GROUP,
        ),
        len in 1..=16usize,
    ) {
        let group: [u8; GROUP] = bytes.try_into().expect("64 bytes");
        let window: &[u8; 16] = group.first_chunk().expect("16 bytes");
        let (masks, quotes, _, others) = same(Look { group: &group, window, len });
        let want = |f: &dyn Fn(u8) -> bool| (0..GROUP).fold(0u64, |m, i| m | u64::from(f(group[i])) << i);
        prop_assert_eq!(masks.newlines, want(&|b| b == b'\n'));
        prop_assert_eq!(masks.ends, want(&|b| b == b'\n' || b == b','));
        prop_assert_eq!((masks.quoted, quotes), (quotes != 0, want(&|b| b == b'"')));
        let slow = (16 - len..16).fold(0, |m, i| m | u32::from(!window[i].is_ascii_digit()) << i);
        prop_assert_eq!(others, slow);
    }

    #[test]
    fn digits_say_numbers(
        digits in prop::collection::vec(b'0'..=b'9', 16),
        before in prop::collection::vec(any::<u8>(), 16),
        len in 1..=16usize,
        point in 0..=16usize,
    ) {
        let mut window: [u8; 16] = digits.try_into().expect("16 bytes");
        window[..16 - len].copy_from_slice(&before[..16 - len]);
        let point = if point < 16 - len { 16 } else { point };
        if point < 16 {
            window[point] = b'.';
        }
        let text: String = window[16 - len..].iter().filter(|b| **b != b'.').map(|b| *b as char).collect();
        prop_assert_eq!(same(Say(&window, len, point)), text.parse().unwrap_or(0));
    }
}

#[test]
fn all_bytes_are_told_apart() {
    for b in 0..=255u8 {
        let mut group = [b; GROUP];
        group[63] = b.wrapping_add(1);
        let want = |x: u8| (0..GROUP).fold(0u64, |m, i| m | u64::from(group[i] == x) << i);
        let (m, quotes, ..) = same(Look { group: &group, window: &[b; 16], len: 16 });
        assert_eq!(m.newlines, want(b'\n'));
        assert_eq!(m.ends, want(b'\n') | want(b','));
        assert_eq!(m.quoted, want(b'"') != 0);
        assert_eq!(quotes, want(b'"'));
    }
}

#[test]
fn bits_are_counted_modulo_two() {
    struct Parity(u64);
    impl Work for Parity {
        type Out = u64;

        #[inline(always)]
        fn run<V: Vector>(self, v: V) -> u64 {
            v.parity(self.0)
        }
    }
    for bits in [0u64, 1, 1 << 63, 0b1011_0010, u64::MAX] {
        let odd = |i: u32| (bits << (63 - i)).count_ones() % 2 == 1;
        let want = (0..64).fold(0, |m, i| m | u64::from(odd(i)) << i);
        for vectors in Vectors::all() {
            assert_eq!(vectors.run(Parity(bits)), want);
        }
    }
}

#[test]
fn what_is_not_there_is_zero() {
    assert!(same(Short));
}

/// The processor's own list of what it can do says the same as the tokens.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn the_vectors_are_those_of_the_processor() {
    let info = std::fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
    let flags = info.lines().find(|l| l.starts_with("flags")).expect("flags");
    let has = |f: &str| flags.split_whitespace().any(|w| w == f);
    let names: Vec<_> = Vectors::all().iter().map(|v| v.name()).collect();
    assert_eq!(names.contains(&"avx2"), has("avx2") && has("fma") && has("bmi2"));
    assert_eq!(names.contains(&"avx512"), has("avx512bw") && has("avx512dq") && has("avx512vl"));
}
