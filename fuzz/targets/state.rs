//! Kernel states from a rank that cannot be trusted, of any pass and by groups: decoded, merged both ways,
//! finished, taken through the passes that follow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use stead_core::{
    Block, Brick, ColumnInfo, ColumnKind, Columns, DType, MISSING, Order, RecordKind, Schema,
    Shape, Span,
};
use stead_fuzz::choices;
use stead_kernel::{AnyKernel, Context, Grouped, Spec, Step, registry};

/// One of each kernel, on the columns of `stead_fuzz::schema`.
const SPECS: [&str; 26] = [
    "lines",
    "rows",
    "count:x",
    "sum:x",
    "mean:x",
    "var:x",
    "std:x,y",
    "min:x",
    "max:x",
    "hist:x",
    "hist:x,bins=5,min=0,max=9",
    "quantile:x",
    "quantile:y,q=0;0.5;1,exact",
    "digits",
    "entropy",
    "gram:x,y",
    "grep:a",
    "grep:a,lines",
    "kmeans:x,y,k=2",
    "kmeans:x,y,k=2,init=random",
    "kmeans:x,k=3,init=first,tol=0,rounds=2",
    "normalize:x,out=n.npy",
    "normalize:x,y,zscore,out=n.npy",
    "normalize:x,l2,out=n.csv",
    "render:out=v.png,width=4,height=4",
    "render:out=v.png,width=3,height=5,min=0,max=9",
];

const TEXT: &[u8] = b"1,3,UA\n2,-7.5,caf\xe9\nNA,0,\n-0,NA,UA\n1e308,9,a\n";

fn volume() -> Schema {
    Schema {
        records: RecordKind::Items,
        columns: vec![ColumnInfo { name: "value".into(), kind: ColumnKind::Binary(DType::F32) }],
        shape: Shape::new(vec![40, 3, 3]).ok().map(|s| s.with_order(Order::C)),
    }
}

/// Two blocks of a table, or of the volume.
fn blocks(brick: bool, each: &mut dyn FnMut(&Block<'_>)) {
    if brick {
        let voxels: Vec<f32> = (0..360).map(|i| (i % 7) as f32).collect();
        for (first, planes, len) in [(0, 32, 34 * 9), (32, 8, 8 * 9)] {
            let voxels = &voxels[first as usize * 9..][..len];
            let brick = Brick { shape: [40, 3, 3], order: Order::C, first, planes, voxels };
            each(&Block { seq: first, rows: planes * 9, brick: Some(brick), ..Block::empty() });
        }
        return;
    }
    let numbers = [1.0, 2.0, MISSING, -0.0, 1e308, 3.0, -7.5, 0.0, MISSING, 9.0];
    let span = |&(start, len): &(u32, u32)| Span { start, len };
    let records = [(0, 7), (7, 12), (19, 6), (25, 9), (34, 10)].map(|s| span(&s));
    let texts = [(4, 2), (14, 4), (0, u32::MAX), (31, 2), (42, 1)].map(|s| span(&s));
    let texts: Vec<Span> = texts.iter().chain(&texts).copied().collect();
    let whole = Block {
        rows: 5,
        text: TEXT,
        records: &records,
        last: true,
        columns: Columns {
            number_ids: &[0, 1],
            numbers: &numbers,
            text_ids: &[2, 3],
            spans: &texts,
            text_data: TEXT,
            stride: 5,
        },
        ..Block::empty()
    };
    let mut scratch = stead_core::Selection::default();
    each(&whole.select(&[0, 1, 2], &mut scratch));
    each(&whole.select(&[3, 4], &mut scratch));
}

fn updated(kernel: &Arc<dyn AnyKernel>) -> stead_kernel::AnyState {
    let mut state = kernel.init();
    let brick = kernel.needs().brick.is_some();
    // A kernel whose plan came from a malformed state may refuse the data.
    blocks(brick, &mut |b| drop(kernel.update(&mut state, b)));
    state
}

/// Some bytes of a valid state changed, inserted or removed.
fn edited(mut state: Vec<u8>, edits: &[u8]) -> Vec<u8> {
    for e in edits.chunks_exact(3) {
        let at = usize::from(e[1]) % (state.len() + 1);
        match e[0] & 3 {
            0 => state.insert(at, e[2]),
            1 if at < state.len() => drop(state.remove(at)),
            2 => state.truncate(at.max(1)),
            _ => state.get_mut(at).into_iter().for_each(|b| *b = e[2]),
        }
    }
    state
}

fuzz_target!(|data: &[u8]| {
    let Some(([which, passes, how], data)) = choices::<3>(data) else { return };
    let Ok(spec) = Spec::parse(SPECS[usize::from(which) % SPECS.len()]) else { return };
    let schema = if spec.name == "render" { volume() } else { stead_fuzz::schema() };
    let grouped = how & 1 != 0 && !matches!(spec.name.as_str(), "render" | "normalize");
    let context = Context { schema: &schema, path: None, grouped };
    let built = registry::build(&spec, &context).expect("a specification that is known to work");
    let mut kernel = built.kernel;
    if grouped {
        let by = if how & 2 == 0 { vec![2] } else { vec![1, 3] };
        kernel = Grouped::wrap(kernel, by, &schema).expect("columns that are there");
    }
    for _ in 0..passes & 3 {
        let state = updated(&kernel);
        match kernel.finish(state) {
            Ok(Step::Next(k)) => kernel = k,
            // Some of the data cannot be in a histogram.
            Ok(_) | Err(_) => break,
        }
    }
    let mine = updated(&kernel);
    let bytes = match how & 4 {
        0 => data.to_vec(),
        _ => edited(kernel.encode(&mine).expect("a valid state"), data),
    };
    let Ok(mut theirs) = kernel.decode(&bytes) else { return };
    let _ = kernel.state_bytes(&theirs);
    let again = kernel.encode(&theirs).expect("what was decoded can be encoded");
    let twice = kernel.decode(&again).expect("what was encoded can be decoded");
    assert!(
        kernel.encode(&twice).expect("encoded before") == again,
        "a state changes as it travels"
    );
    let mut total = updated(&kernel);
    if kernel.merge(&mut total, twice).is_ok() {
        let _ = kernel.state_bytes(&total);
        let sent = kernel.encode(&total).expect("a merged state");
        let _ = kernel.decode(&sent).expect("a merged state fits the kernel");
        let _ = kernel.finish(total);
    }
    let _ = kernel.merge(&mut theirs, mine);
    if kernel.cuts() {
        let pieces = kernel.cut(kernel.decode(&bytes).expect("decoded before"), 3);
        let closed = pieces.and_then(|all| all.into_iter().map(|p| kernel.close(p)).collect());
        if let Ok(closed) = closed {
            let _ = kernel.assemble(closed).and_then(|whole| kernel.finish(whole));
        }
        // As if others had closed theirs.
        let theirs = kernel.decode(&bytes).expect("decoded before");
        let _ = kernel.assemble(vec![theirs]).and_then(|whole| kernel.finish(whole));
    }
    let mut state = kernel.decode(&bytes).expect("decoded before");
    for _ in 0..4 {
        match kernel.finish(state) {
            Ok(Step::Next(k)) => kernel = k,
            _ => break,
        }
        let _ = (kernel.needs(), kernel.sink());
        state = updated(&kernel);
    }
});
