//! What a build without object stores has in place of them.

use super::{Begun, Label, Object, Page};
use std::convert::Infallible;
use std::ops::Range;
use std::path::PathBuf;
use stead_core::{BucketUrl, Cancel, Error, Result};

/// A bucket of an object store, of which this build has none.
#[derive(Debug, Clone)]
pub struct Bucket(Infallible);

#[allow(missing_docs, clippy::missing_errors_doc)]
impl Bucket {
    /// # Errors
    /// `Usage`.
    pub fn open(url: &BucketUrl) -> Result<Bucket> {
        Err(Error::usage("this stead was built without object stores")
            .at_path(url.to_string())
            .with_hint("build it with the feature `object`"))
    }

    #[must_use]
    pub fn stopped_by(self, _: &Cancel) -> Bucket {
        match self.0 {}
    }

    pub fn is(&self, _: &Bucket) -> bool {
        match self.0 {}
    }

    pub fn name(&self) -> &str {
        match self.0 {}
    }

    pub fn shown(&self, _: &str) -> PathBuf {
        match self.0 {}
    }

    pub fn head(&self, _: &str) -> Result<Option<Object>> {
        match self.0 {}
    }

    pub fn page(&self, _: &str, _: Option<String>, _: usize) -> Result<Page> {
        match self.0 {}
    }

    pub fn get(&self, _: &str, _: Range<u64>, _: Option<&Object>) -> Result<(Vec<u8>, Object)> {
        match self.0 {}
    }

    pub fn put(&self, _: &str, _: Vec<u8>, _: &Label, _: bool) -> Result<()> {
        match self.0 {}
    }

    pub fn begin(&self, _: &str, _: &Label) -> Result<String> {
        match self.0 {}
    }

    pub fn part(&self, _: &str, _: &str, _: usize, _: Vec<u8>) -> Result<String> {
        match self.0 {}
    }

    pub fn complete(&self, _: &str, _: &str, _: Vec<String>) -> Result<()> {
        match self.0 {}
    }

    pub fn abort(&self, _: &str, _: &str) -> Result<()> {
        match self.0 {}
    }

    pub fn uploads(&self, _: &str) -> Result<Option<Vec<Begun>>> {
        match self.0 {}
    }

    pub fn has_parts(&self, _: &str, _: &str) -> Result<bool> {
        match self.0 {}
    }

    pub fn delete(&self, _: &[String]) -> Result<Vec<(usize, Error)>> {
        match self.0 {}
    }

    pub fn copy(&self, _: &str, _: &str) -> Result<()> {
        match self.0 {}
    }
}
