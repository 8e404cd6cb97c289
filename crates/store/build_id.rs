// Included by the build scripts of rooms that talk to other ranks.

use std::path::{Path, PathBuf};

/// Gives the room `STEAD_BUILD`: a number that changes with the sources of these rooms. Messages between ranks have no other
/// description than the code on both sides.
fn build_id(rooms: &[&str]) {
    let crates = Path::new("..");
    // FNV-1a: the same wherever it is computed.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for room in rooms {
        let folder = crates.join(room).join("src");
        println!("cargo:rerun-if-changed={}", folder.display());
        for file in sources(&folder) {
            add(file.to_string_lossy().as_bytes());
            add(&std::fs::read(&file).unwrap_or_default());
        }
    }
    println!("cargo:rustc-env=STEAD_BUILD={:08x}", hash >> 32 ^ hash & 0xffff_ffff);
}

/// All files under a folder, in the order of their names.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}
