//! Numbers in text: what is read is the double that the standard library reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_format::delimited::number;

fn reference(field: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(field.trim_ascii()).ok()?;
    text.parse().ok()
}

fuzz_target!(|data: &[u8]| {
    for field in data.split(|b| *b == b',') {
        let (got, expected) = (number::parse(field), reference(field));
        match (got, expected) {
            (Some((v, rounded)), Some(r)) => {
                let same = v.to_bits() == r.to_bits() || v.is_nan() && r.is_nan();
                assert!(same, "{field:?}: {v:e} and not {r:e}");
                assert!(!rounded || v.abs() >= 2f64.powi(53));
            }
            (None, None) => {}
            (a, b) => panic!("{:?}: {a:?} and not {b:?}", field.escape_ascii().to_string()),
        }
        if let Some((v, n)) = number::plain(field) {
            assert_eq!(reference(&field[..n]).map(f64::to_bits), Some(v.to_bits()));
        }
    }
});
