//! Decimals read four at a time, in the four 64-bit lanes of a vector.
//!
//! A field's last eight bytes go into a lane, so that its last byte is the lane's top byte. Bytes before the
//! field are masked, a sign and a point are found by comparison, the digits before the point move up over
//! it, and pairs of digits are added up to pairs of pairs. Digits and power of ten are exact in f64 and
//! one division rounds (see [`super::number`]). Fields of up to 16 bytes take two such lanes.
//!
//! No branch depends on what stands in the fields, but for the one that looks whether all went well.

use super::fields_of::Fields;
use std::arch::x86_64::*;

/// `10^k`, for vectors of 32-bit integers that are chosen by the low bits of `255 k`.
const POWERS: [i32; 8] = [1, 10_000_000, 1_000_000, 100_000, 10_000, 1000, 100, 10];

/// `m * UP[k + 22] / DOWN[k + 22]` is `m * 10^k` with one rounding.
const UP: [f64; 45] = powers(true);
const DOWN: [f64; 45] = powers(false);

const fn powers(up: bool) -> [f64; 45] {
    let mut table = [1.0; 45];
    let mut k = 1;
    while k <= 22 {
        let (at, before) = if up { (22 + k, 21 + k) } else { (22 - k, 23 - k) };
        // Exact up to 10^22.
        table[at] = table[before] * 10.0;
        k += 1;
    }
    table
}

/// Bits of 2^52: or-ed to an integer below it they make the double of their sum.
const MAGIC: i64 = 0x4330_0000_0000_0000;

/// Four fields: the byte before each, and in the upper half the byte after it, as offsets.
type Places = [u64; 4];

/// Bytes before the end of a field that are read.
const REACH: isize = 16;

/// Fields `i` to `i + 3`, and [`REACH`] bytes before their ends; `None` if the text does not begin so early.
/// SAFETY: there must be so many fields ([`Fields::len`]).
#[inline(always)]
unsafe fn places(fields: &Fields<'_>, i: usize) -> Option<(Places, [*const u8; 4])> {
    let (mut places, mut at) = ([0; 4], [std::ptr::null(); 4]);
    let mut signs = 0;
    for k in 0..4 {
        // SAFETY: the fields are there, as the caller promises, so their ends are; the read needs no alignment.
        places[k] = unsafe {
            fields.ends().as_ptr().add((i + k) * fields.step()).cast::<u64>().read_unaligned()
        };
        let start = (fields.base() as isize).wrapping_add((places[k] >> 32) as isize) - REACH;
        signs |= start;
        at[k] = fields.text().as_ptr().wrapping_offset(start);
    }
    // The fields end in the text, as `Fields` promises, and if no start is negative not in its first bytes.
    (signs >= 0).then_some((places, at))
}

/// The eight bytes that end `BACK` bytes before each field does.
/// SAFETY: the pointers are those of [`places`], and `BACK` is at most 8.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn windows<const BACK: usize>(at: &[*const u8; 4]) -> __m256i {
    let mut windows = [0; 4];
    for k in 0..4 {
        // SAFETY: 16 bytes can be read, as the caller promises; the read needs no alignment.
        windows[k] = unsafe { at[k].add(8 - BACK).cast::<i64>().read_unaligned() };
    }
    _mm256_setr_epi64x(windows[0], windows[1], windows[2], windows[3])
}

/// Lengths of the fields, plus one.
#[target_feature(enable = "avx2")]
#[inline]
fn lengths(places: Places) -> __m256i {
    let [a, b, c, d] = places;
    let p = _mm256_setr_epi64x(a as i64, b as i64, c as i64, d as i64);
    let len = _mm256_sub_epi32(_mm256_srli_epi64::<32>(p), p);
    _mm256_and_si256(len, _mm256_set1_epi64x(0xFFFF_FFFF))
}

/// Lanes of digits, and what was found between them.
struct Digits {
    /// The digits, as a number.
    value: __m256i,
    /// 255 if there is a point, and so much more for each other one.
    points: __m256i,
    /// All bits where there is no point.
    no_point: __m256i,
    /// 255 times the number of digits after the point.
    places: __m256i,
    /// Not zero where there is a minus.
    minus: __m256i,
    /// All bits where there is no digit.
    empty: __m256i,
    /// Not zero where there is something else.
    bad: __m256i,
}

/// What the bytes of `valid` say; a minus may stand in the bytes of `first`.
#[target_feature(enable = "avx2")]
#[inline]
fn digits(window: __m256i, valid: __m256i, first: __m256i) -> Digits {
    let (zero, ones) = (_mm256_setzero_si256(), _mm256_set1_epi8(-1));
    let d = _mm256_sub_epi8(window, _mm256_set1_epi8(b'0' as i8));
    let is_digit = _mm256_cmpeq_epi8(_mm256_min_epu8(d, _mm256_set1_epi8(9)), d);
    let is_digit = _mm256_and_si256(is_digit, valid);
    let point = _mm256_cmpeq_epi8(window, _mm256_set1_epi8(b'.' as i8));
    let point = _mm256_and_si256(point, valid);
    let minus = _mm256_cmpeq_epi8(window, _mm256_set1_epi8(b'-' as i8));
    let minus = _mm256_and_si256(minus, first);
    let known = _mm256_or_si256(_mm256_or_si256(is_digit, point), minus);
    let d = _mm256_and_si256(d, is_digit);
    let no_point = _mm256_cmpeq_epi64(point, zero);
    // The bytes before the point, which are less significant in a lane; all if there is none.
    let before = _mm256_andnot_si256(point, _mm256_add_epi64(point, ones));
    let moved = _mm256_slli_epi64::<8>(_mm256_and_si256(d, before));
    let moved = _mm256_blendv_epi8(moved, d, no_point);
    let after = _mm256_andnot_si256(_mm256_or_si256(before, point), ones);
    let joined = _mm256_or_si256(moved, _mm256_andnot_si256(before, d));
    // Tens and ones, then hundreds and ones, then ten thousands and ones.
    let two = _mm256_maddubs_epi16(joined, _mm256_set1_epi16(0x010A));
    let four = _mm256_madd_epi16(two, _mm256_set1_epi32(0x0001_0064));
    let high = _mm256_mul_epu32(four, _mm256_set1_epi64x(10_000));
    Digits {
        value: _mm256_add_epi64(high, _mm256_srli_epi64::<32>(four)),
        points: _mm256_sad_epu8(point, zero),
        no_point,
        places: _mm256_sad_epu8(after, zero),
        minus,
        empty: _mm256_cmpeq_epi64(is_digit, zero),
        bad: _mm256_andnot_si256(known, valid),
    }
}

/// Lanes of integers below 2^52 as doubles.
#[target_feature(enable = "avx2")]
#[inline]
fn double(value: __m256i) -> __m256d {
    let magic = _mm256_set1_epi64x(MAGIC);
    let sum = _mm256_castsi256_pd(_mm256_or_si256(value, magic));
    _mm256_sub_pd(sum, _mm256_castsi256_pd(magic))
}

/// Ten to the power of [`Digits::places`].
#[target_feature(enable = "avx2")]
#[inline]
fn power(places: __m256i) -> __m256d {
    let table = _mm256_setr_epi32(
        POWERS[0], POWERS[1], POWERS[2], POWERS[3], POWERS[4], POWERS[5], POWERS[6], POWERS[7],
    );
    let low = _mm256_permutevar8x32_epi32(table, places);
    let magic = _mm256_set1_epi64x(MAGIC);
    let sum = _mm256_castsi256_pd(_mm256_blend_epi32::<0b1010_1010>(low, magic));
    _mm256_sub_pd(sum, _mm256_castsi256_pd(magic))
}

#[target_feature(enable = "avx2")]
#[inline]
fn any(v: __m256i) -> bool {
    _mm256_testz_si256(v, v) == 0
}

/// Four numbers without their exponents.
struct Mantissas {
    /// The digits, as exact doubles.
    value: __m256d,
    /// Ten to the number of digits after the point.
    power: __m256d,
    /// That number times 255.
    places: __m256i,
    /// Not zero where there is a minus.
    minus: __m256i,
}

/// The numbers with the sign bit set where `minus` is not zero.
#[target_feature(enable = "avx2")]
#[inline]
fn signed(v: __m256d, minus: __m256i) -> [f64; 4] {
    let plus = _mm256_cmpeq_epi64(minus, _mm256_setzero_si256());
    let sign = _mm256_andnot_si256(plus, _mm256_set1_epi64x(i64::MIN));
    bytemuck::cast(_mm256_xor_pd(v, _mm256_castsi256_pd(sign)))
}

/// Mantissas of up to 8 bytes, and if `SIGN` a minus before 8 bytes.
/// SAFETY: the pointers are those of [`places`].
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn small<const SIGN: bool>(places: Places, at: &[*const u8; 4]) -> Option<Mantissas> {
    // SAFETY: as the caller promises.
    let window = unsafe { windows::<0>(at) };
    let len = lengths(places);
    let shift = _mm256_sub_epi64(_mm256_set1_epi64x(72), _mm256_slli_epi64::<3>(len));
    let mut valid = _mm256_sllv_epi64(_mm256_set1_epi8(-1), shift);
    let mut first = _mm256_andnot_si256(_mm256_slli_epi64::<8>(valid), valid);
    // No byte at all, or more than eight.
    let mut bad = _mm256_and_si256(shift, _mm256_set1_epi64x(!63));
    let mut minus = _mm256_setzero_si256();
    if SIGN {
        // SAFETY: as the caller promises.
        let before = unsafe { windows::<1>(at) };
        let before = _mm256_and_si256(before, _mm256_set1_epi64x(0xFF));
        let before = _mm256_cmpeq_epi64(before, _mm256_set1_epi64x(i64::from(b'-')));
        let nine = _mm256_cmpeq_epi64(shift, _mm256_set1_epi64x(-8));
        minus = _mm256_and_si256(before, nine);
        valid = _mm256_or_si256(valid, minus);
        first = _mm256_andnot_si256(minus, first);
        bad = _mm256_andnot_si256(minus, bad);
    }
    let d = digits(window, valid, first);
    let bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(d.points, _mm256_set1_epi32(255)));
    let bad = _mm256_or_si256(_mm256_or_si256(bad, d.bad), d.empty);
    if any(bad) {
        return None;
    }
    Some(Mantissas {
        value: double(d.value),
        power: power(d.places),
        places: d.places,
        minus: _mm256_or_si256(minus, d.minus),
    })
}

/// Mantissas of up to 16 bytes.
/// SAFETY: the pointers are those of [`places`].
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn large(places: Places, at: &[*const u8; 4]) -> Option<Mantissas> {
    // SAFETY: as the caller promises.
    let (high, low) = unsafe { (windows::<8>(at), windows::<0>(at)) };
    let (zero, ones) = (_mm256_setzero_si256(), _mm256_set1_epi8(-1));
    let len = _mm256_slli_epi64::<3>(lengths(places));
    // Shifts of 64 and more leave nothing, and those of the low lanes are at least 0.
    let shift_low = _mm256_max_epi32(_mm256_sub_epi32(_mm256_set1_epi64x(72), len), zero);
    let shift_high = _mm256_sub_epi64(_mm256_set1_epi64x(136), len);
    let valid_low = _mm256_sllv_epi64(ones, shift_low);
    let valid_high = _mm256_sllv_epi64(ones, shift_high);
    let first_high = _mm256_andnot_si256(_mm256_slli_epi64::<8>(valid_high), valid_high);
    let first_low = _mm256_andnot_si256(_mm256_slli_epi64::<8>(valid_low), valid_low);
    let first_low = _mm256_and_si256(first_low, _mm256_cmpeq_epi64(valid_high, zero));
    let (low, high) = (digits(low, valid_low, first_low), digits(high, valid_high, first_high));
    let points = _mm256_add_epi64(low.points, high.points);
    let ten7 = _mm256_castpd_si256(_mm256_set1_pd(1e7));
    let ten8 = _mm256_castpd_si256(_mm256_set1_pd(1e8));
    // A point in the low lane leaves room for seven digits.
    let weight = _mm256_castsi256_pd(_mm256_blendv_epi8(ten7, ten8, low.no_point));
    let value = _mm256_add_pd(_mm256_mul_pd(double(high.value), weight), double(low.value));
    // A sum that was rounded is 2^53 at least.
    let limit = _mm256_set1_pd((1u64 << 53) as f64);
    let many = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_GE_OQ>(value, limit));
    let bad = _mm256_and_si256(shift_high, _mm256_set1_epi64x(!127));
    let bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(points, _mm256_set1_epi32(255)));
    let bad = _mm256_or_si256(bad, _mm256_and_si256(low.empty, high.empty));
    let bad = _mm256_or_si256(_mm256_or_si256(bad, many), _mm256_or_si256(low.bad, high.bad));
    if any(bad) {
        return None;
    }
    // Eight digits more after a point in the high lane.
    let one = _mm256_castpd_si256(_mm256_set1_pd(1.0));
    let eight = _mm256_castsi256_pd(_mm256_blendv_epi8(ten8, one, high.no_point));
    let power = _mm256_mul_pd(power(low.places), _mm256_mul_pd(power(high.places), eight));
    let eight = _mm256_andnot_si256(high.no_point, _mm256_set1_epi64x(8 * 255));
    Some(Mantissas {
        value,
        power,
        places: _mm256_add_epi64(_mm256_add_epi64(low.places, high.places), eight),
        minus: _mm256_or_si256(low.minus, high.minus),
    })
}

/// Makes a function that reads the first fields as long as they are of its form and gives how many were read.
macro_rules! plain {
    ($(#[$doc:meta])* $name:ident, $mantissas:expr) => {
        $(#[$doc])*
        #[target_feature(enable = "avx2")]
        pub fn $name(fields: &Fields<'_>, out: &mut [f64]) -> usize {
            let n = fields.len().min(out.len());
            let mut done = 0;
            for four in out[..n].as_chunks_mut::<4>().0 {
                // SAFETY: so many fields are there, and the pointers are those of the places.
                let m = unsafe {
                    let Some((places, at)) = places(fields, done) else { break };
                    $mantissas(places, &at)
                };
                let Some(m) = m else { break };
                *four = signed(_mm256_div_pd(m.value, m.power), m.minus);
                done += 4;
            }
            done
        }
    };
}

plain!(
    /// Reads fields of at most 8 bytes.
    narrow,
    small::<false>
);
plain!(
    /// Reads fields of at most 8 bytes, and of 9 bytes with a minus.
    minus,
    small::<true>
);
plain!(
    /// Reads fields of at most 16 bytes.
    wide,
    large
);

/// The exponent before `end`, its mark included: how many bytes it takes, and what it says.
#[inline(always)]
fn exponent_before(text: &[u8], end: usize) -> Option<(u32, i32)> {
    let [a, b, c, d] = *text.get(end.wrapping_sub(4)..)?.first_chunk()?;
    let digit = |b: u8| b.wrapping_sub(b'0');
    let mark = |b: u8| b | 0x20 == b'e';
    let one = digit(d);
    if one > 9 {
        return None;
    }
    let one = i32::from(one);
    let ten = |c: u8| 10 * i32::from(digit(c)) + one;
    match (a, b, c) {
        (_, _, c) if mark(c) => Some((2, one)),
        (_, b, b'+') if mark(b) => Some((3, one)),
        (_, b, b'-') if mark(b) => Some((3, -one)),
        (_, b, c) if mark(b) && digit(c) < 10 => Some((3, ten(c))),
        (a, b'+', c) if mark(a) && digit(c) < 10 => Some((4, ten(c))),
        (a, b'-', c) if mark(a) && digit(c) < 10 => Some((4, -ten(c))),
        _ => None,
    }
}

/// Makes a function that reads the first fields as long as they are mantissas with an exponent of one or two
/// digits and gives how many were read.
macro_rules! scientific {
    ($(#[$doc:meta])* $name:ident, $mantissas:expr) => {
        $(#[$doc])*
        #[target_feature(enable = "avx2")]
        pub fn $name(fields: &Fields<'_>, out: &mut [f64]) -> usize {
            let n = fields.len().min(out.len());
            let mut done = 0;
            for four in out[..n].as_chunks_mut::<4>().0 {
                // SAFETY: so many fields are there.
                let Some((mut places, _)) = (unsafe { places(fields, done) }) else { break };
                let Some((exponents, at)) = exponents(fields, &mut places) else { break };
                // SAFETY: 16 bytes can be read at `at`, as `exponents` promises.
                let Some(m) = (unsafe { $mantissas(places, &at) }) else { break };
                let Some(v) = scaled(&m, exponents) else { break };
                *four = v;
                done += 4;
            }
            done
        }
    };
}

scientific!(
    /// Reads mantissas of at most 8 bytes, of 9 bytes with a minus.
    short_scientific,
    small::<true>
);
scientific!(
    /// Reads mantissas of at most 16 bytes.
    long_scientific,
    large
);

/// Cuts the exponents off; gives them and where the last 16 bytes before them begin.
#[inline(always)]
fn exponents(fields: &Fields<'_>, places: &mut Places) -> Option<([i32; 4], [*const u8; 4])> {
    let mut exponents = [0; 4];
    let mut at = [std::ptr::null(); 4];
    for i in 0..4 {
        let end = (places[i] >> 32) as u32;
        let (length, exponent) = exponent_before(fields.text(), fields.base() + end as usize)?;
        let end = end.wrapping_sub(length);
        // A mantissa that begins before the field is refused for its length.
        places[i] = (places[i] & 0xFFFF_FFFF) | u64::from(end) << 32;
        exponents[i] = exponent;
        let start = (fields.base() + end as usize).checked_sub(REACH as usize)?;
        at[i] = fields.text().get(start..start + REACH as usize)?.as_ptr();
    }
    Some((exponents, at))
}

/// The numbers with these exponents, if their powers of ten are exact.
#[target_feature(enable = "avx2")]
#[inline]
fn scaled(m: &Mantissas, exponents: [i32; 4]) -> Option<[f64; 4]> {
    let after: [u64; 4] = bytemuck::cast(m.places);
    let (mut up, mut down) = ([0.0; 4], [0.0; 4]);
    for i in 0..4 {
        // 255 k is 256 k - k, so that its low byte is -k.
        let k = i64::from(exponents[i]) - i64::from((after[i] as u8).wrapping_neg());
        let at = usize::try_from(k + 22).ok()?;
        up[i] = *UP.get(at)?;
        down[i] = *DOWN.get(at)?;
    }
    let up = _mm256_setr_pd(up[0], up[1], up[2], up[3]);
    let down = _mm256_setr_pd(down[0], down[1], down[2], down[3]);
    Some(signed(_mm256_div_pd(_mm256_mul_pd(m.value, up), down), m.minus))
}

#[cfg(test)]
mod tests {
    use super::super::fields_of::Ends;
    use super::super::number;
    use super::super::simd::{self, Form, Vector, Work};
    use proptest::prelude::*;
    use stead_simd::Vectors;

    #[derive(Clone, Copy)]
    struct Four<'a> {
        text: &'a [u8],
        ends: &'a [u32],
        form: Form,
    }

    impl Work for Four<'_> {
        type Out = Option<[f64; 4]>;

        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> Self::Out {
            let fields = Ends::new(self.text, 16, self.ends).column(0, 1);
            let mut out = [0.0; 4];
            (simd::decimals(vector, &fields, self.form, &mut out) == 4).then_some(out)
        }
    }

    /// Four fields after 16 bytes of something else, as each sort of vectors reads them.
    fn read(fields: &[String; 4], form: Form) -> Vec<Option<[f64; 4]>> {
        let mut text = b"1.2.3,-4e567,8-9".to_vec();
        let mut ends = vec![u32::MAX];
        for f in fields {
            text.extend_from_slice(f.as_bytes());
            ends.push((text.len() - 16) as u32);
            text.push(b',');
        }
        let four = Four { text: &text, ends: &ends, form };
        let all = Vectors::all().into_iter().filter(|v| !matches!(v, Vectors::Portable(_)));
        all.map(|v| v.run(four)).collect()
    }

    fn four<S: Strategy<Value = String>>(s: S) -> impl Strategy<Value = [String; 4]> {
        prop::array::uniform4(s)
    }

    fn with_point(most: usize) -> impl Strategy<Value = String> {
        let digits = prop::collection::vec(prop::char::range('0', '9'), 1..=most);
        (any::<bool>(), digits, 0..=2 * most).prop_map(move |(minus, mut s, point)| {
            if point <= s.len() {
                s.insert(point, '.');
            }
            s.truncate(most - usize::from(minus));
            "-".chars().take(usize::from(minus)).chain(s).collect()
        })
    }

    fn check(fields: &[String; 4], form: Form) -> Result<(), TestCaseError> {
        let want = fields.each_ref().map(|f| number::parse(f.as_bytes()).map(|v| v.0.to_bits()));
        for got in read(fields, form) {
            let got = got.map(|v| v.map(f64::to_bits));
            prop_assert_eq!(got.map(|g| g.map(Some)), Some(want));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn plain_decimals_are_read_in_their_form(
            narrow in four(with_point(8)),
            wide in four(with_point(15)),
            digits in four("-?[0-9]{1,14}"),
            exponent in four("[eE][-+]?[0-9]|[eE][+]?0[0-9]|[eE]-0[0-7]"),
            minus in four(with_point(8).prop_map(|s| "-".to_string() + s.trim_start_matches('-'))),
        ) {
            check(&narrow, Form::Narrow)?;
            check(&narrow, Form::Minus)?;
            check(&minus, Form::Minus)?;
            check(&narrow, Form::Wide)?;
            check(&wide, Form::Wide)?;
            check(&digits, Form::Wide)?;
            check(&with_exponent(&narrow, &exponent), Form::ShortScientific)?;
            check(&with_exponent(&minus, &exponent), Form::ShortScientific)?;
            check(&with_exponent(&minus, &exponent), Form::LongScientific)?;
        }

        #[test]
        fn other_fields_are_refused_or_right(
            fields in four("[-+.eE0-9x ,]{0,19}|-?[0-9]{7,17}(\\.[0-9]{0,9})?|[0-9.]{1,9}[eE][-+]?[0-9]{0,3}"),
        ) {
            for form in Form::ALL {
                for got in read(&fields, form).into_iter().flatten() {
                    for (v, f) in got.iter().zip(&fields) {
                        let want = number::parse(f.as_bytes()).map(|v| v.0.to_bits());
                        prop_assert_eq!(Some(v.to_bits()), want, "{:?} {:?}", f, form);
                    }
                }
            }
        }
    }

    fn with_exponent(mantissas: &[String; 4], exponents: &[String; 4]) -> [String; 4] {
        std::array::from_fn(|i| mantissas[i].clone() + &exponents[i])
    }
}
