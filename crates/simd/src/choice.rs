//! Which vectors there are, and which are used.

use crate::{Portable, Work};
use std::sync::OnceLock;

/// The environment variable that names the vectors to use, for tests and for whoever wants to see what vectors gain.
pub const VARIABLE: &str = "STEAD_SIMD";

/// A sort of vectors that this processor has.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Vectors {
    /// None but what compilers use anyhow.
    Portable(Portable),
    /// 256 bits of x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2(crate::Avx2),
    /// 512 bits of x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx512(crate::Avx512),
    /// 128 bits of 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon(crate::Neon),
}

/// The names of all sorts, whether the processor has them or not.
const NAMES: [&str; 4] = ["portable", "avx2", "avx512", "neon"];

impl Vectors {
    /// Those that this processor has, from the plainest to the best.
    pub fn all() -> Vec<Vectors> {
        let mut all = vec![Vectors::Portable(Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(crate::Avx2::get().map(Vectors::Avx2));
            all.extend(crate::Avx512::get().map(Vectors::Avx512));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(crate::Neon::get().map(Vectors::Neon));
        all
    }

    /// Those in use: the best that the processor has, or what [`VARIABLE`] names. They are chosen once in the life of a
    /// process.
    #[inline]
    pub fn chosen() -> Vectors {
        choice().vectors
    }

    /// Their name in plans and in [`VARIABLE`].
    pub fn name(self) -> &'static str {
        match self {
            Vectors::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon(_) => "neon",
        }
    }

    /// Does `work` with them.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Out {
        match self {
            Vectors::Portable(v) => work.run(v),
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2(v) => v.run(work),
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512(v) => v.run(work),
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon(v) => v.run(work),
        }
    }
}

/// Does `work` with the vectors in use.
#[inline]
pub fn dispatch<W: Work>(work: W) -> W::Out {
    Vectors::chosen().run(work)
}

/// What is wrong with the value of [`VARIABLE`], if something is. The best vectors are used then.
pub fn complaint() -> Option<&'static str> {
    choice().complaint.as_deref()
}

struct Choice {
    vectors: Vectors,
    complaint: Option<String>,
}

#[inline]
fn choice() -> &'static Choice {
    static CHOICE: OnceLock<Choice> = OnceLock::new();
    CHOICE.get_or_init(|| choose(std::env::var_os(VARIABLE).as_deref()))
}

/// The vectors to use if the variable has this value.
#[cold]
fn choose(wanted: Option<&std::ffi::OsStr>) -> Choice {
    let all = Vectors::all();
    let best = all.iter().copied().last().unwrap_or(Vectors::Portable(Portable));
    let wanted = wanted.map(|w| w.to_string_lossy().into_owned()).filter(|w| !w.is_empty());
    let Some(wanted) = wanted else { return Choice { vectors: best, complaint: None } };
    let found = all.iter().copied().find(|v| v.name() == wanted);
    let have: Vec<_> = all.iter().map(|v| v.name()).collect();
    let complaint = found.is_none().then(|| {
        let why = if NAMES.contains(&wanted.as_str()) {
            "names vectors that this processor does not have"
        } else {
            "names no sort of vectors"
        };
        format!("{VARIABLE}={wanted} {why}; it has {}", have.join(", "))
    });
    Choice { vectors: found.unwrap_or(best), complaint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_chosen_unless_another_one_is_named() {
        let choose = |w: &str| choose(Some(w.as_ref()));
        let all = Vectors::all();
        let best = all.last().expect("portable").name();
        assert_eq!(super::choose(None).vectors.name(), best);
        assert_eq!(choose("").vectors.name(), best);
        for v in &all {
            let c = choose(v.name());
            assert_eq!((c.vectors.name(), c.complaint), (v.name(), None));
        }
    }

    #[test]
    fn what_is_not_there_is_never_chosen() {
        let have: Vec<_> = Vectors::all().iter().map(|v| v.name()).collect();
        for name in NAMES.into_iter().filter(|n| !have.contains(n)).chain(["sse", "AVX2"]) {
            let c = choose(Some(name.as_ref()));
            assert!(have.contains(&c.vectors.name()));
            let complaint = c.complaint.expect("a complaint");
            assert!(complaint.starts_with(&format!("STEAD_SIMD={name} ")), "{complaint}");
            assert!(complaint.contains("it has portable"), "{complaint}");
        }
    }
}
