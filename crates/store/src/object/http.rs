//! The connections of the client: what it asks of servers goes to them alone, and what cannot become better is not tried again.
//!
//! A server that sends elsewhere is not followed where credentials are: the host that it names would get what they open. One whose
//! certificate is not believed is an error at once. An upload whose begin nobody has answered is not begun a second time behind the
//! back of who asks: there would be two.

use object_store::azure::{AzureAuthorizer, AzureCredential};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::signer::{HeaderName, HeaderValue};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use rustls::CertificateError;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Servers that a request is sent on to, at most.
const MOST_REDIRECTS: usize = 5;

type Outcome<T> = std::result::Result<T, object_store::Error>;

/// What no other try would make better, and what to do about it.
#[derive(Debug)]
pub(super) struct Refused {
    why: String,
    pub(super) hint: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl StdError for Refused {}

/// Makes clients.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    /// Nobody's credentials are with the requests: a server may send them to another one.
    anywhere: bool,
    last: Arc<Mutex<Option<HttpClient>>>,
}

impl Connector {
    pub(super) fn new(anywhere: bool) -> Connector {
        Connector { anywhere, last: Arc::default() }
    }

    /// The client that was made last: that of a store, after those that ask for its credentials.
    pub(super) fn last(&self) -> Option<HttpClient> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn client(&self, options: &ClientOptions) -> Outcome<reqwest::Client> {
        let given = |key| options.get_config_value(&key);
        let is = |key| given(key).is_some_and(|text| text == "true");
        let span = |key: ClientConfigKey| match given(key) {
            Some(text) => span_of(&text).map(Some).ok_or_else(|| odd(key, &text)),
            None => Ok(None),
        };
        let agent = concat!("stead/", env!("CARGO_PKG_VERSION"));
        let mut builder = reqwest::ClientBuilder::new()
            .user_agent(given(ClientConfigKey::UserAgent).unwrap_or_else(|| agent.to_owned()))
            .redirect(policy(self.anywhere))
            // It would tell where a request was, and what opens it may be in there.
            .referer(false)
            .http1_only()
            .https_only(!is(ClientConfigKey::AllowHttp));
        if let Some(span) = span(ClientConfigKey::Timeout)? {
            builder = builder.timeout(span);
        }
        if let Some(span) = span(ClientConfigKey::ConnectTimeout)? {
            builder = builder.connect_timeout(span);
        }
        if let Some(span) = span(ClientConfigKey::ReadTimeout)? {
            builder = builder.read_timeout(span);
        }
        if let Some(span) = span(ClientConfigKey::PoolIdleTimeout)? {
            builder = builder.pool_idle_timeout(span);
        }
        if let Some(proxy) = given(ClientConfigKey::ProxyUrl) {
            let mut proxy = reqwest::Proxy::all(proxy).map_err(failed)?;
            if let Some(but) = given(ClientConfigKey::ProxyExcludes) {
                proxy = proxy.no_proxy(reqwest::NoProxy::from_string(&but));
            }
            builder = builder.proxy(proxy);
        }
        if let Some(pem) = given(ClientConfigKey::ProxyCaCertificate) {
            let of = reqwest::tls::Certificate::from_pem(pem.as_bytes()).map_err(failed)?;
            builder = builder.tls_certs_merge([of]);
        }
        if is(ClientConfigKey::AllowInvalidCertificates) {
            builder = builder.danger_accept_invalid_certs(true);
        }
        if is(ClientConfigKey::RandomizeAddresses) {
            builder = builder.dns_resolver(Arc::new(InTurn::default()));
        }
        builder.build().map_err(failed)
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Outcome<HttpClient> {
        let client = HttpClient::new(Service { client: self.client(options)? });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

fn failed(e: reqwest::Error) -> object_store::Error {
    object_store::Error::Generic { store: "HTTP", source: Box::new(e) }
}

fn odd(key: ClientConfigKey, text: &str) -> object_store::Error {
    let why = format!("'{text}' is no time for '{}'", key.as_ref());
    let source = Box::new(Refused { why, hint: "write it as 30s" });
    object_store::Error::Generic { store: "HTTP", source }
}

/// A time as people write it: `30s`, `2 minutes`, `1m 30s`.
fn span_of(text: &str) -> Option<Duration> {
    let mut all = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(digits);
        let unit = unit.trim_start();
        let end = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let (unit, left) = unit.split_at(end);
        let milliseconds = match unit {
            "ms" | "msec" | "millis" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hr" | "hour" | "hours" => 3_600_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        all = all.checked_add(Duration::from_millis(number.checked_mul(milliseconds)?))?;
        rest = left.trim_start();
    }
    Some(all)
}

fn policy(anywhere: bool) -> Policy {
    Policy::custom(move |attempt| {
        let host = |url: &reqwest::Url| url.host_str().unwrap_or("?").to_owned();
        let Some(from) = attempt.previous().last() else { return attempt.stop() };
        if attempt.previous().len() > MOST_REDIRECTS {
            let why = format!("the server at {} sends on and on", host(from));
            return attempt.error(Refused { why, hint: ELSEWHERE });
        }
        let to = attempt.url();
        let near = from.origin() == to.origin();
        let kept = from.scheme() == "http" || to.scheme() == "https";
        if near || (anywhere && kept) {
            return attempt.follow();
        }
        let why = format!("the server at {} sends to another one, {}", host(from), host(to));
        attempt.error(Refused { why, hint: ELSEWHERE })
    })
}

pub(super) const ELSEWHERE: &str = "it is not followed, as credentials are for one host: name the right one, see AWS_REGION and AWS_ENDPOINT_URL";
const UNTRUSTED: &str = "authorities are those of the system, or of the file that SSL_CERT_FILE names; see that it has that of your site";

/// The addresses of a name, each time another one first: large stores have many.
#[derive(Debug, Default)]
struct InTurn {
    next: AtomicUsize,
}

impl Resolve for InTurn {
    fn resolve(&self, name: Name) -> Resolving {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut all: Vec<SocketAddr> = found.collect();
            let first = turn % all.len().max(1);
            all.rotate_left(first);
            Ok(Box::new(all.into_iter()) as Addrs)
        })
    }
}

/// What belongs to an object besides its parts, where a store takes that when it is completed.
#[derive(Clone)]
pub(super) struct Besides {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) credential: Arc<AzureCredential>,
}

tokio::task_local! {
    /// For the request that completes an upload, and no other one.
    pub(super) static BESIDES: Besides;
}

#[derive(Debug)]
struct Service {
    client: reqwest::Client,
}

type Answer<'a> =
    Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Service {
    fn call<'s, 'a>(&'s self, mut request: HttpRequest) -> Answer<'a>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            if is_asked(&request, "comp=blocklist")
                && let Ok(besides) = BESIDES.try_with(Clone::clone)
            {
                add(&mut request, &besides)?;
            }
            let host = request.uri().host().unwrap_or("?").to_owned();
            let begins = request.method().as_str() == "POST" && is_asked(&request, "uploads");
            self.client.call(request).await.map_err(|e| judged(e, &host, begins))
        })
    }
}

fn is_asked(request: &HttpRequest, what: &str) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|one| one == what || one.strip_suffix('=') == Some(what))
}

/// Adds headers to a request that is signed already.
fn add(request: &mut HttpRequest, besides: &Besides) -> std::result::Result<(), HttpError> {
    for (name, value) in &besides.headers {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    // A signature by a key is of the headers, too.
    let signed = request.headers().get("authorization").and_then(|by| by.to_str().ok());
    let account = signed
        .and_then(|by| by.strip_prefix("SharedKey "))
        .and_then(|by| by.split_once(':'))
        .map(|(account, _)| account.to_owned());
    let Some(account) = account else { return Ok(()) };
    request.headers_mut().remove("authorization");
    let by = AzureAuthorizer::new(&besides.credential, &account);
    by.try_authorize(request).map_err(|e| HttpError::new(HttpErrorKind::Unknown, e))
}

/// Whether it is of use to try again.
fn judged(e: HttpError, host: &str, begins: bool) -> HttpError {
    if let Some(why) = tls(&e) {
        let why = format!("the server at {host} is not believed: {why}");
        return HttpError::new(HttpErrorKind::Unknown, Refused { why, hint: UNTRUSTED });
    }
    let may_have_come =
        [HttpErrorKind::Request, HttpErrorKind::Timeout, HttpErrorKind::Interrupted];
    if begins && may_have_come.contains(&e.kind()) {
        return HttpError::new(HttpErrorKind::Unknown, e);
    }
    e
}

/// What is wrong with the certificate of a server, or with its TLS.
fn tls(e: &(dyn StdError + 'static)) -> Option<String> {
    if let Some(e) = e.downcast_ref::<rustls::Error>() {
        return Some(said(e));
    }
    // An error of the system may have it inside, and another one in between.
    let within = e.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    within.and_then(|e| tls(e)).or_else(|| e.source().and_then(tls))
}

fn said(e: &rustls::Error) -> String {
    use CertificateError as Wrong;
    let rustls::Error::InvalidCertificate(wrong) = e else { return e.to_string() };
    match wrong {
        Wrong::UnknownIssuer => "its certificate is of an authority that is not known here".into(),
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
            "its certificate is for another name".into()
        }
        Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired".into(),
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "its certificate is not valid yet: see the clock of this machine".into()
        }
        wrong => wrong.to_string(),
    }
}

/// What was refused, if that is why something failed.
pub(super) fn refused<'e>(e: &'e (dyn StdError + 'static)) -> Option<&'e Refused> {
    let mut inner = Some(e);
    while let Some(e) = inner {
        if let Some(refused) = e.downcast_ref::<Refused>() {
            return Some(refused);
        }
        inner = e.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_people_write_them() {
        for (text, seconds) in [("30s", 30), ("120 seconds", 120), ("1m 30s", 90), ("2h", 7200)] {
            assert_eq!(span_of(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(span_of("250ms"), Some(Duration::from_millis(250)));
        for bad in ["", "30", "s", "5 parsecs", "1s x", "99999999999999999999s"] {
            assert_eq!(span_of(bad), None, "{bad}");
        }
    }
}
