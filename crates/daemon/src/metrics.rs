//! Numbers about a user's transfers and flows, as Prometheus reads them.

use std::fmt::Write;
use stead_core::Result;
use stead_stage::Queue;

/// The daemon gives as many as are wanted, and none to who wants none.
const SLOTS: &str =
    "Transfers that may be under way now, of those that run or wait; 0 if none does.";

/// One metric: what it is called, what it counts, and its values by label.
fn metric(text: &mut String, name: &str, help: &str, values: &[(String, f64)]) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP stead_{name} {help}\n# TYPE stead_{name} gauge");
    for (labels, value) in values {
        let _ = match labels.as_str() {
            "" => writeln!(text, "stead_{name} {value}"),
            labels => writeln!(text, "stead_{name}{{{labels}}} {value}"),
        };
    }
}

/// A label: its value is in quotes, with what must not be there escaped.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// All of them, as text in the format of version 0.0.4.
///
/// # Errors
/// Those of the journal.
pub(crate) fn text(
    queue: &Queue,
    connections: usize,
    drained: bool,
    nodes: usize,
    flows: usize,
) -> Result<String> {
    let mut text = String::new();
    let totals = queue.totals()?;
    let of = |what: &dyn Fn(&stead_stage::Totals) -> u64| -> Vec<(String, f64)> {
        totals.iter().map(|t| (label("state", t.state.as_str()), what(t) as f64)).collect()
    };
    metric(
        &mut text,
        "transfers",
        "Transfers that were ever taken, by state.",
        &of(&|t| t.transfers),
    );
    metric(&mut text, "transfer_names", "Names that these have done.", &of(&|t| t.files_done));
    metric(&mut text, "transfer_bytes", "Bytes that these have moved.", &of(&|t| t.bytes_done));
    let rates: Vec<_> = (queue.stager().rates()?.into_iter())
        .map(|(pair, rate)| {
            let (from, to) = pair.split_once('>').unwrap_or((&pair, ""));
            (format!("{},{}", label("from", from), label("to", to)), rate)
        })
        .collect();
    metric(
        &mut text,
        "tier_bytes_per_second",
        "Rate of large files between tiers, as seen.",
        &rates,
    );
    let slots = [(String::new(), queue.slots() as f64)];
    metric(&mut text, "transfer_slots", SLOTS, &slots);
    let connections = [(String::new(), connections as f64)];
    let drained = [(String::new(), f64::from(u8::from(drained)))];
    metric(&mut text, "drained", "1 if no transfers are taken and begun.", &drained);
    metric(&mut text, "connections", "Open connections of programs.", &connections);
    let flows = [(String::new(), flows as f64)];
    metric(&mut text, "flows", "Flows that run.", &flows);
    let nodes = [(String::new(), nodes as f64)];
    metric(&mut text, "pool_nodes", "Nodes of the pool that the daemon belongs to.", &nodes);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = String::new();
        metric(&mut text, "x", "X.", &[(label("a", "b\"\\\n"), 1.5), (String::new(), 2.0)]);
        let wanted =
            "# HELP stead_x X.\n# TYPE stead_x gauge\nstead_x{a=\"b\\\"\\\\\\n\"} 1.5\nstead_x 2\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn who_has_nothing_to_do_is_given_nothing_and_is_told_why() {
        let dir = tempfile::tempdir().unwrap();
        let means = stead_stage::Means::default();
        let stager = std::sync::Arc::new(stead_stage::Stager::open(dir.path(), means).unwrap());
        let queue = Queue::open(stager, || {}).unwrap();
        queue.set_share(stead_stage::Share::default());
        let text = text(&queue, 1, false, 1, 0).unwrap();
        queue.end();
        let wanted = "# HELP stead_transfer_slots Transfers that may be under way now, of those that run or wait; \
                      0 if none does.\n# TYPE stead_transfer_slots gauge\nstead_transfer_slots 0\n";
        assert!(text.contains(wanted), "{text}");
    }
}
