//! `stead kernels`.

use crate::args::{Described, KernelsArgs};
use crate::output;
use serde_json::json;
use stead::Result;
use stead::kernels::{FILTER_HELP, Info, info, list};

/// Columns of a page of text.
const WIDTH: usize = 96;

pub fn kernels(a: &KernelsArgs) -> Result<()> {
    match (&a.name, a.format) {
        (Some(name), _) if name == "where" => {
            output::text(&format!("{}\n", FILTER_HELP.trim_end()))
        }
        (Some(name), Described::Table) => output::text(&page(info(name)?)),
        (Some(name), Described::Json) => output::json(&object(info(name)?)),
        (None, Described::Json) => output::json(&list().map(object).collect::<Vec<_>>()),
        (None, Described::Table) => {
            let wide = list().map(|i| i.name.len()).max().unwrap_or(0);
            let mut s = String::new();
            for i in list() {
                s.push_str(&format!("  {:wide$}  {}\n", i.name, i.summary));
            }
            s.push_str(
                "\n'stead kernels NAME' explains one; 'stead kernels where' explains filters.\n",
            );
            output::text(&s)
        }
    }
}

fn object(i: &Info) -> serde_json::Value {
    json!({
        "name": i.name, "summary": i.summary, "usage": i.usage, "definition": i.definition,
        "error": i.error, "cost": i.cost, "source": i.source, "examples": i.examples,
    })
}

fn page(i: &Info) -> String {
    let mut s = format!("{} - {}\n\nUsage\n  {}\n", i.name, i.summary, i.usage);
    for (title, text) in
        [("Definition", i.definition), ("Error", i.error), ("Cost", i.cost), ("Source", i.source)]
    {
        s.push_str(&format!("\n{title}\n"));
        for line in text.trim().lines() {
            let indent = textwrap::Options::new(WIDTH).initial_indent("  ").subsequent_indent("  ");
            s.push_str(&format!("{}\n", textwrap::fill(line.trim(), indent)));
        }
    }
    s.push_str("\nExamples\n");
    for e in i.examples {
        s.push_str(&format!("  stead run DATASET -k '{}'\n", e.replace('\'', "'\\''")));
    }
    s
}
