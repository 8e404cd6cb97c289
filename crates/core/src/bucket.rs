//! The names of buckets of object stores.

use crate::layout::check_relative;
use crate::{Error, Result, limits};
use std::fmt;

/// A bucket, or what lies below a prefix of it: `s3://bucket/run7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BucketUrl {
    /// The protocol: one of [`BucketUrl::SCHEMES`].
    pub scheme: String,
    /// The bucket, the container with its account, or the host with its port.
    pub bucket: String,
    /// Without `/` at its beginning and its end; empty for the bucket as a whole.
    pub prefix: String,
}

impl BucketUrl {
    /// S3, Google Cloud Storage, Azure, plain HTTP, and memory, which tests have.
    pub const SCHEMES: [&'static str; 9] =
        ["s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https", "memory"];

    /// True if this is the protocol of an object store.
    pub fn is_scheme(text: &str) -> bool {
        BucketUrl::SCHEMES.contains(&text)
    }

    /// True if this is the protocol of an object store that is the same one for all nodes. Memory is not: the memory of each node is a dataspace
    /// of its own.
    pub fn is_of_all_nodes(text: &str) -> bool {
        text != "memory" && BucketUrl::is_scheme(text)
    }

    /// True of a text that names a bucket, or means to.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| BucketUrl::is_scheme(scheme))
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// `Usage` for other protocols, without a bucket, for prefixes with empty steps or `..`, and for passwords: they come from
    /// the environment, since what is named here is written down and shown.
    pub fn parse(text: &str) -> Result<BucketUrl> {
        // Not shown whole: it may hold what is nobody's business.
        let Some((scheme, rest)) = text.split_once("://").filter(|(s, _)| BucketUrl::is_scheme(s))
        else {
            return Err(Error::usage("this is no URL of a bucket")
                .with_hint("write it as s3://bucket/prefix; also gs, az, abfss, https"));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let container = scheme.starts_with("abfs");
        let user = bucket.rsplit_once('@').map(|(user, _)| user);
        if user.is_some_and(|user| !container || user.contains(':')) {
            return Err(Error::usage(format!("a URL of {scheme} with a user or a password"))
                .with_hint("give credentials by the environment: they would be shown and kept"));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:@[]".contains(c);
        if bucket.is_empty() || bucket.len() > limits::MAX_PATH_BYTES || !bucket.chars().all(plain)
        {
            return Err(Error::usage(format!("a URL of {scheme} without the name of a bucket"))
                .with_hint(format!("write it as {scheme}://bucket/prefix")));
        }
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() {
            check_relative(prefix)?;
        }
        let text = str::to_owned;
        Ok(BucketUrl { scheme: text(scheme), bucket: text(bucket), prefix: text(prefix) })
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.bucket)?;
        match &*self.prefix {
            "" => Ok(()),
            prefix => write!(f, "/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn urls_are_read_and_written() {
        for (text, bucket, prefix) in [
            ("s3://b", "b", ""),
            ("gs://b.c/run 7/x/", "b.c", "run 7/x"),
            ("http://127.0.0.1:80/x", "127.0.0.1:80", "x"),
            ("abfss://data@me.dfs.core.windows.net/p", "data@me.dfs.core.windows.net", "p"),
        ] {
            let url = BucketUrl::parse(text).unwrap();
            assert_eq!((&*url.bucket, &*url.prefix), (bucket, prefix));
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
        assert!(BucketUrl::is_meant("s3://") && !BucketUrl::is_meant("nvme://b"));
        let alike = ["s3", "https", "memory", "nvme"].map(BucketUrl::is_of_all_nodes);
        assert_eq!(alike, [true, true, false, false]);
    }

    #[test]
    fn what_is_no_bucket_is_refused_and_passwords_are_not_shown() {
        for bad in [
            "s3://",
            "s3:///x",
            "x://b",
            "s3://b/a//c",
            "s3://b/../c",
            "https://me:secret@host/x",
            "abfss://c:secret@me/x",
            "s3://b?key=secret",
            "s3://*/x",
        ] {
            let e = BucketUrl::parse(bad).unwrap_err();
            assert!(e.kind() == Kind::Usage && !e.to_string().contains("secret"), "{bad}: {e}");
        }
    }
}
