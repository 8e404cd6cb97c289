//! What a store answers as an error of ours: what people need of it, and nothing that was secret.

use super::http::{ELSEWHERE, refused};
use object_store::Error as Answer;
use std::path::PathBuf;
use stead_core::{Error, Kind};

/// Characters of what a server says that are shown.
const MOST: usize = 200;

/// What was tried on what, and why it failed.
pub(super) fn told(doing: &str, at: PathBuf, e: &Answer) -> Error {
    let why = reason(e);
    if let Some(refused) = refused(e) {
        return Error::new(Kind::Io, format!("cannot {doing}: {why}"))
            .at_path(at)
            .with_hint(refused.hint);
    }
    let status = |codes: &[&str]| codes.iter().any(|code| why.starts_with(code));
    let (kind, message, hint) = match e {
        _ if matches!(e, Answer::NotFound { .. }) || status(&["404"]) => {
            let message = match why.contains("NoSuchBucket") {
                true => "there is no such bucket",
                false => "no such object",
            };
            (Kind::NotFound, message.to_owned(), None)
        }
        Answer::PermissionDenied { .. } | Answer::Unauthenticated { .. } => {
            (Kind::Permission, format!("cannot {doing}: {why}"), Some(CREDENTIALS))
        }
        Answer::AlreadyExists { .. } => {
            (Kind::Usage, "there is something of this name already".to_owned(), None)
        }
        Answer::Precondition { .. } | Answer::NotModified { .. } => (
            Kind::Changed,
            "the object changed while it was copied".to_owned(),
            Some("stage it again when nobody writes to it"),
        ),
        Answer::InvalidPath { .. } => (
            Kind::Usage,
            format!("cannot {doing}: {why}"),
            Some(
                "steps of names are neither empty nor '.' or '..', and have no control characters",
            ),
        ),
        Answer::NotSupported { .. } | Answer::NotImplemented { .. } => {
            (Kind::Usage, format!("cannot {doing}: the store does not do that"), None)
        }
        _ if why.contains("QuotaExceeded") || status(&["507"]) => {
            (Kind::NoSpace, format!("cannot {doing}: {why}"), None)
        }
        // Of parts that the store has let go, or that did not come as they were sent.
        _ if ["InvalidBlockList", "InvalidPart"].iter().any(|code| why.contains(code)) => {
            (Kind::NotFound, format!("cannot {doing}: {why}"), None)
        }
        // With what was to be written, which is not sent twice.
        _ if status(&["301", "302", "303", "307", "308"]) => {
            let message = format!("cannot {doing}: the server sends to another one: {why}");
            (Kind::Io, message, Some(ELSEWHERE))
        }
        _ if status(&["400", "405", "501"]) => (Kind::Io, format!("cannot {doing}: {why}"), None),
        // It was tried again for a while: no answer, or none that was whole.
        _ => (Kind::Timeout, format!("cannot {doing}: {why}"), Some(UNANSWERED)),
    };
    let e = Error::new(kind, message).at_path(at);
    match hint {
        Some(hint) => e.with_hint(hint),
        None => e,
    }
}

const CREDENTIALS: &str = "credentials come from the environment (AWS_..., GOOGLE_..., AZURE_...), the files of the store's own tools (~/.aws), or the machine";
const UNANSWERED: &str = "see whether the store can be reached and where credentials come from: AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID, GOOGLE_..., AZURE_...";

/// The innermost reason: what goes around it names URLs, which may be signed.
fn reason(e: &Answer) -> String {
    let mut inner: &(dyn std::error::Error + 'static) = e;
    while let Some(source) = inner.source() {
        inner = source;
    }
    plain(&inner.to_string())
}

/// Of an answer in XML the code and the message, which are all that is not about the request; on one line, without queries.
fn plain(text: &str) -> String {
    let text = text.trim_start_matches("Server returned non-2xx status code: ");
    let text = match text.find('<') {
        Some(xml) => {
            let (head, xml) = text.split_at(xml);
            let field = |name: &str| {
                let from = xml.split_once(&format!("<{name}>"))?.1;
                from.split_once("</").map(|(value, _)| value)
            };
            let head = head.trim().trim_end_matches(':');
            match (field("Code"), field("Message")) {
                (Some(code), Some(message)) => format!("{head}: {code}: {message}"),
                (Some(code), None) => format!("{head}: {code}"),
                _ => head.to_owned(),
            }
        }
        None => text.to_owned(),
    };
    let words = text.split_whitespace().map(|word| match word.split_once('?') {
        Some((before, after)) if !after.is_empty() => before,
        _ => word,
    });
    let mut line = words.collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(MOST) {
        line.truncate(at);
        line.push_str("...");
    }
    line.trim_end_matches([':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Answer {
        Answer::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn answers_are_told_without_what_is_secret() {
        let xml = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>SignatureDoesNotMatch</Code>\
                   <Message>The signature does not match.</Message><AWSAccessKeyId>SECRET</AWSAccessKeyId></Error>";
        let answer = Answer::PermissionDenied { path: "k".into(), source: xml.to_owned().into() };
        let e = told("write", "s3://b/k".into(), &answer);
        assert_eq!(e.kind(), Kind::Permission);
        let text = e.to_string();
        assert!(text.contains("403 Forbidden: SignatureDoesNotMatch: The signature"), "{text}");
        assert!(!text.contains("SECRET") && text.contains("s3://b/k"), "{text}");
        let text = told("read", "x".into(), &generic("refused for https://h/c?sig=SECRET today"))
            .to_string();
        assert!(text.contains("https://h/c today") && !text.contains("SECRET"), "{text}");
        assert!(told("read", "x".into(), &generic(&"x".repeat(5000))).to_string().len() < 600);
    }

    #[test]
    fn answers_have_kinds() {
        let kind = |text: &str| told("write", "x".into(), &generic(text)).kind();
        let status = "Server returned non-2xx status code: ";
        assert_eq!(kind("connection refused"), Kind::Timeout);
        assert_eq!(kind(&format!("{status}503 Service Unavailable: ")), Kind::Timeout);
        assert_eq!(kind(&format!("{status}400 Bad Request: ")), Kind::Io);
        assert_eq!(
            kind(&format!("{status}403 Forbidden: <Code>QuotaExceeded</Code>")),
            Kind::NoSpace
        );
    }
}
