//! Pixels on their way to other ranks: as little as gives the same bits.
//!
//! Pixels in which nothing is seen take a bit. Each channel of the others is a difference to what its neighbours let expect, as
//! whole numbers of their bits, in a code of Golomb and Rice whose parameter follows the differences (as in JPEG-LS, ISO/IEC
//! 14495-1). A pixel takes a bit at least, so that what comes can be told from its length to need no more memory than it may.

/// Ones before what is told in full.
const MOST: u32 = 20;

/// Stretches of pixels in lines from one on: where each begins, and its pixels.
pub type Lines<P> = Vec<(usize, Vec<P>)>;

/// The bytes of lines, the first of which is `y`. Pixels become the bits of their channels.
pub fn put<'l, P: Copy + 'l, const N: usize>(
    y: usize,
    lines: impl Iterator<Item = (usize, &'l [P])> + Clone,
    bits: impl Fn(P) -> [u32; N],
) -> Vec<u8> {
    let mut out = Vec::new();
    number(y, &mut out);
    number(lines.clone().count(), &mut out);
    for (x, pixels) in lines.clone() {
        number(pixels.len(), &mut out);
        if !pixels.is_empty() {
            number(x, &mut out);
        }
    }
    let mut writer = Writer { out, word: 0, held: 0 };
    let (mut code, mut above) = (Code::new(), (0, Vec::new()));
    for (x, pixels) in lines {
        let mut line: Vec<[u32; N]> = Vec::with_capacity(pixels.len());
        for (i, pixel) in pixels.iter().enumerate() {
            let pixel = bits(*pixel);
            let seen = pixel != [0; N];
            writer.put(u32::from(seen), 1);
            if seen {
                let expected = code.expected(&line, &above, x + i);
                code.put(&pixel, &expected, &mut writer);
            }
            line.push(pixel);
        }
        above = (x, line);
    }
    writer.end()
}

/// The first line, and lines, from bytes that may be anything; `None` for what [`put`] has not made.
pub fn take<P, const N: usize>(
    bytes: &[u8],
    pixel: impl Fn([u32; N]) -> Option<P>,
) -> Option<(usize, Lines<P>)> {
    let mut rest = bytes;
    let y = take_number(&mut rest)?;
    let count = take_number(&mut rest)?;
    if count > rest.len() {
        return None;
    }
    let mut stretches = Vec::with_capacity(count);
    let mut pixels = 0usize;
    for _ in 0..count {
        let len = take_number(&mut rest)?;
        let x = if len > 0 { take_number(&mut rest)? } else { 0 };
        x.checked_add(len)?;
        pixels = pixels.checked_add(len)?;
        stretches.push((x, len));
    }
    // A bit each, at least.
    if pixels > rest.len().checked_mul(8)? {
        return None;
    }
    let mut reader = Reader { rest, word: 0, held: 0 };
    let (mut code, mut above) = (Code::new(), (0, Vec::new()));
    let mut lines = Vec::with_capacity(count);
    for (x, len) in stretches {
        let mut line: Vec<[u32; N]> = Vec::with_capacity(len);
        for i in 0..len {
            let pixel = match reader.take(1)? {
                0 => [0; N],
                _ => {
                    let expected = code.expected(&line, &above, x + i);
                    code.take(&expected, &mut reader)?
                }
            };
            line.push(pixel);
        }
        lines.push((x, line.iter().map(|p| pixel(*p)).collect::<Option<_>>()?));
        above = (x, line);
    }
    reader.is_at_end().then_some((y, lines))
}

/// What the differences were so far.
struct Code<const N: usize> {
    /// Eight times the mean length of the differences of each channel, in bits.
    lengths: [u32; N],
    /// The pixel before this one in which something is seen.
    last: [u32; N],
}

impl<const N: usize> Code<N> {
    fn new() -> Code<N> {
        Code { lengths: [64; N], last: [0; N] }
    }

    /// What the neighbours of the next pixel of a line let expect.
    fn expected(&self, line: &[[u32; N]], above: &(usize, Vec<[u32; N]>), x: usize) -> [u32; N] {
        let seen = |p: &&[u32; N]| **p != [0; N];
        let up = |x: usize| x.checked_sub(above.0).and_then(|i| above.1.get(i)).filter(seen);
        let left = line.last().filter(seen);
        match (left, up(x), x.checked_sub(1).and_then(up)) {
            (Some(left), Some(up), Some(corner)) => {
                // As if it all lay in a plane.
                std::array::from_fn(|i| left[i].wrapping_add(up[i]).wrapping_sub(corner[i]))
            }
            (Some(near), ..) | (None, Some(near), _) => *near,
            _ => self.last,
        }
    }

    fn parameter(&self, channel: usize) -> u32 {
        (self.lengths[channel] / 8).saturating_sub(1).min(30)
    }

    fn learn(&mut self, channel: usize, difference: u32) {
        let length = u32::BITS - difference.leading_zeros();
        self.lengths[channel] = self.lengths[channel] - self.lengths[channel] / 8 + length;
    }

    fn put(&mut self, pixel: &[u32; N], expected: &[u32; N], writer: &mut Writer) {
        for (i, (own, expected)) in pixel.iter().zip(expected).enumerate() {
            let apart = own.wrapping_sub(*expected).cast_signed();
            // Small numbers for what is near, on either side.
            let difference = ((apart << 1) ^ (apart >> 31)).cast_unsigned();
            let k = self.parameter(i);
            match difference >> k {
                ones if ones < MOST => {
                    writer.put((1 << ones) - 1, ones + 1);
                    writer.put(difference & ((1 << k) - 1), k);
                }
                _ => {
                    writer.put((1 << MOST) - 1, MOST);
                    writer.put(difference, 32);
                }
            }
            self.learn(i, difference);
        }
        self.last = *pixel;
    }

    fn take(&mut self, expected: &[u32; N], reader: &mut Reader<'_>) -> Option<[u32; N]> {
        let mut pixel = [0; N];
        for (i, expected) in expected.iter().enumerate() {
            let k = self.parameter(i);
            let difference = match reader.ones()? {
                MOST => reader.take(32)?,
                ones => ones << k | reader.take(k)?,
            };
            self.learn(i, difference);
            let apart = (difference >> 1) ^ (difference & 1).wrapping_neg();
            pixel[i] = expected.wrapping_add(apart);
        }
        self.last = pixel;
        Some(pixel)
    }
}

/// Bits to bytes, the lowest ones first.
struct Writer {
    out: Vec<u8>,
    word: u64,
    /// Bits of the word; fewer than eight between two calls.
    held: u32,
}

impl Writer {
    /// At most 32 bits.
    fn put(&mut self, bits: u32, count: u32) {
        self.word |= u64::from(bits) << self.held;
        self.held += count;
        while self.held >= 8 {
            self.out.push(self.word as u8);
            self.word >>= 8;
            self.held -= 8;
        }
    }

    fn end(mut self) -> Vec<u8> {
        if self.held > 0 {
            self.out.push(self.word as u8);
        }
        self.out
    }
}

struct Reader<'b> {
    rest: &'b [u8],
    word: u64,
    held: u32,
}

impl Reader<'_> {
    /// At most 32 bits.
    fn take(&mut self, count: u32) -> Option<u32> {
        while self.held < count {
            let (byte, rest) = self.rest.split_first()?;
            self.word |= u64::from(*byte) << self.held;
            (self.rest, self.held) = (rest, self.held + 8);
        }
        let bits = self.word & ((1 << count) - 1);
        self.word >>= count;
        self.held -= count;
        u32::try_from(bits).ok()
    }

    /// How many ones come before a zero, which goes too; at most [`MOST`], without one.
    fn ones(&mut self) -> Option<u32> {
        let mut count = 0;
        loop {
            // Bits that are not there are zeros.
            let run = self.word.trailing_ones().min(MOST - count);
            count += run;
            self.word >>= run;
            self.held -= run;
            if count == MOST {
                return Some(count);
            }
            if self.held > 0 {
                self.take(1)?;
                return Some(count);
            }
            let (byte, rest) = self.rest.split_first()?;
            (self.rest, self.word, self.held) = (rest, u64::from(*byte), 8);
        }
    }

    /// Nothing but what fills the last byte is left.
    fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.held < 8 && self.word == 0
    }
}

/// Seven bits to a byte.
fn number(n: usize, out: &mut Vec<u8>) {
    let mut n = n as u64;
    while n > 0x7F {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take_number(from: &mut &[u8]) -> Option<usize> {
    let mut n = 0u64;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        n |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(n).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pixel = [u32; 4];

    fn sent(y: usize, lines: &Lines<Pixel>) -> Vec<u8> {
        put(y, lines.iter().map(|(x, p)| (*x, p.as_slice())), |p| p)
    }

    fn got(bytes: &[u8]) -> Option<(usize, Lines<Pixel>)> {
        take(bytes, Some)
    }

    fn pixel() -> impl Strategy<Value = Pixel> {
        prop_oneof![
            Just([0; 4]),
            any::<Pixel>(),
            any::<[f32; 4]>().prop_map(|p| p.map(f32::to_bits)),
            (0u32..99).prop_map(|n| [0x3F00_0000 + n; 4]),
        ]
    }

    proptest! {
        #[test]
        fn pixels_come_as_they_were_sent(
            y in 0usize..1 << 40,
            lines in prop::collection::vec((1usize..99, prop::collection::vec(pixel(), 0..20)), 0..9),
        ) {
            // A line without pixels begins nowhere.
            let lines: Lines<Pixel> =
                lines.into_iter().map(|(x, p)| (if p.is_empty() { 0 } else { x }, p)).collect();
            let bytes = sent(y, &lines);
            prop_assert_eq!(got(&bytes), Some((y, lines)));
            for len in 0..bytes.len() {
                prop_assert_eq!(got(&bytes[..len]), None);
            }
        }

        #[test]
        fn no_bytes_panic_or_take_more_memory_than_they_may(
            bytes in prop::collection::vec(prop_oneof![Just(0xFF), Just(0), any::<u8>()], 0..200),
        ) {
            if let Some((y, lines)) = got(&bytes) {
                let pixels: usize = lines.iter().map(|(_, p)| p.len()).sum();
                prop_assert!(lines.len() <= bytes.len() && pixels <= 8 * bytes.len());
                prop_assert_eq!(got(&sent(y, &lines)), Some((y, lines)));
            }
        }
    }

    #[test]
    fn smooth_pictures_are_less_and_empty_ones_hardly_anything() {
        let line = |y: usize| {
            let value = |x: usize| ((x as f32 * 0.02).sin() * (y as f32 * 0.03).cos() + 2.0) * 0.1;
            (0..300).map(|x| [1.0, 0.7, 0.2, 0.9].map(|c| (value(x) * c).to_bits())).collect()
        };
        let lines: Lines<Pixel> = (0..100).map(|y| (5, line(y))).collect();
        let bytes = sent(0, &lines);
        assert!(bytes.len() < 300 * 100 * 16 / 2, "{}", bytes.len());
        let empty: Lines<Pixel> = (0..100).map(|_| (0, vec![[0; 4]; 800])).collect();
        assert!(sent(0, &empty).len() < 100 * 100 + 600);
    }
}
