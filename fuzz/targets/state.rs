//! Kernel states from a rank that cannot be trusted: decoded, merged, finished, encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::{ColumnInfo, ColumnKind, DType, Order, RecordKind, Schema, Shape};
use stead_fuzz::choices;
use stead_kernel::{Context, Spec, registry};

fn volume() -> Schema {
    Schema {
        records: RecordKind::Items,
        columns: vec![ColumnInfo { name: "0".into(), kind: ColumnKind::Binary(DType::F32) }],
        shape: Shape::new(vec![4, 4, 4]).ok().map(|s| s.with_order(Order::C)),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([which], data)) = choices::<1>(data) else { return };
    let examples: Vec<&str> = SPECS.to_vec();
    let Ok(spec) = Spec::parse(examples[usize::from(which) % examples.len()]) else { return };
    let schema = if spec.name == "render" { volume() } else { stead_fuzz::schema() };
    let context = Context { schema: &schema, path: None, grouped: false };
    let built = registry::build(&spec, &context).expect("a specification that is known to work");
    let kernel = built.kernel;
    let Ok(state) = kernel.decode(data) else { return };
    let _ = kernel.state_bytes(&state);
    let mut total = kernel.init();
    if kernel.merge(&mut total, state).is_ok() {
        if let Ok(again) = kernel.decode(data) {
            let _ = kernel.merge(&mut total, again);
        }
        let _ = kernel.encode(&total);
        let _ = kernel.finish(total);
    }
});

/// One of each kernel, on the columns of `stead_fuzz::schema`.
const SPECS: &[&str] = &[
    "lines",
    "rows",
    "count:x",
    "sum:x",
    "mean:x",
    "var:x",
    "std:x",
    "min:x",
    "max:x",
    "hist:x",
    "hist:x,bins=5,min=0,max=9",
    "quantile:x",
    "digits",
    "entropy",
    "gram:x,y",
    "grep:a",
    "grep:a,lines",
    "kmeans:x,y,k=2",
    "kmeans:x,y,k=2,init=random",
    "normalize:x,out=n.npy",
    "normalize:x,y,zscore,out=n.npy",
    "normalize:x,l2,out=n.csv",
    "render:out=v.png,width=4,height=4",
];
