//! Tells builds of stead apart that would not understand each other.

include!("../store/build_id.rs");

fn main() {
    println!("cargo:rerun-if-changed=../store/build_id.rs");
    build_id(&["core", "store", "fabric", "mpi", "read"]);
}
