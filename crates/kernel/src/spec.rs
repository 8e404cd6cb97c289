//! Kernel specifications as people write them: `mean:bytes`, `gram:x,y,z`, `grep:'ERROR.*disk',fixed`,
//! `kmeans:k=20,tol=1e-3,cols=x;y`.
//!
//! Grammar: `name [":" arg {"," arg}]`, `arg = [key "="] value`. A value may be quoted with `'` or `"`
//! (the quote is doubled to stand for itself); unquoted values end at a comma. `key` is letters, digits,
//! `_`; a value that is quoted is never taken for `key=value`.

use stead_core::{Error, Result, limits};

/// A parsed specification.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Exactly what the user wrote: the key in the results.
    pub text: String,
    /// The kernel's name.
    pub name: String,
    /// Arguments without a key, in order.
    pub args: Vec<String>,
    /// Arguments with a key, in order.
    pub options: Vec<(String, String)>,
}

impl Spec {
    /// Reads a specification.
    pub fn parse(text: &str) -> Result<Spec> {
        let bad = |m: String| {
            Error::usage(format!("in kernel '{text}': {m}")).with_hint(
                "write NAME or NAME:ARG,KEY=VALUE, for example mean:bytes or kmeans:k=20,tol=1e-3",
            )
        };
        if text.len() > limits::MAX_EXPR_BYTES {
            return Err(Error::usage("a kernel specification is too long"));
        }
        let (name, rest) = match text.split_once(':') {
            Some((n, r)) => (n, Some(r)),
            None => (text, None),
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(bad("the name before ':' is not a kernel name".into()));
        }
        let mut spec =
            Spec { text: text.into(), name: name.into(), args: Vec::new(), options: Vec::new() };
        let Some(rest) = rest else { return Ok(spec) };
        let mut chars = rest.chars().peekable();
        loop {
            let mut key = None;
            let mut value = String::new();
            let mut quoted = false;
            loop {
                match chars.peek().copied() {
                    None | Some(',') => break,
                    Some(q @ ('\'' | '"')) if value.is_empty() && !quoted => {
                        chars.next();
                        quoted = true;
                        loop {
                            match chars.next() {
                                None => return Err(bad(format!("a {q} is not closed"))),
                                Some(c) if c == q => {
                                    if chars.peek() == Some(&q) {
                                        chars.next();
                                        value.push(q);
                                    } else {
                                        break;
                                    }
                                }
                                Some(c) => value.push(c),
                            }
                        }
                    }
                    Some(c) if quoted => {
                        return Err(bad(format!("'{c}' after a closing quote")));
                    }
                    Some('=')
                        if key.is_none()
                            && !value.is_empty()
                            && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') =>
                    {
                        chars.next();
                        key = Some(std::mem::take(&mut value));
                    }
                    Some(c) => {
                        chars.next();
                        value.push(c);
                    }
                }
            }
            match key {
                Some(k) if spec.options.iter().any(|(o, _)| *o == k) => {
                    return Err(bad(format!("'{k}' is given twice")));
                }
                Some(k) => spec.options.push((k, value)),
                None if value.is_empty() && !quoted => {
                    return Err(bad("an argument is empty".into()));
                }
                None => spec.args.push(value),
            }
            if chars.next().is_none() {
                return Ok(spec);
            }
        }
    }

    /// An error about this specification.
    pub fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::usage(format!("in kernel '{}': {message}", self.text))
            .with_hint(format!("see 'stead kernels {}'", self.name))
    }

    /// The text of option `key`.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Option `key` read as a `T`, or `default`.
    pub fn parse_option<T: std::str::FromStr>(&self, key: &str, default: T) -> Result<T> {
        match self.option(key) {
            None => Ok(default),
            Some(s) => s.parse().map_err(|_| self.error(format!("{key}={s} is not valid"))),
        }
    }

    /// True if the flag `name` stands among the arguments (as `name` or `name=true`).
    pub fn flag(&self, name: &str) -> bool {
        self.args.iter().any(|a| a == name) || self.option(name) == Some("true")
    }

    /// An error if there are options other than `known`.
    pub fn only_options(&self, known: &[&str]) -> Result<()> {
        match self.options.iter().find(|(k, _)| !known.contains(&k.as_str())) {
            None => Ok(()),
            Some((k, _)) if known.is_empty() => {
                Err(self.error(format!("it takes no option, and '{k}' was given")))
            }
            Some((k, _)) => {
                Err(self.error(format!("unknown option '{k}'; it takes {}", known.join(", "))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", odd in "[a-z]{0,3}[:,='\"a-z\\\\ \u{e9}\u{0}]{0,20}") {
            for text in [text, odd] {
                if let Ok(s) = Spec::parse(&text) {
                    prop_assert_eq!(&s.text, &text);
                    prop_assert!(!s.name.is_empty() && text.starts_with(&s.name));
                    prop_assert!(s.options.iter().all(|(k, _)| !k.is_empty()));
                } else {
                    prop_assert!(Spec::parse(&text).is_err_and(|e| e.kind() == stead_core::Kind::Usage));
                }
            }
        }

        #[test]
        fn quoted_values_read_back(
            args in prop::collection::vec(any::<String>(), 0..4),
            options in prop::collection::btree_map("[a-z0-9_]{1,5}", any::<String>(), 0..4),
            quote in prop::sample::select(vec!['\'', '"']),
        ) {
            let quoted = |s: &str| {
                let inner = s.replace(quote, &format!("{quote}{quote}"));
                format!("{quote}{inner}{quote}")
            };
            let parts: Vec<_> = args.iter().map(|a| quoted(a))
                .chain(options.iter().map(|(k, v)| format!("{k}={}", quoted(v))))
                .collect();
            let text = if parts.is_empty() { "k".into() } else { format!("k:{}", parts.join(",")) };
            let s = Spec::parse(&text);
            prop_assert!(s.is_ok(), "{text}");
            let s = s.expect("spec");
            prop_assert_eq!(s.args, args);
            prop_assert_eq!(s.options, options.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn specs_read_as_documented() {
        let s = Spec::parse("kmeans:x,y,k=20,tol=1e-3").expect("spec");
        assert_eq!((s.name.as_str(), s.args.as_slice()), ("kmeans", &["x".into(), "y".into()][..]));
        assert_eq!(s.option("tol"), Some("1e-3"));
        let s = Spec::parse("grep:'a,b=''c''',fixed").expect("spec");
        assert_eq!(s.args, ["a,b='c'", "fixed"]);
        assert!(s.flag("fixed"));
        let s = Spec::parse("grep:ERROR.*disk").expect("spec");
        assert_eq!(s.args, ["ERROR.*disk"]);
        let s = Spec::parse("lines").expect("spec");
        assert!(s.args.is_empty());
        for bad in ["", ":x", "a b", "mean:", "mean:a,", "grep:'x", "grep:'x'y", "k:a=1,a=2"] {
            assert!(Spec::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_options_are_named() {
        let s = Spec::parse("hist:x,bin=3").expect("spec");
        assert!(s.only_options(&["bins"]).is_err_and(|e| e.to_string().contains("'bin'")));
    }
}
