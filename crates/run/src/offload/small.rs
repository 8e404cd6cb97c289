//! What the head runs alone: data that are read sooner than other ranks are met. They stay open from one ask to the next.

use super::serve::{plain, seen};
use super::{Job, View};
use crate::clock::unix_seconds;
use crate::spread::are_files;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::{Result, limits};
use stead_format::{Dataset, OpenOptions};

/// Files that a small dataset has.
const FILES: usize = 64;
/// Runs of the view of one that is kept.
const RUNS: usize = 4096;
/// Bytes of the names of one that is kept.
const NAMES: usize = 1 << 16;
/// Seconds after which one that nobody has asked for is closed: a file that was removed takes room on its disk as long as it is open.
const UNUSED: i64 = 60;
/// Seconds after which two changes of a file have different times.
const SETTLED: i64 = 2;

/// What a file is: device, inode, length, and when its bytes and anything of it were changed.
type Identity = (u64, u64, u64, (i64, i64), (i64, i64));

struct Kept {
    inputs: Vec<String>,
    open: OpenOptions,
    view: Option<View>,
    files: Vec<(PathBuf, Identity)>,
    dataset: Arc<Dataset>,
    /// When it was asked for last, in seconds.
    used: i64,
}

/// Small datasets that are open, the one that was used last at the end.
pub struct Small {
    /// Bytes of data that are few.
    few: u64,
    kept: Vec<Kept>,
}

impl Small {
    /// Datasets of so many bytes at most, none so far.
    pub fn of(few: u64) -> Small {
        Small { few, kept: Vec::new() }
    }

    /// The dataset of a job, if it is small and all of it is here. What is wrong with others is found by all ranks.
    pub fn dataset(&mut self, job: &Job) -> Option<Result<Arc<Dataset>>> {
        let files = files(job)?;
        let bytes = job.view.as_ref().map_or_else(
            || files.iter().fold(0u64, |n, (_, id)| n.saturating_add(id.2)),
            View::len,
        );
        let other = |bytes| files.first().is_none_or(|(_, id)| id.2 != bytes);
        if bytes > self.few || (job.view.is_some() && job.file_bytes.is_some_and(other)) {
            return None;
        }
        let same = |k: &Kept| {
            k.inputs == job.inputs && k.open == job.open && k.view == job.view && k.files == files
        };
        if let Some(i) = self.kept.iter().position(same) {
            let kept = Kept { used: unix_seconds(), ..self.kept.remove(i) };
            let dataset = kept.dataset.clone();
            self.kept.push(kept);
            return Some(Ok(dataset));
        }
        let opened = match &job.view {
            None => Dataset::open(&job.inputs, &job.open),
            Some(_) => {
                Dataset::open(&job.inputs, &plain(&job.open)).and_then(|whole| seen(whole, job))
            }
        };
        // What few bytes become may be much.
        if opened.as_ref().is_ok_and(|d| d.is_compressed().unwrap_or(false)) {
            return None;
        }
        Some(opened.map(|dataset| {
            let dataset = Arc::new(dataset);
            self.keep(job, files, &dataset);
            dataset
        }))
    }

    fn keep(&mut self, job: &Job, files: Vec<(PathBuf, Identity)>, dataset: &Arc<Dataset>) {
        let now = unix_seconds();
        let settled = files.iter().all(|(_, id)| id.4.0.saturating_add(SETTLED) < now);
        let runs = job.view.as_ref().map_or(0, |v| v.parts().2.len());
        let names = job.inputs.iter().map(String::len).sum::<usize>();
        // What was open of the same names is of files that are not any more.
        self.kept.retain(|k| (&k.inputs, &k.open, &k.view) != (&job.inputs, &job.open, &job.view));
        if !settled || runs > RUNS || names > NAMES {
            return;
        }
        if self.kept.len() >= limits::MAX_KEPT_DATASETS {
            self.kept.remove(0);
        }
        self.kept.push(Kept {
            inputs: job.inputs.clone(),
            open: job.open.clone(),
            view: job.view.clone(),
            files,
            dataset: dataset.clone(),
            used: now,
        });
    }

    /// Closes what nobody has asked for lately.
    pub fn tidy(&mut self) {
        let now = unix_seconds();
        self.kept.retain(|k| now.saturating_sub(k.used) < UNUSED);
    }
}

/// The files of a job, if they are few and all of them are here.
fn files(job: &Job) -> Option<Vec<(PathBuf, Identity)>> {
    if !are_files(&job.inputs).unwrap_or(false) {
        return None;
    }
    let paths = stead_store::expand(&job.inputs).ok().filter(|p| p.len() <= FILES)?;
    let with = |path: PathBuf| {
        let m = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        // Opened, so that a file of the network is looked at anew: its attributes may be remembered for long otherwise. One that
        // cannot be opened is found so again when it is to be read.
        let m = std::fs::File::open(&path).and_then(|file| file.metadata()).unwrap_or(m);
        let (changed, any) = ((m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
        Some((path, (m.dev(), m.ino(), m.len(), changed, any)))
    };
    paths.into_iter().map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn job(path: &Path) -> Job {
        Job { inputs: vec![path.to_string_lossy().into_owned()], ..Job::default() }
    }

    fn is_kept(small: &Small, job: &Job) -> bool {
        small.kept.iter().any(|k| k.inputs == job.inputs)
    }

    #[test]
    fn what_is_large_or_not_here_is_for_all_ranks() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("few.csv"), "x\n1\n2\n").unwrap();
        std::fs::File::create(at("many.bin"))
            .unwrap()
            .set_len(limits::SMALL_JOB_BYTES + 1)
            .unwrap();
        let mut small = Small::of(limits::SMALL_JOB_BYTES);
        assert!(small.dataset(&job(&at("few.csv"))).unwrap().is_ok());
        assert!(small.dataset(&job(&at("many.bin"))).is_none());
        assert!(small.dataset(&job(&at("none.csv"))).is_none());
        assert!(small.dataset(&job(&at("out.%r.bin"))).is_none());
        // Few bytes that become many.
        let packed = [
            31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 224, 50, 228, 2, 0, 21, 60, 208, 164, 4, 0, 0, 0,
        ];
        std::fs::write(at("packed.csv.gz"), packed).unwrap();
        assert!(small.dataset(&job(&at("packed.csv.gz"))).is_none());
        // Of a large file, a little.
        let view = Some(View::new(0, 1024, vec![(0, 8)], 0, 8000).unwrap());
        let seen = small.dataset(&Job { view, ..job(&at("many.bin")) }).unwrap().unwrap();
        assert_eq!(seen.total_bytes(), 8000);
        let all = limits::SMALL_JOB_BYTES + 1;
        let view = Some(View::stretch(0, all).unwrap());
        assert!(small.dataset(&Job { view, ..job(&at("many.bin")) }).is_none());
    }

    #[test]
    fn files_stay_open_until_they_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, "x\n1\n").unwrap();
        let mut small = Small::of(limits::SMALL_JOB_BYTES);
        let job = job(&path);
        // It was changed just now, and may be again without anybody seeing it.
        let first = small.dataset(&job).unwrap().unwrap();
        assert!(!is_kept(&small, &job));
        // As if it had been there for long.
        small.kept.push(Kept {
            inputs: job.inputs.clone(),
            open: job.open.clone(),
            view: None,
            files: files(&job).unwrap(),
            dataset: first.clone(),
            used: unix_seconds() - UNUSED / 2,
        });
        small.tidy();
        assert!(Arc::ptr_eq(&small.dataset(&job).unwrap().unwrap(), &first));
        let other = Job { lenient: true, ..job.clone() };
        assert!(Arc::ptr_eq(&small.dataset(&other).unwrap().unwrap(), &first));
        let view = Job { view: Some(View::stretch(0, 4).unwrap()), ..job.clone() };
        assert!(!Arc::ptr_eq(&small.dataset(&view).unwrap().unwrap(), &first));
        std::fs::write(&path, "x,y\n1,2\n").unwrap();
        let second = small.dataset(&job).unwrap().unwrap();
        assert_eq!(second.schema().columns.len(), 2);
        assert!(!is_kept(&small, &job));
        // One that nobody asks for does not stay open.
        let files = files(&job).unwrap();
        let used = unix_seconds() - UNUSED;
        small.kept.push(Kept {
            inputs: job.inputs.clone(),
            open: job.open.clone(),
            view: None,
            files,
            dataset: second,
            used,
        });
        small.tidy();
        assert!(!is_kept(&small, &job));
    }
}
