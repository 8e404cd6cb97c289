//! Sizes, rates and durations: read from people, written for people.

use crate::{Error, Result};

/// Reads a size such as `4096`, `64KiB`, `1.5GB`, `2g`. `K`, `M`, `G`, `T` alone and with `iB` are
/// powers of 1024; with `B` alone (`kB`, `MB`) powers of 1000.
pub fn parse_size(s: &str) -> Result<u64> {
    let t = s.trim();
    let split = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (num, unit) = t.split_at(split);
    let bad = || {
        Error::usage(format!("'{s}' is not a size"))
            .with_hint("write for example 4096, 64KiB, 1.5GiB or 2GB")
    };
    let unit = unit.trim().to_ascii_lowercase();
    let scale: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(bad()),
    };
    if let Ok(n) = num.parse::<u64>() {
        return n.checked_mul(scale).ok_or_else(bad);
    }
    let n: f64 = num.parse().map_err(|_| bad())?;
    let v = n * scale as f64;
    // u64::MAX as f64 rounds up to 2^64, which no longer fits.
    if !v.is_finite() || v < 0.0 || v >= u64::MAX as f64 {
        return Err(bad());
    }
    Ok(v as u64)
}

/// Reads a time such as `90s`, `30min`, `12h`, `7d` or `2w`, in seconds, up to a hundred years.
///
/// # Errors
/// `Usage`.
pub fn parse_time(s: &str) -> Result<u64> {
    let t = s.trim();
    let split = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
    let (num, unit) = t.split_at(split);
    let scale = match unit.trim() {
        "s" => Some(1),
        "min" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        "w" => Some(7 * 86_400),
        _ => None,
    };
    let seconds = num.parse::<u64>().ok().zip(scale).and_then(|(n, scale)| n.checked_mul(scale));
    seconds.filter(|s| (1..=100 * 366 * 86_400).contains(s)).ok_or_else(|| {
        Error::usage(format!("'{}' is no time", s.escape_debug()))
            .with_hint("write for example 90s, 30min, 12h, 7d or 2w")
    })
}

/// `1536` becomes `1.5 KiB`.
pub fn format_size(n: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut v = n as f64;
    let mut i = 0;
    while v >= 1024.0 && i + 1 < UNITS.len() {
        v /= 1024.0;
        i += 1;
    }
    if i == 0 { format!("{n} B") } else { format!("{v:.1} {}", UNITS[i]) }
}

/// Seconds for people: `3.2 ms`, `1.25 s`, `2 min 5 s`.
pub fn format_seconds(s: f64) -> String {
    if s < 1e-3 {
        format!("{:.0} us", s * 1e6)
    } else if s < 1.0 {
        format!("{:.1} ms", s * 1e3)
    } else if s < 60.0 {
        format!("{s:.2} s")
    } else {
        let t = s.round() as u64;
        if t < 3600 {
            format!("{} min {} s", t / 60, t % 60)
        } else {
            format!("{} h {} min", t / 3600, t % 3600 / 60)
        }
    }
}

/// `1234567` becomes `1,234,567`.
pub fn format_count(n: u64) -> String {
    let s = n.to_string();
    let mut out = String::with_capacity(s.len() + s.len() / 3);
    for (i, c) in s.chars().enumerate() {
        if i > 0 && (s.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Seconds since 1970 as a date and a time of day in UTC: `2026-11-23 08:30:00Z`.
pub fn format_date(seconds: i64) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years that begin in March end with the day that some have more; 400 of them have the same days, always.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (h, m, s) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00:00Z"),
            (-1, "1969-12-31 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (1_709_251_200, "2024-03-01 00:00:00Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
            (-2_203_891_200, "1900-03-01 00:00:00Z"),
        ] {
            assert_eq!(format_date(seconds), date);
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (s, n) in [
            ("0", 0),
            ("17", 17),
            ("64KiB", 65536),
            ("1.5 GiB", 3 << 29),
            ("2GB", 2_000_000_000),
            ("3m", 3 << 20),
        ] {
            assert_eq!(parse_size(s).ok(), Some(n), "{s}");
        }
        for s in [
            "",
            "x",
            "-1",
            "1e400",
            "99999999999999999999999TiB",
            "1 parsec",
            "18446744073709551616",
        ] {
            assert!(parse_size(s).is_err(), "{s}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("90s", 90), ("2 min", 120), ("7d", 604_800), ("1w", 604_800)] {
            assert_eq!(parse_time(text).unwrap(), seconds);
        }
        for bad in ["", "7", "d", "-1d", "1.5h", "0s", "99999999999999999999d", "9999999w"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_get_separators() {
        assert_eq!(format_count(0), "0");
        assert_eq!(format_count(999), "999");
        assert_eq!(format_count(1_234_567), "1,234,567");
    }
}
