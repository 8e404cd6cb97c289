//! Which dataspaces a transfer touches, and what transfers share there: how many at a time, bytes a second.

use crate::manager::Means;
use crate::request::Request;
use crate::rules::Rule;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use stead_core::layout::Spaces;
use stead_core::{BucketUrl, Error, Result};

/// A dataspace: its name, and its folder or bucket.
pub(crate) type Key = (String, String);

/// Dataspaces with something to share that one transfer may touch.
const MOST: usize = 8;

/// Dataspaces that a transfer touches, as a source or as a target.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Touched(BTreeSet<Key>);

impl Touched {
    /// By the names that a request has: nothing is asked of the system. What links lead to is found when it is begun.
    pub(crate) fn by_names(spaces: &Spaces, request: &Request) -> Touched {
        let mut places: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        let named = spaces.names().filter_map(|name| Some((name, spaces.place(name).ok()?)));
        for (name, place) in named.chain(spaces.bound().map(|bound| (bound.name, bound.place))) {
            places.entry(place).or_default().insert(name);
        }
        let mut touched = Touched::default();
        for location in request.sources.iter().chain(&request.target) {
            if location.node.is_some() {
                continue;
            }
            let path = match &location.space {
                Some(space) if BucketUrl::is_scheme(space) && !spaces.has(space) => {
                    format!("{space}://{}", location.path)
                }
                Some(space) => match spaces.place(space) {
                    Ok(place) => format!("{place}/{}", location.path),
                    Err(_) => continue,
                },
                None => location.path.clone(),
            };
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            for above in ends.filter_map(|end| path.get(..end)) {
                for name in places.get(above).into_iter().flatten() {
                    touched.0.insert(((*name).to_owned(), above.to_owned()));
                }
            }
        }
        touched
    }

    /// With those that these rules are of.
    pub(crate) fn with<'r>(mut self, rules: impl IntoIterator<Item = &'r Rule>) -> Touched {
        self.0.extend(rules.into_iter().map(|rule| (rule.name.clone(), rule.place.clone())));
        self
    }

    /// As the journal has it; the same dataspaces are the same text.
    pub(crate) fn text(&self) -> String {
        match self.0.is_empty() {
            true => String::new(),
            // Text of texts: nothing of it fails.
            false => serde_json::to_string(self).unwrap_or_default(),
        }
    }

    pub(crate) fn of_text(text: &str) -> Touched {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// True if it has this one.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.0.contains(key)
    }
}

/// True if transfers that touch these are to give way to others.
pub(crate) fn gentle(spaces: &Spaces, touched: &Touched) -> bool {
    spaces.bound().any(|bound| {
        bound.terms.gentle && touched.has(&(bound.name.to_owned(), bound.place.to_owned()))
    })
}

/// What is shared in a dataspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Transfers at a time.
    pub(crate) transfers: Option<usize>,
    /// Bytes a second.
    pub(crate) limit: Option<u64>,
    /// Others on the node share it, by a daemon.
    pub(crate) is_common: bool,
}

/// What is shared in dataspaces, as it is agreed now.
#[derive(Debug, Default)]
pub(crate) struct Bounds(BTreeMap<Key, Bound>);

impl Bounds {
    pub(crate) fn of(means: &Means) -> Bounds {
        let shared = means.spaces.bound().filter(|b| b.terms.is_shared());
        let of = |b: stead_core::layout::spaces::Bound<'_>| {
            let is_common =
                means.common.as_ref().is_some_and(|all| all.place(b.name).ok() == Some(b.place));
            let transfers = b.terms.transfers.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
            let key = (b.name.to_owned(), b.place.to_owned());
            (key, Bound { transfers, limit: b.terms.limit, is_common })
        };
        Bounds(shared.map(of).collect())
    }

    /// Those that others on the node share.
    pub(crate) fn common(&self) -> impl Iterator<Item = (&Key, &Bound)> {
        self.0.iter().filter(|(_, bound)| bound.is_common)
    }

    /// Those with a limit.
    pub(crate) fn limited(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(|(_, bound)| bound.limit.is_some()).map(|(key, _)| key)
    }

    pub(crate) fn limit(&self, key: &Key) -> Option<u64> {
        self.0.get(key).and_then(|bound| bound.limit)
    }

    pub(crate) fn is_common(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|bound| bound.is_common)
    }

    /// Of what a transfer touches, that in which something is shared.
    pub(crate) fn shared<'b>(
        &'b self,
        touched: &'b Touched,
    ) -> impl Iterator<Item = (&'b Key, &'b Bound)> {
        self.0.iter().filter(|(key, _)| touched.has(key))
    }

    /// Those in which it is counted.
    pub(crate) fn seats(&self, touched: &Touched) -> Vec<(Key, usize)> {
        let counted = self.shared(touched).filter_map(|(key, b)| Some((key.clone(), b.transfers?)));
        counted.collect()
    }

    /// The names of those that others share: transfers of one kind are alike to whoever shares them out.
    pub(crate) fn kind(&self, touched: &Touched) -> Vec<String> {
        let common = self.shared(touched).filter(|(_, bound)| bound.is_common);
        common.map(|(key, _)| key.0.clone()).collect()
    }

    /// True if a transfer that was begun as one that touches `held` may go on as one that touches these.
    pub(crate) fn covers(&self, held: &Touched, touched: &Touched) -> bool {
        self.shared(touched).all(|(key, _)| held.has(key))
    }

    /// Refuses what touches too many at once.
    ///
    /// # Errors
    /// `Limit`.
    pub(crate) fn check(&self, touched: &Touched) -> Result<()> {
        match self.shared(touched).count() {
            0..=MOST => Ok(()),
            n => Err(Error::limit(format!(
                "this touches {n} dataspaces with a number of transfers or a limit; one transfer touches at most {MOST}"
            ))
            .with_hint("ask for several transfers")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Action, Options};
    use stead_core::Location;

    fn spaces() -> Spaces {
        let text = "[dataspace.a]\npath = \"/a\"\ntransfers = 2\n[dataspace.b]\npath = \"/a/b\"\nlimit = \"1MB/s\"\n\
                    [dataspace.c]\npath = \"/c\"\n[dataspace.old]\npath = \"s3://x/old\"\ntransfers = 1\n";
        Spaces::parse(text, &|_| None).unwrap()
    }

    fn touched(sources: &[&str], target: &str) -> Touched {
        let location = |text: &str| Location::parse(text, &|_| None).unwrap();
        let request = Request {
            action: Action::Copy,
            sources: sources.iter().map(|s| location(s)).collect(),
            target: Some(location(target)),
            options: Options::default(),
        };
        Touched::by_names(&spaces(), &request)
    }

    fn names(touched: &Touched) -> Vec<&str> {
        touched.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn names_and_paths_are_touched() {
        assert_eq!(names(&touched(&["/a/x", "c://y"], "/elsewhere")), ["a", "c"]);
        assert_eq!(names(&touched(&["/ab"], "b://y")), ["a", "b"]);
        assert_eq!(names(&touched(&["/a/b*"], "/c")), ["a", "c"]);
        assert_eq!(names(&touched(&["s3://x/old/run/"], "s3://x/new")), ["old"]);
        assert_eq!(names(&touched(&["node2:/a/x"], "/x")), [""; 0]);
        let some = touched(&["/a"], "c://");
        assert_eq!(Touched::of_text(&some.text()), some);
        assert_eq!(
            (Touched::default().text(), Touched::of_text("")),
            (String::new(), Touched::default())
        );
    }

    #[test]
    fn what_is_shared_is_what_is_agreed_now() {
        let mut system = Spaces::default();
        system.give("a=/a", &|_| None).unwrap();
        // One of the user's own that has the name of the system's.
        system.give("b=/other", &|_| None).unwrap();
        let means = Means { spaces: spaces(), common: Some(system), ..Means::default() };
        let bounds = Bounds::of(&means);
        let all = touched(&["b://x", "c://x"], "old://y");
        assert_eq!(bounds.kind(&all), ["a"]);
        let seats: Vec<_> = bounds.seats(&all).into_iter().map(|(key, n)| (key.0, n)).collect();
        assert_eq!(seats, [("a".to_owned(), 2), ("old".to_owned(), 1)]);
        assert!(
            bounds.covers(&all, &touched(&["/a/x"], "/c"))
                && !bounds.covers(&touched(&["/c"], "/d"), &all)
        );
        assert!(bounds.check(&all).is_ok());
        let b = ("b".to_owned(), "/a/b".to_owned());
        assert!(bounds.limit(&b) == Some(1_000_000) && !bounds.is_common(&b));
    }

    #[test]
    fn who_touches_one_that_is_gentle_gives_way() {
        let text = "[dataspace.a]\npath = \"/a\"\n[dataspace.g]\npath = \"/g\"\ngentle = true\n\
                    [dataspace.no]\npath = \"/no\"\ngentle = false\nlimit = \"1MB\"\n";
        let spaces = Spaces::parse(text, &|_| None).unwrap();
        let rules: Vec<Rule> = spaces.bound().map(Rule::from).collect();
        assert_eq!(rules.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["g", "no"]);
        let of = |some: &[Rule]| gentle(&spaces, &Touched::default().with(some));
        assert!(of(&rules) && of(&rules[..1]) && !of(&rules[1..]) && !of(&[]));
        // Nothing is counted, and so nothing is waited for.
        let touched = Touched::default().with(&rules[..1]);
        let bounds = Bounds::of(&Means { spaces: spaces.clone(), ..Means::default() });
        assert!(bounds.shared(&touched).count() == 0 && bounds.seats(&touched).is_empty());
    }

    #[test]
    fn too_many_at_once_are_refused() {
        let text = |i| format!("[dataspace.s{i}]\npath = \"/s/{i}\"\ntransfers = 1\n");
        let spaces = Spaces::parse(&(0..9).map(text).collect::<String>(), &|_| None).unwrap();
        let all: Vec<Rule> = spaces.bound().map(Rule::from).collect();
        let bounds = Bounds::of(&Means { spaces, ..Means::default() });
        assert!(bounds.check(&Touched::default().with(&all)).is_err());
        bounds.check(&Touched::default().with(all.iter().skip(1))).unwrap();
    }
}
