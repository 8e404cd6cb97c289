//! Four decimals at once, in the four 64-bit lanes of a vector.
//!
//! A field's last eight bytes go into a lane, so that its last byte is the lane's top byte. Bytes before the
//! field are masked, a sign and a point are found by comparison, the digits before the point move up over
//! it, and pairs of digits are added up to pairs of pairs. Digits and power of ten are exact in f64 and
//! one division rounds (see [`super::number`]). Fields of up to 16 bytes take two such lanes.
//!
//! No branch depends on what stands in the fields, but for the one that looks whether all went well.

use super::simd::Places;
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

/// Lanes of digits, and what was found between them.
struct Digits {
    /// The digits, as a number.
    value: __m256i,
    /// 0xFF where the point was.
    point: __m256i,
    /// All bits where there is no point.
    no_point: __m256i,
    /// 255 times the number of digits after the point, in the low bits of each lane.
    places: __m256i,
    /// Not zero where there is a minus.
    minus: __m256i,
    /// All bits where there is no digit.
    empty: __m256i,
    /// Not zero where there is something else.
    bad: __m256i,
}

/// What the bytes of `valid` say.
#[target_feature(enable = "avx2")]
#[inline]
fn digits(window: __m256i, valid: __m256i, first: __m256i) -> Digits {
    let (zero, ones) = (_mm256_setzero_si256(), _mm256_set1_epi8(-1));
    let d = _mm256_sub_epi8(window, _mm256_set1_epi8(b'0' as i8));
    let is_digit = _mm256_cmpeq_epi8(_mm256_min_epu8(d, _mm256_set1_epi8(9)), d);
    let point = _mm256_cmpeq_epi8(window, _mm256_set1_epi8(b'.' as i8));
    let point = _mm256_and_si256(point, valid);
    let minus = _mm256_cmpeq_epi8(window, _mm256_set1_epi8(b'-' as i8));
    let minus = _mm256_and_si256(minus, first);
    let known = _mm256_or_si256(_mm256_or_si256(is_digit, point), minus);
    let bad = _mm256_andnot_si256(known, valid);
    let is_digit = _mm256_and_si256(is_digit, valid);
    let d = _mm256_and_si256(d, is_digit);
    let no_point = _mm256_cmpeq_epi64(point, zero);
    // The bytes before the point, which are less significant in a lane.
    let before = _mm256_andnot_si256(point, _mm256_add_epi64(point, ones));
    let before = _mm256_andnot_si256(no_point, before);
    let moved = _mm256_slli_epi64::<8>(_mm256_and_si256(d, before));
    let joined = _mm256_or_si256(moved, _mm256_andnot_si256(before, d));
    let others = _mm256_or_si256(_mm256_or_si256(before, point), no_point);
    let after = _mm256_andnot_si256(others, ones);
    // Tens and ones, then hundreds and ones, then ten thousands and ones.
    let two = _mm256_maddubs_epi16(joined, _mm256_set1_epi16(0x010A));
    let four = _mm256_madd_epi16(two, _mm256_set1_epi32(0x0001_0064));
    let high = _mm256_mul_epu32(four, _mm256_set1_epi64x(10_000));
    Digits {
        value: _mm256_add_epi64(high, _mm256_srli_epi64::<32>(four)),
        point,
        no_point,
        places: _mm256_sad_epu8(after, zero),
        minus,
        empty: _mm256_cmpeq_epi64(is_digit, zero),
        bad,
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

/// Lengths of the fields, plus one.
#[target_feature(enable = "avx2")]
#[inline]
fn lengths(places: Places<'_>) -> __m256i {
    let pair = |p: &[u32; 2]| i64::from(p[0]) | i64::from(p[1]) << 32;
    let p = _mm256_setr_epi64x(pair(places[0]), pair(places[1]), pair(places[2]), pair(places[3]));
    let len = _mm256_sub_epi32(_mm256_srli_epi64::<32>(p), p);
    _mm256_and_si256(len, _mm256_set1_epi64x(0xFFFF_FFFF))
}

/// The eight bytes before `ends`, minus `back`.
#[target_feature(enable = "avx2")]
#[inline]
fn windows(text: &[u8], base: usize, places: Places<'_>, back: usize) -> Option<__m256i> {
    let window = |p: &[u32; 2]| -> Option<i64> {
        let at = (base + p[1] as usize).wrapping_sub(8 + back);
        Some(i64::from_le_bytes(*text.get(at..)?.first_chunk()?))
    };
    let [a, b, c, d] = places;
    Some(_mm256_setr_epi64x(window(a)?, window(b)?, window(c)?, window(d)?))
}

#[target_feature(enable = "avx2")]
#[inline]
fn any(v: __m256i) -> bool {
    _mm256_testz_si256(v, v) == 0
}

/// The double with the sign bit set where `minus` is not zero.
#[target_feature(enable = "avx2")]
#[inline]
fn signed(v: __m256d, minus: __m256i) -> [f64; 4] {
    let plus = _mm256_cmpeq_epi64(minus, _mm256_setzero_si256());
    let sign = _mm256_andnot_si256(plus, _mm256_set1_epi64x(i64::MIN));
    bytemuck::cast(_mm256_xor_pd(v, _mm256_castsi256_pd(sign)))
}

/// Fields of the form `Form::Narrow`.
#[target_feature(enable = "avx2")]
#[inline]
pub fn narrow(text: &[u8], base: usize, places: Places<'_>) -> Option<[f64; 4]> {
    let window = windows(text, base, places, 0)?;
    let len = lengths(places);
    let shift = _mm256_sub_epi64(_mm256_set1_epi64x(72), _mm256_slli_epi64::<3>(len));
    let valid = _mm256_sllv_epi64(_mm256_set1_epi8(-1), shift);
    let first = _mm256_andnot_si256(_mm256_slli_epi64::<8>(valid), valid);
    let d = digits(window, valid, first);
    let points = _mm256_sad_epu8(d.point, _mm256_setzero_si256());
    let bad = _mm256_and_si256(shift, _mm256_set1_epi64x(!63));
    let bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(points, _mm256_set1_epi32(255)));
    let bad = _mm256_or_si256(_mm256_or_si256(bad, d.bad), d.empty);
    if any(bad) {
        return None;
    }
    Some(signed(_mm256_div_pd(double(d.value), power(d.places)), d.minus))
}

/// Mantissas of up to 16 bytes.
struct Mantissas {
    /// The digits, as exact doubles.
    value: __m256d,
    low: Digits,
    high: Digits,
}

#[target_feature(enable = "avx2")]
#[inline]
fn mantissas(text: &[u8], base: usize, places: Places<'_>) -> Option<Mantissas> {
    let (low, high) = (windows(text, base, places, 0)?, windows(text, base, places, 8)?);
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
    let points = _mm256_sad_epu8(low.point, zero);
    let points = _mm256_add_epi64(points, _mm256_sad_epu8(high.point, zero));
    let ten7 = _mm256_castpd_si256(_mm256_set1_pd(1e7));
    let ten8 = _mm256_castpd_si256(_mm256_set1_pd(1e8));
    // A point in the low lane leaves room for seven digits.
    let weight = _mm256_castsi256_pd(_mm256_blendv_epi8(ten7, ten8, low.no_point));
    let value = _mm256_add_pd(_mm256_mul_pd(double(high.value), weight), double(low.value));
    // A sum that was rounded is 2^53 at least.
    let limit = _mm256_set1_pd((1u64 << 53) as f64);
    let large = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_GE_OQ>(value, limit));
    let bad = _mm256_and_si256(shift_high, _mm256_set1_epi64x(!127));
    let bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(points, _mm256_set1_epi32(255)));
    let bad = _mm256_or_si256(bad, _mm256_and_si256(low.empty, high.empty));
    let bad = _mm256_or_si256(_mm256_or_si256(bad, large), _mm256_or_si256(low.bad, high.bad));
    if any(bad) {
        return None;
    }
    Some(Mantissas { value, low, high })
}

/// Fields of the form `Form::Wide`.
#[target_feature(enable = "avx2")]
#[inline]
pub fn wide(text: &[u8], base: usize, places: Places<'_>) -> Option<[f64; 4]> {
    let m = mantissas(text, base, places)?;
    let one = _mm256_castpd_si256(_mm256_set1_pd(1.0));
    let ten8 = _mm256_castpd_si256(_mm256_set1_pd(1e8));
    let above = _mm256_castsi256_pd(_mm256_blendv_epi8(ten8, one, m.high.no_point));
    let power = _mm256_mul_pd(power(m.low.places), _mm256_mul_pd(power(m.high.places), above));
    let minus = _mm256_or_si256(m.low.minus, m.high.minus);
    Some(signed(_mm256_div_pd(m.value, power), minus))
}

/// The end of the mantissa before `end`, and the exponent.
#[inline(always)]
fn exponent(text: &[u8], end: usize) -> Option<(usize, i32)> {
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
        (_, _, c) if mark(c) => Some((end - 2, one)),
        (_, b, b'+') if mark(b) => Some((end - 3, one)),
        (_, b, b'-') if mark(b) => Some((end - 3, -one)),
        (_, b, c) if mark(b) && digit(c) < 10 => Some((end - 3, ten(c))),
        (a, b'+', c) if mark(a) && digit(c) < 10 => Some((end - 4, ten(c))),
        (a, b'-', c) if mark(a) && digit(c) < 10 => Some((end - 4, -ten(c))),
        _ => None,
    }
}

/// Fields of the form `Form::Scientific`.
#[target_feature(enable = "avx2")]
#[inline]
pub fn scientific(text: &[u8], base: usize, places: Places<'_>) -> Option<[f64; 4]> {
    let mut cut = [[0u32; 2]; 4];
    let mut exponents = [0i32; 4];
    for i in 0..4 {
        let end = base + places[i][1] as usize;
        let (mantissa, e) = exponent(text, end)?;
        // The same distance from the base; a field that is too short is refused for its length.
        cut[i] = [places[i][0], places[i][1].wrapping_sub((end - mantissa) as u32)];
        exponents[i] = e;
    }
    let [a, b, c, d] = &cut;
    let m = mantissas(text, base, [a, b, c, d])?;
    // 255 for each digit after the point, 8 of them in the low lane if it is in the high one.
    let eight = _mm256_andnot_si256(m.high.no_point, _mm256_set1_epi64x(8 * 255));
    let after = _mm256_add_epi64(_mm256_add_epi64(m.low.places, m.high.places), eight);
    let after: [u64; 4] = bytemuck::cast(after);
    let (mut up, mut down) = ([0.0; 4], [0.0; 4]);
    for i in 0..4 {
        // n = 255 k is 256 k - k, so that its low byte is -k.
        let k = i64::from(exponents[i]) - i64::from((after[i] as u8).wrapping_neg());
        let at = usize::try_from(k + 22).ok()?;
        up[i] = *UP.get(at)?;
        down[i] = *DOWN.get(at)?;
    }
    let up = _mm256_setr_pd(up[0], up[1], up[2], up[3]);
    let down = _mm256_setr_pd(down[0], down[1], down[2], down[3]);
    let minus = _mm256_or_si256(m.low.minus, m.high.minus);
    Some(signed(_mm256_div_pd(_mm256_mul_pd(m.value, up), down), minus))
}

#[cfg(test)]
mod tests {
    use super::super::number;
    use super::super::simd::{self, Form, Vector, Work};
    use proptest::prelude::*;

    struct Four<'a> {
        text: &'a [u8],
        ends: &'a [u32],
        form: Form,
    }

    impl Work for Four<'_> {
        type Out = Option<[f64; 4]>;

        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> Self::Out {
            let e = |i: usize| self.ends[i..].first_chunk().expect("two ends");
            vector.four(self.text, 16, [e(0), e(1), e(2), e(3)], self.form)
        }
    }

    /// Four fields after 16 bytes of something else.
    fn read(fields: &[String; 4], form: Form) -> Option<[f64; 4]> {
        let mut text = b"1.2.3,-4e567,8-9".to_vec();
        let mut ends = vec![u32::MAX];
        for f in fields {
            text.extend_from_slice(f.as_bytes());
            ends.push((text.len() - 16) as u32);
            text.push(b',');
        }
        simd::dispatch(Four { text: &text, ends: &ends, form })
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
        if !is_x86_feature_detected!("avx2") {
            return Ok(());
        }
        let got = read(fields, form).map(|v| v.map(f64::to_bits));
        let want = fields.each_ref().map(|f| number::parse(f.as_bytes()).map(|v| v.0.to_bits()));
        prop_assert_eq!(got.map(|g| g.map(Some)), Some(want));
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
        ) {
            check(&narrow, Form::Narrow)?;
            check(&narrow, Form::Wide)?;
            check(&wide, Form::Wide)?;
            check(&digits, Form::Wide)?;
            let mut scientific = with_exponent(&narrow, &exponent);
            check(&scientific, Form::Scientific)?;
            scientific.swap(0, 2);
            check(&scientific, Form::Scientific)?;
        }

        #[test]
        fn other_fields_are_refused_or_right(
            fields in four("[-+.eE0-9x ,]{0,19}|-?[0-9]{7,17}(\\.[0-9]{0,9})?|[0-9.]{1,9}[eE][-+]?[0-9]{0,3}"),
        ) {
            for form in [Form::Narrow, Form::Wide, Form::Scientific] {
                let Some(got) = read(&fields, form) else { continue };
                for (v, f) in got.iter().zip(&fields) {
                    let want = number::parse(f.as_bytes()).map(|v| v.0.to_bits());
                    prop_assert_eq!(Some(v.to_bits()), want, "{:?} {:?}", f, form);
                }
            }
        }
    }

    fn with_exponent(mantissas: &[String; 4], exponents: &[String; 4]) -> [String; 4] {
        std::array::from_fn(|i| mantissas[i].clone() + &exponents[i])
    }
}
