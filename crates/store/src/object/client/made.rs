//! Clients of buckets, by the protocols of their URLs and what the environment says.

use super::Inner;
use super::profile::{self, Wanted};
use crate::object::http::Connector;
use crate::object::told::told;
use crate::space;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::signer::Signer;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig,
    StaticCredentialProvider,
};
use std::sync::Arc;
#[cfg(any(test, feature = "faults"))]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stead_core::{BucketUrl, Error, Kind, Result};

/// A request that takes longer has failed, if the environment says nothing else: a part, over a slow line.
const REQUEST: &str = "120 seconds";
/// What fails is tried again for so long.
const RETRIES: Duration = Duration::from_secs(60);

/// The client of a bucket.
///
/// # Errors
/// `Usage` for protocols that are not known and settings that make no sense; `Permission` where the environment is not to be believed.
pub(super) fn made(url: &BucketUrl, name: &str) -> Result<Inner> {
    if space::has_rights_of_others() {
        return Err(Error::new(Kind::Permission, "this process has rights that its user has not")
            .at_path(name)
            .with_hint("the environment, which says who may use a bucket, is not believed then"));
    }
    let wrong = |e: object_store::Error| told("open", name.into(), &e);
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.,
        },
        max_retries: 8,
        retry_timeout: RETRIES,
    };
    let timeout = ClientConfigKey::Timeout;
    // The client is made where there is a runtime.
    let _entered = super::runtime()?.enter();
    let within = |variable: &str| std::env::var(variable).unwrap_or_else(|_| REQUEST.to_owned());
    let connector = Connector::new(false);
    let plain = |store: Arc<dyn ObjectStore>| Inner {
        url: name.to_owned(),
        store,
        parts: None,
        pages: None,
        azure: None,
        signer: None,
    };
    Ok(match &*url.scheme {
        "s3" | "s3a" => {
            let builder = AmazonS3Builder::from_env().with_url(name).with_retry(retry);
            let mut builder = with_profile(builder)?
                .with_config(AmazonS3ConfigKey::Client(timeout), within("AWS_TIMEOUT"))
                .with_http_connector(connector.clone());
            let given = |key| builder.get_config_value(&key).is_some();
            let own = given(AmazonS3ConfigKey::Endpoint) || given(AmazonS3ConfigKey::S3Endpoint);
            // Others than Amazon's may not know it, and say so by AWS_CHECKSUM_ALGORITHM if they do.
            if !own && !given(AmazonS3ConfigKey::Checksum) {
                builder = builder.with_checksum_algorithm(Checksum::CRC64NVME);
            }
            let store = Arc::new(builder.build().map_err(wrong)?);
            let signer = connector.last().map(|client| (store.clone() as Arc<dyn Signer>, client));
            Inner { parts: Some(store.clone()), pages: Some(store.clone()), signer, ..plain(store) }
        }
        "gs" => {
            let mut builder =
                GoogleCloudStorageBuilder::from_env().with_url(name).with_retry(retry);
            let file = GoogleConfigKey::ApplicationCredentials;
            if builder.get_config_value(&file).is_none()
                && let Some(path) = profile::of_gcloud()
            {
                builder = builder.with_config(file, path);
            }
            let builder = builder
                .with_config(GoogleConfigKey::Client(timeout), within("GOOGLE_TIMEOUT"))
                .with_http_connector(connector);
            let store = Arc::new(builder.build().map_err(wrong)?);
            Inner { parts: Some(store.clone()), pages: Some(store.clone()), ..plain(store) }
        }
        "az" | "abfs" | "abfss" => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(name).with_retry(retry);
            let builder = builder
                .with_config(AzureConfigKey::Client(timeout), within("AZURE_TIMEOUT"))
                .with_http_connector(connector);
            let store = Arc::new(builder.build().map_err(wrong)?);
            let azure = Some(store.clone());
            Inner { parts: Some(store.clone()), pages: Some(store.clone()), azure, ..plain(store) }
        }
        "http" | "https" => {
            let options = ClientOptions::new().with_allow_http(url.scheme == "http");
            let builder = HttpBuilder::new().with_url(name).with_client_options(options);
            let builder = builder.with_retry(retry).with_config(timeout, REQUEST);
            // Without credentials, so that mirrors may be anywhere.
            let builder = builder.with_http_connector(Connector::new(true));
            plain(Arc::new(builder.build().map_err(wrong)?))
        }
        #[cfg(any(test, feature = "faults"))]
        "memory" => {
            let store = memory(&url.bucket);
            Inner { parts: Some(store.clone()), ..plain(store) }
        }
        scheme => {
            return Err(Error::usage(format!("there is no object store of {scheme}"))
                .with_hint("s3, gs, az, abfss, https"));
        }
    })
}

/// With what the files of the tools of S3 say: each of region and endpoint where the environment does not say it, and keys where it has none,
/// and no identity by which there are some.
///
/// # Errors
/// Those of [`profile::find`].
fn with_profile(mut builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    use AmazonS3ConfigKey as Key;
    let said = |builder: &AmazonS3Builder, key| {
        builder.get_config_value(&key).is_some_and(|value| !value.is_empty())
    };
    let keys = said(&builder, Key::AccessKeyId) || said(&builder, Key::SecretAccessKey);
    let identity = said(&builder, Key::WebIdentityTokenFile) && said(&builder, Key::RoleArn);
    let open = builder.get_config_value(&Key::SkipSignature).is_some_and(|value| value == "true");
    let region = said(&builder, Key::Region);
    let endpoint = said(&builder, Key::Endpoint) || said(&builder, Key::S3Endpoint);
    let wanted = match keys || identity || open {
        // Then the files need not even be readable.
        true if region && endpoint => return Ok(builder),
        true => Wanted::Settings,
        false => Wanted::All,
    };
    let Some(profile) = profile::find(wanted)? else { return Ok(builder) };
    if let Some(its) = profile.region.filter(|_| !region) {
        builder = builder.with_config(Key::Region, its);
    }
    if let Some(its) = profile.endpoint.filter(|_| !endpoint) {
        builder = builder.with_config(Key::Endpoint, its);
    }
    if let Some(keys) = profile.keys {
        // As a whole: a token of the environment is of other keys.
        let keys = AwsCredential { key_id: keys.id, secret_key: keys.secret, token: keys.token };
        builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(keys)));
    }
    Ok(builder)
}

/// A store of this process, by its name.
#[cfg(any(test, feature = "faults"))]
fn memory(name: &str) -> Arc<object_store::memory::InMemory> {
    use std::collections::HashMap;
    static ALL: Mutex<Option<HashMap<String, Arc<object_store::memory::InMemory>>>> =
        Mutex::new(None);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.get_or_insert_default().entry(name.to_owned()).or_default().clone()
}
