//! Who one is to S3, as its own tools know it where the environment does not say: `~/.aws/credentials` and `~/.aws/config`.
//!
//! A section is a profile: `[NAME]` in the first file, `[profile NAME]` and `[default]` in the second. A line is `key = value`; one that is
//! further in than the line before says something of that, as `endpoint_url` below `s3 =`. What is none of this is passed over.

use crate::space;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use stead_core::{Error, Result};

/// Bytes of such a file.
const MOST: u64 = 1 << 20;
/// What has other tools go and get keys, which nobody does here; the last ones count only if there are no keys.
const ELSEWHERE: [(&str, &str, bool); 5] = [
    ("role_arn", "takes a role", true),
    ("sso_session", "signs in by SSO", true),
    ("sso_start_url", "signs in by SSO", true),
    ("credential_process", "has a program give keys", false),
    ("login_session", "signs in by a browser", false),
];

/// What somebody wants of a profile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// Keys are known already: the profile need not have any, and may have ones that others would have to get.
    Settings,
}

/// What a profile says. It has secrets, and is not to be shown.
pub(super) struct Profile {
    pub(super) keys: Option<Keys>,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
}

/// As requests are signed by.
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

type Section = BTreeMap<String, String>;

/// A file, and its sections by what they are called.
#[derive(Default)]
struct Sections {
    path: PathBuf,
    all: BTreeMap<String, Section>,
}

/// The profile of this user: that of `AWS_PROFILE`, or else `default`, of the files that there are. None if there is no such one, and none was
/// named.
///
/// # Errors
/// `Usage` for a profile that is named and is not there, and for one whose keys others would have to get; `Format` for keys that are none;
/// `Limit`, `Permission` and system errors of the files.
pub(super) fn find(wanted: Wanted) -> Result<Option<Profile>> {
    let home = space::home();
    let file = |variable: &str, usual: &str| {
        let in_home = |path: &str| home.as_ref().map(|home| home.join(path));
        match space::variable(variable) {
            Some(path) => path.strip_prefix("~/").map_or(Some(PathBuf::from(&path)), in_home),
            None => in_home(usual),
        }
    };
    let read = |path: Option<PathBuf>, is_config: bool| match path {
        Some(path) => Ok::<_, Error>(match text(&path)? {
            Some(text) => Sections { all: sections(&text, is_config), path },
            None => Sections { path, ..Sections::default() },
        }),
        None => Ok(Sections::default()),
    };
    let credentials = read(file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"), false)?;
    let config = read(file("AWS_CONFIG_FILE", ".aws/config"), true)?;
    let named = space::variable("AWS_PROFILE");
    let profile = of(named.as_deref(), wanted, &credentials, &config)?;
    let ignored = space::variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    Ok(profile.map(|profile| match ignored.is_some_and(|value| value == "true") {
        true => Profile { endpoint: None, ..profile },
        false => profile,
    }))
}

/// The credentials of `gcloud`, where the environment has no home by which others would find them.
pub(super) fn of_gcloud() -> Option<String> {
    if std::env::var_os("HOME").is_some() {
        return None;
    }
    let path = space::home()?.join(".config/gcloud/application_default_credentials.json");
    path.is_file().then_some(path)?.into_os_string().into_string().ok()
}

/// A small file as text; none if there is none.
fn text(path: &Path) -> Result<Option<String>> {
    let failed = |e: std::io::Error| Error::io("read", path, e);
    // Without NONBLOCK the open of a pipe waits for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(failed(e.into())),
    };
    let mut bytes = Vec::new();
    std::io::copy(&mut file.take(MOST + 1), &mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST {
        return Err(Error::limit("a file of profiles is longer than 1 MiB").at_path(path));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The sections of a file.
fn sections(text: &str, is_config: bool) -> BTreeMap<String, Section> {
    let mut all: BTreeMap<String, Section> = BTreeMap::new();
    let mut section: Option<String> = None;
    // The last line that is no part of another: how far in it is, and its key.
    let mut above: Option<(usize, String)> = None;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            section = rest.split_once(']').map(|(name, _)| called(name, is_config));
            above = None;
            if let Some(name) = &section {
                all.entry(name.clone()).or_default();
            }
            continue;
        }
        let (Some(section), Some((key, value))) = (&section, plain.split_once('=')) else {
            continue;
        };
        let depth = line.len() - line.trim_start().len();
        let key = key.trim().to_ascii_lowercase();
        let outer = above.as_ref().filter(|(less, _)| depth > *less);
        let key = match outer.map(|(_, outer)| format!("{outer}.{key}")) {
            Some(inner) => inner,
            None => {
                above = Some((depth, key.clone()));
                key
            }
        };
        all.entry(section.clone()).or_default().insert(key, uncommented(value).to_owned());
    }
    all
}

/// A section by what it is of: `profile NAME`, `services NAME`.
fn called(name: &str, is_config: bool) -> String {
    let plain = |name: &str| name.trim().trim_matches('"').to_owned();
    match name.trim().split_once(char::is_whitespace) {
        Some((kind @ ("profile" | "services"), name)) if is_config => {
            format!("{kind} {}", plain(name))
        }
        // All else there is something else.
        _ if is_config && plain(name) != "default" => String::new(),
        _ => format!("profile {}", plain(name)),
    }
}

/// A value without what follows a blank and `#` or `;`.
fn uncommented(value: &str) -> &str {
    let is_comment =
        |at: &usize| value.get(..*at).is_some_and(|before| before.ends_with(char::is_whitespace));
    let end = value.match_indices(['#', ';']).map(|(at, _)| at).find(is_comment);
    value.get(..end.unwrap_or(value.len())).unwrap_or(value).trim()
}

/// What both files say of a profile.
fn of(
    name: Option<&str>,
    wanted: Wanted,
    credentials: &Sections,
    config: &Sections,
) -> Result<Option<Profile>> {
    let called = name.unwrap_or("default");
    let shown = called.escape_debug();
    let key = format!("profile {called}");
    let both = [credentials, config].map(|file| file.all.get(&key).map(|all| (&*file.path, all)));
    let there: Vec<(&Path, &Section)> = both.into_iter().flatten().collect();
    if there.is_empty() {
        let files = format!("{} and {}", credentials.path.display(), config.path.display());
        return match name {
            None => Ok(None),
            Some(_) => Err(Error::usage(format!("there is no profile '{shown}' in {files}"))
                .with_hint("AWS_PROFILE names it; let it name another one, or none")),
        };
    }
    let value = |key: &str| {
        let found = there.iter().filter_map(|(path, all)| Some((*path, all.get(key)?)));
        found.map(|(path, value)| (path, value.as_str())).find(|(_, value)| !value.is_empty())
    };
    let keys = match wanted {
        Wanted::Settings => None,
        Wanted::All => {
            let mut its = there.iter();
            let keys = its.find_map(|(path, all)| keys(path, all, called).transpose());
            let keys = keys.transpose()?;
            for (key, does, always) in ELSEWHERE {
                if let Some((path, _)) = value(key).filter(|_| always || keys.is_none()) {
                    return Err(Error::usage(format!("profile '{shown}' {does} ({key}), which stead does not do"))
                        .at_path(path)
                        .with_hint(format!(
                            "put keys into the environment: eval \"$(aws configure export-credentials --profile {shown} --format env)\""
                        )));
                }
            }
            keys
        }
    };
    let one =
        |key: &str| value(key).map(|(path, value)| sound(path, called, key, value)).transpose();
    let services = value("services").and_then(|(_, name)| {
        config
            .all
            .get(&format!("services {name}"))?
            .get("s3.endpoint_url")
            .filter(|url| !url.is_empty())
    });
    let endpoint = match services {
        _ if value("ignore_configured_endpoint_urls").is_some_and(|(_, v)| v == "true") => None,
        Some(url) => Some(sound(&config.path, called, "endpoint_url", url)?),
        None => one("endpoint_url")?,
    };
    Ok(Some(Profile { keys, region: one("region")?, endpoint }))
}

/// The keys that a section has, if any: all of them of one file.
fn keys(path: &Path, all: &Section, profile: &str) -> Result<Option<Keys>> {
    let one = |key: &str| {
        let value = all.get(key).filter(|value| !value.is_empty());
        value.map(|value| sound(path, profile, key, value)).transpose()
    };
    match (one("aws_access_key_id")?, one("aws_secret_access_key")?) {
        (Some(id), Some(secret)) => Ok(Some(Keys { id, secret, token: one("aws_session_token")? })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => {
            let shown = profile.escape_debug();
            let message = format!("profile '{shown}' has one key of two");
            Err(Error::usage(message)
                .at_path(path)
                .with_hint("it takes aws_access_key_id and aws_secret_access_key"))
        }
    }
}

/// A value that can be a part of a request. It is not told what it is.
fn sound(path: &Path, profile: &str, key: &str, value: &str) -> Result<String> {
    if value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(value.to_owned());
    }
    let shown = profile.escape_debug();
    Err(Error::format(format!("'{key}' of profile '{shown}' has letters that it cannot have"))
        .at_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::Kind;

    fn profile(name: Option<&str>, credentials: &str, config: &str) -> Result<Option<Profile>> {
        wanted(Wanted::All, name, credentials, config)
    }

    fn wanted(
        wanted: Wanted,
        name: Option<&str>,
        credentials: &str,
        config: &str,
    ) -> Result<Option<Profile>> {
        let of_text = |path: &str, text: &str, is_config| Sections {
            path: path.into(),
            all: sections(text, is_config),
        };
        of(
            name,
            wanted,
            &of_text("/h/credentials", credentials, false),
            &of_text("/h/config", config, true),
        )
    }

    fn is(found: &Profile, keys: Option<(&str, &str, Option<&str>)>) -> bool {
        let its = found.keys.as_ref();
        its.map(|k| (k.id.as_str(), k.secret.as_str(), k.token.as_deref())) == keys
    }

    #[test]
    fn profiles_are_those_of_both_files() {
        let credentials = "# mine\n[default]\naws_access_key_id = AKID\naws_secret_access_key=sec/ret+ # of 2026\n\n\
                           [ site ]\n  AWS_ACCESS_KEY_ID = SITE\n  aws_secret_access_key = other;no=comment\n  aws_session_token = tok==\n";
        let config = "\u{feff}[default]\nregion = eu-central-1\ns3 =\n  endpoint_url = http://not.this\n  region = nor-this\n\
                      [profile site] ; here\nregion=us-west-2\nendpoint_url = https://s3.site\naws_access_key_id = NOT\n\
                      [profile \"with blank\"]\nservices = mine\nendpoint_url = https://all\n\
                      [services mine]\ns3 =\n  endpoint_url = https://s3.mine\nec2 =\n  endpoint_url = https://ec2\n\
                      [site]\nregion = no-profile\n";
        let found = |name| profile(name, credentials, config).unwrap().unwrap();
        let default = found(None);
        assert!(is(&default, Some(("AKID", "sec/ret+", None))));
        assert_eq!((default.region.as_deref(), default.endpoint), (Some("eu-central-1"), None));
        let site = found(Some("site"));
        assert!(is(&site, Some(("SITE", "other;no=comment", Some("tok==")))));
        assert_eq!(site.region.as_deref(), Some("us-west-2"));
        assert_eq!(site.endpoint.as_deref(), Some("https://s3.site"));
        let blank = found(Some("with blank"));
        assert!(is(&blank, None) && blank.endpoint.as_deref() == Some("https://s3.mine"));
        // Keys may be in the other file alone.
        let keys = "[profile x]\naws_access_key_id=a\naws_secret_access_key=b\nignore_configured_endpoint_urls = true\nendpoint_url=c\n";
        let x = profile(Some("x"), "[x]\n", keys).unwrap().unwrap();
        assert!(is(&x, Some(("a", "b", None))) && x.endpoint.is_none());
    }

    #[test]
    fn what_is_not_there_is_told_if_it_was_named() {
        assert!(profile(None, "", "[profile a]\nregion = x\n").unwrap().is_none());
        let e = profile(Some("a\n"), "[b]\n", "[a]\nregion = x\n").err().unwrap();
        assert!(e.kind() == Kind::Usage && e.message().contains("no profile 'a\\n'"), "{e}");
    }

    #[test]
    fn keys_that_others_would_have_to_get_are_an_error() {
        let keys = "[default]\naws_access_key_id = AKID\naws_secret_access_key = hidden\n";
        for (line, with_keys) in [
            ("role_arn = arn:aws:iam::1:role/r\nsource_profile = default", true),
            ("sso_session = s", true),
            ("sso_start_url = https://s", true),
            ("credential_process = /bin/false", false),
            ("login_session = s", false),
        ] {
            let config = format!("[default]\n{line}\n");
            let e = profile(None, "", &config).err().unwrap();
            let key = line.split(' ').next().unwrap();
            assert!(e.kind() == Kind::Usage && e.message().contains(key), "{e}");
            assert!(e.hint().unwrap().contains("export-credentials --profile default"), "{e:?}");
            assert_eq!(profile(None, keys, &config).is_err(), with_keys, "{line}");
            // Who has keys takes the rest from it.
            let config = format!("{config}region = r\nendpoint_url = https://e\n");
            let its = wanted(Wanted::Settings, None, keys, &config).unwrap().unwrap();
            assert!(is(&its, None) && its.region.as_deref() == Some("r"), "{line}");
            assert_eq!(its.endpoint.as_deref(), Some("https://e"), "{line}");
        }
        for half in ["aws_access_key_id = AKID", "aws_secret_access_key = hidden"] {
            let e = profile(None, &format!("[default]\n{half}\n"), "").err().unwrap();
            assert!(e.message().contains("one key of two") && !e.to_string().contains("hidden"));
            let text = format!("[default]\n{half}\nregion = r\n");
            let its = wanted(Wanted::Settings, None, &text, "").unwrap().unwrap();
            assert_eq!(its.region.as_deref(), Some("r"));
        }
    }

    #[test]
    fn what_no_request_can_have_is_an_error_without_it() {
        for bad in ["hid\u{7}den", "hidden hidden", "hiddän", "hid\0den"] {
            for key in ["aws_secret_access_key", "aws_session_token", "region", "endpoint_url"] {
                let text = format!(
                    "[default]\naws_access_key_id = AKID\naws_secret_access_key = x\n{key} = {bad}\n"
                );
                let e = profile(None, &text, "").err().unwrap();
                assert!(e.kind() == Kind::Format && e.to_string().contains(key), "{e}");
                assert!(!e.to_string().contains("hid"), "{e}");
            }
        }
    }

    #[test]
    fn files_are_read_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        assert!(text(&path).unwrap().is_none() && text(&path.join("x")).unwrap().is_none());
        std::fs::write(&path, b"[d\xffefault]\n").unwrap();
        assert!(text(&path.join("x")).unwrap().is_none());
        assert!(text(&path).unwrap().unwrap().contains("efault"));
        std::fs::write(&path, vec![b'x'; MOST as usize + 1]).unwrap();
        assert_eq!(text(&path).unwrap_err().kind(), Kind::Limit);
        // Nobody writes to it.
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(text(&pipe).unwrap().as_deref(), Some(""));
        assert_eq!(text(Path::new("/dev/null")).unwrap().as_deref(), Some(""));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            credentials in r"([ \t]{0,2}(\[|\]|default|profile|aws_access_key_id|=|#|;|\PC|\n){0,6}\n?){0,12}",
            config in r"(\[(profile |services )?[a-z ]{0,5}\]\n|[ \t]{0,3}[a-z0-9_.]{0,4} ?=? ?\PC{0,4}\n){0,12}",
            name in proptest::option::of("[a-z]{0,3}"),
        ) {
            let _ = profile(name.as_deref(), &credentials, &config);
        }
    }
}
