//! What block devices have moved, by their own counters.

use std::os::fd::AsFd;
use std::path::PathBuf;

/// Bytes that a device has moved since the system began, for whomever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Read from it.
    pub read: u64,
    /// Written to it.
    pub written: u64,
}

/// A block device, and where the system tells what it has moved (`Documentation/block/stat.rst` of Linux).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    counters: PathBuf,
}

impl Device {
    /// The device that a file or a folder lies on: the whole of it, of whatever part the file system has. None in memory, on servers
    /// and where several devices are one.
    pub fn of(file: impl AsFd) -> Option<Device> {
        #[allow(clippy::unnecessary_cast)]
        // The type of this field is another one on other systems.
        let dev = rustix::fs::fstat(file).ok()?.st_dev as u64;
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let of = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let whole = if of.join("partition").exists() { of.join("..") } else { of };
        let device = Device { counters: std::fs::canonicalize(whole.join("stat")).ok()? };
        device.moved().map(|_| device)
    }

    /// What it has moved so far.
    pub fn moved(&self) -> Option<Moved> {
        parse(&std::fs::read_to_string(&self.counters).ok()?)
    }

    /// True if it is persistent memory: processors reach its bytes themselves, as the system says (`queue/dax`).
    pub fn is_memory(&self) -> bool {
        let told = std::fs::read_to_string(self.counters.with_file_name("queue").join("dax"));
        told.is_ok_and(|text| text.trim() == "1")
    }
}

/// Sectors of 512 bytes, whatever those of the device are: the third and the seventh number.
fn parse(text: &str) -> Option<Moved> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let read = numbers.nth(2)?.ok()?.saturating_mul(512);
    let written = numbers.nth(3)?.ok()?.saturating_mul(512);
    Some(Moved { read, written })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let text = "  8 0 100 7 9 1 2000 5 0 3 3 0 0 0 0\n";
        assert_eq!(parse(text), Some(Moved { read: 51_200, written: 1_024_000 }));
        assert_eq!((parse("1 2 3"), parse(""), parse("a b c d e f g")), (None, None, None));
    }

    #[test]
    fn persistent_memory_is_known_by_what_the_system_says() {
        let dir = tempfile::tempdir().unwrap();
        let device = Device { counters: dir.path().join("stat") };
        assert!(!device.is_memory());
        std::fs::create_dir(dir.path().join("queue")).unwrap();
        for (text, is) in [("1\n", true), ("0\n", false), ("", false), ("11", false)] {
            std::fs::write(dir.path().join("queue/dax"), text).unwrap();
            assert_eq!(device.is_memory(), is, "{text:?}");
        }
    }

    #[test]
    fn a_device_counts_what_is_written_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = std::fs::File::create(dir.path().join("f")).unwrap();
        // In a container there may be none to be seen.
        let Some(device) = Device::of(&file) else { return };
        let before = device.moved().unwrap();
        std::io::Write::write_all(&mut file, &[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        assert!(device.moved().unwrap().written >= before.written + (1 << 20));
        let memory = std::fs::File::open("/dev/shm").unwrap();
        assert_eq!(Device::of(&memory), None);
    }
}
