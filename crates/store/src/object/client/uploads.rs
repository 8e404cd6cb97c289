//! Uploads that a store of S3 knows of: the library lists none, so that these requests are made here, and signed by it.

use super::{Bucket, Inner, Outcome, Path};
use crate::object::Begun;
use futures_util::StreamExt;
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::signer::{Method, SignedUrlOptions};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use stead_core::Result;

/// A signature is good for so long.
const SIGNED: Duration = Duration::from_secs(120);
/// Bytes of an answer.
const MOST: usize = 4 << 20;
/// Pages of a list of uploads that are asked for.
const PAGES: usize = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    #[serde(default)]
    upload: Vec<One>,
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct One {
    key: String,
    upload_id: String,
    initiated: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parts {
    #[serde(default)]
    part: Vec<Part>,
}

#[derive(Debug, Deserialize)]
struct Part {}

fn odd(what: &str) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: what.to_owned().into() }
}

/// Asks with a signed URL, and gives what the clock of the server says, and the answer.
async fn asked(inner: &Inner, path: Path, query: Vec<(&str, String)>) -> Outcome<(i64, String)> {
    let none = || object_store::Error::NotSupported { source: "lists of uploads".into() };
    let (signer, client) = inner.signer.as_ref().ok_or_else(none)?;
    let options = SignedUrlOptions::default().with_query(query);
    let url = signer.signed_url_opts(Method::GET, &path, SIGNED, &options).await?;
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.as_str().parse().map_err(|_| odd("a URL that is none"))?;
    let failed = |source| object_store::Error::Generic { store: "S3", source };
    let answer = client.execute(request).await.map_err(|e| failed(Box::new(e)))?;
    if !answer.status().is_success() {
        let (path, source) = (path.to_string(), Box::new(odd(&answer.status().to_string())));
        return Err(match answer.status().as_u16() {
            401 | 403 => object_store::Error::PermissionDenied { path, source },
            404 => object_store::Error::NotFound { path, source },
            _ => *source,
        });
    }
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    let now = date.and_then(of_http).ok_or_else(|| odd("an answer without a date"))?;
    let mut stream = answer.into_body().bytes_stream();
    let mut bytes = Vec::new();
    while let Some(some) = stream.next().await {
        bytes.extend_from_slice(&some.map_err(|e| failed(Box::new(e)))?);
        if bytes.len() > MOST {
            return Err(odd("an answer that is too long"));
        }
    }
    Ok((now, String::from_utf8(bytes).map_err(|_| odd("an answer that is no text"))?))
}

async fn begun(inner: Arc<Inner>, key: String) -> Outcome<Vec<Begun>> {
    let mut all = Vec::new();
    let (mut after_key, mut after_id) = (String::new(), String::new());
    for _ in 0..PAGES {
        let mut query = vec![("uploads", String::new()), ("prefix", key.clone())];
        if !after_key.is_empty() {
            query.push(("key-marker", after_key));
            query.push(("upload-id-marker", after_id));
        }
        let (now, text) = asked(&inner, Path::default(), query).await?;
        let listed: Listed = quick_xml::de::from_str(&text).map_err(|e| odd(&e.to_string()))?;
        // Keys of which this one is the beginning are others.
        for one in listed.upload.into_iter().filter(|one| one.key == key) {
            let at = of_iso(&one.initiated).ok_or_else(|| odd("an upload without a time"))?;
            all.push(Begun { id: one.upload_id, ago: now - at });
        }
        if !listed.is_truncated {
            return Ok(all);
        }
        (after_key, after_id) = (listed.next_key_marker, listed.next_upload_id_marker);
    }
    Ok(all)
}

impl Bucket {
    /// Uploads of this key that are neither completed nor given up; none where the store does not tell.
    ///
    /// # Errors
    /// Those of the store, which may not let everybody see them.
    pub fn uploads(&self, key: &str) -> Result<Option<Vec<Begun>>> {
        if self.inner.signer.is_none() {
            return Ok(None);
        }
        let of = key.to_owned();
        self.ask("list the uploads of", key, |inner| begun(inner, of)).map(Some)
    }

    /// True if an upload has parts.
    ///
    /// # Errors
    /// As [`Bucket::uploads`].
    pub fn has_parts(&self, key: &str, upload: &str) -> Result<bool> {
        let (path, id) = (self.path(key)?, upload.to_owned());
        self.ask("look at the upload of", key, |inner| async move {
            let query = vec![("uploadId", id), ("max-parts", "1".to_owned())];
            let (_, text) = asked(&inner, path, query).await?;
            let parts: Parts = quick_xml::de::from_str(&text).map_err(|e| odd(&e.to_string()))?;
            Ok(!parts.part.is_empty())
        })
    }
}

/// Seconds since 1970 of a day and a time of it.
fn seconds(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let mut parts = time.split(':').map(|part| part.get(..2)?.parse::<i64>().ok());
    let (h, m, s) = (parts.next()??, parts.next()??, parts.next()??);
    // Years begin in March: a day that is there every four years is the last one.
    let (y, m0) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (y.div_euclid(400), y.rem_euclid(400));
    let of_year = (153 * m0 + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + h * 3600 + m * 60 + s)
}

/// As in `2026-11-23T07:45:50.000Z`.
fn of_iso(text: &str) -> Option<i64> {
    let (date, time) = text.trim().strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    seconds(parts.next()??, parts.next()??, parts.next()??, time)
}

/// As in `Mon, 23 Nov 2026 07:45:50 GMT`.
fn of_http(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_whitespace().skip(1);
    let day = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let year = words.next()?.parse().ok()?;
    seconds(year, month, day, words.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_answers_are_seconds() {
        for (iso, http, seconds) in [
            ("1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("2000-02-29T12:00:01Z", "Tue, 29 Feb 2000 12:00:01 GMT", 951_825_601),
            ("2026-11-23T07:45:50.123Z", "Mon, 23 Nov 2026 07:45:50 GMT", 1_795_419_950),
        ] {
            assert_eq!((of_iso(iso), of_http(http)), (Some(seconds), Some(seconds)), "{iso}");
        }
        for bad in ["", "2026-11-23", "2026-11-23T07:45Z", "Mon, 23 Nov 2026", "x y z"] {
            assert_eq!((of_iso(bad), of_http(bad)), (None, None), "{bad}");
        }
    }

    #[test]
    fn lists_of_uploads_are_understood() {
        let text = "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>b</Bucket>\
            <Upload><Key>a&amp;b</Key><UploadId>1</UploadId><Initiator><ID>x</ID></Initiator><Initiated>2026-11-23T07:45:50.000Z</Initiated></Upload>\
            <IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker></ListMultipartUploadsResult>";
        let listed: Listed = quick_xml::de::from_str(text).unwrap();
        assert_eq!((&*listed.upload[0].key, &*listed.next_key_marker), ("a&b", "k"));
        assert!(listed.is_truncated);
        let none: Listed = quick_xml::de::from_str("<ListMultipartUploadsResult/>").unwrap();
        assert!(none.upload.is_empty());
        let parts = "<ListPartsResult><PartNumberMarker>0</PartNumberMarker><Part><PartNumber>1</PartNumber></Part></ListPartsResult>";
        assert_eq!(quick_xml::de::from_str::<Parts>(parts).unwrap().part.len(), 1);
    }
}
