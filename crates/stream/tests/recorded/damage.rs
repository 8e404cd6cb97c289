//! Files that were changed or cut off: what is told of them, what is still read, and how they go.

use super::{Place, bounds, bytes, shape, whole, write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_core::Kind;
use stead_stream::{Progress, Read, Reader};

/// Changes bytes of a file, or cuts it off.
fn damage(path: &Path, at: u64, cut: bool) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    if cut {
        return file.set_len(at).unwrap();
    }
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_recording_whose_data_is_cut_off_is_not_called_whole() {
    let place = Place::new();
    write(&place, 2, 5, &|written| written);
    let list = || stead_stream::recordings("disk://run", &place.spaces).unwrap().remove(0);
    let (all, told) = (list(), place.told("disk://run"));
    assert!(all.is_whole && all.damage.is_none() && told.damage.is_none());
    let data = place.disk("run").join("1.data");
    let bytes = std::fs::read(&data).unwrap();
    let len = bytes.len() as u64;
    for (at, step) in [(len - 1, 4), (10, 0), (0, 0)] {
        std::fs::write(&data, &bytes).unwrap();
        damage(&data, at, true);
        let says = format!("cut off: step {step} and those after it are not all there");
        let cut = list();
        assert_eq!((cut.steps, cut.is_whole, &cut.state), (5, false, &Progress::Ended));
        assert_eq!(cut.bytes, all.bytes - (len - at));
        let why = cut.damage.unwrap();
        assert!(why.contains(&says) && why.contains("1.data"), "{why}");
        let told = place.told("disk://run");
        assert_eq!((told.damage, told.complete, told.variables.len()), (Some(why), 5, 0));
    }
    // What cannot be found is damage of this one, and no error of all.
    std::fs::remove_file(&data).unwrap();
    let gone = list();
    assert!(!gone.is_whole && gone.damage.as_ref().unwrap().contains("1.data"), "{gone:?}");
    std::fs::write(&data, &bytes).unwrap();
    assert_eq!(list(), all);
    // A head that is damaged is told of where it is needed.
    damage(&data, len - 1, false);
    let told = place.told("disk://run");
    assert!(told.damage.unwrap().contains("what writer 1 has recorded of step 4 is damaged"));
}

#[test]
fn how_to_remove_what_cannot_be_read_is_said() {
    let place = Place::new();
    write(&place, 1, 2, &|written| written);
    let run = place.disk("run");
    let remove = |force| stead_stream::remove("disk://run", &place.spaces, force);
    let card = std::fs::read(run.join("stream.json")).unwrap();
    std::fs::write(run.join("stream.json"), "garbage").unwrap();
    for force in [false, true] {
        let error = remove(force).unwrap_err();
        let hint = error.hint().unwrap().to_owned();
        assert_eq!(error.kind(), Kind::Format);
        assert!(
            hint.contains("remove it by hand") && hint.ends_with(run.to_str().unwrap()),
            "{hint}"
        );
    }
    std::fs::write(run.join("stream.json"), card).unwrap();
    damage(&run.join("0.index"), 5, false);
    let error = remove(false).unwrap_err();
    assert!(error.hint().unwrap().contains("force it"), "{error:?}");
    assert!(remove(true).unwrap() && !run.exists());
}

#[test]
fn damage_is_one_clear_error_and_what_is_whole_is_read() {
    let place = Place::new();
    write(&place, 2, 5, &|written| written);
    let run = place.disk("run");
    let kept: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(&run)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    let renew = || kept.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    // All steps that can be read, and the error.
    let all = || -> (u64, stead_core::Error) {
        let opened = Reader::open("disk://run", &Read { timeout: Duration::ZERO, ..place.read() });
        let mut reader = match opened {
            Ok(reader) => reader,
            Err(e) => return (0, e),
        };
        let mut had = 0;
        loop {
            let step = match reader.next_step() {
                Ok(step) => step.expect("it ended well"),
                Err(e) => return (had, e),
            };
            let part = whole(&shape(had));
            match step
                .get("T", &part)
                .and_then(|t| Ok((t, step.get("small", &bounds(&[0], &[80]))?)))
            {
                Ok((t, _)) => assert!(t.bytes() == bytes(had, &part)),
                Err(e) => return (had, e),
            }
            had += 1;
        }
    };
    let data = std::fs::metadata(run.join("1.data")).unwrap().len();
    for (file, at, cut, says) in [
        ("1.data", 10, false, "what writer 1 has recorded of step 0 is damaged"),
        ("1.data", data - 1, false, "what writer 1 has recorded of step 4 is damaged"),
        ("1.data", data - 1, true, "what writer 1 has recorded of step 4 is damaged"),
        ("1.data", 0, true, "what writer 1 has recorded of step 0 is damaged"),
        ("0.index", 5, false, "this is no index of recorded steps"),
        ("0.index", 64 * 3 + 9, false, "what this says of recorded steps is damaged, at entry 2"),
        ("stream.json", 2, false, "this says of no stream"),
        ("stream.json", 20, true, "this says of no stream"),
    ] {
        renew();
        damage(&run.join(file), at, cut);
        let (had, error) = all();
        assert_eq!(error.kind(), Kind::Format, "{file} {at}: {error}");
        assert!(error.to_string().contains(says), "{file} {at}: {error}");
        let path = error.place().path.as_ref().unwrap().clone();
        assert!(path.ends_with(file), "{file}: {error}");
        assert!(had <= 4);
        if says.contains("step 4") {
            assert_eq!(had, 4);
        }
    }
    // The end of an index that is torn: what is before it is complete. Its writer still lives, for all that is known.
    for cut in [64 * 6, 64 * 6 - 1, 64 * 6 - 63] {
        renew();
        damage(&run.join("0.index"), cut, true);
        let (had, error) = all();
        assert_eq!((had, error.kind()), (cut / 64 - 1, Kind::Timeout), "{cut}: {error}");
    }
    renew();
    std::fs::remove_file(run.join("1.index")).unwrap();
    let (had, error) = all();
    assert!(had == 0 && error.message().contains("writer 1 has not recorded it"), "{error}");
}
