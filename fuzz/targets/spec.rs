//! Kernel specifications: parsed and built against a schema, plain and by groups.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_kernel::{Context, Spec, registry};

fuzz_target!(|text: &str| {
    let Ok(spec) = Spec::parse(text) else { return };
    let schema = stead_fuzz::schema();
    for grouped in [false, true] {
        let context = Context { schema: &schema, path: None, grouped };
        if let Ok(built) = registry::build(&spec, &context) {
            let _ = (built.kernel.needs(), built.kernel.sink());
            let state = built.kernel.init();
            let _ = built.kernel.finish(state);
        }
    }
});
