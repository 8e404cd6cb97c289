//! What a run says in the end: its results by name, and how it was planned.

use super::Engine;
use crate::report::{Plan, PlannedKernel};
use stead_core::Value;
use stead_simd::Vectors;

impl Engine<'_> {
    /// The results by name. Values are moved out of the slots: those of many groups are large.
    pub(super) fn results(&mut self) -> Vec<(String, Value)> {
        let mut results: Vec<(String, Value)> =
            self.names.iter().map(|n| (n.clone(), Value::Null)).collect();
        let grouped = !self.request.by.is_empty();
        for slot in &mut self.slots {
            let last = slot.answers.len().saturating_sub(1);
            for (n, (index, pick)) in slot.answers.iter().enumerate() {
                results[*index].1 = match &mut slot.value {
                    // A grouped result is a map from group to the kernel's own result.
                    Value::Map(groups) if grouped && pick.member.is_some() => {
                        Value::Map(groups.iter().map(|(g, v)| (g.clone(), pick.of(v))).collect())
                    }
                    whole if pick.is_all() && n == last => std::mem::replace(whole, Value::Null),
                    whole => pick.of(whole),
                };
            }
        }
        results
    }

    pub(super) fn plan(&self, scan: Vec<(String, Value)>) -> Plan {
        let schema = self.dataset.schema();
        let kernels = self
            .slots
            .iter()
            .map(|s| PlannedKernel {
                answers: s.answers.iter().map(|(i, _)| self.names[*i].clone()).collect(),
                // Who asks for rows of an array reads all of it.
                columns: match s.needs.matrix {
                    true => schema.columns.iter().map(|c| c.name.clone()).collect(),
                    false => s
                        .needs
                        .numbers
                        .iter()
                        .chain(&s.needs.texts)
                        .filter_map(|c| schema.columns.get(*c).map(|c| c.name.clone()))
                        .collect(),
                },
                bytes: s.needs.bytes,
                passes: s.passes,
            })
            .collect();
        Plan {
            format: self.dataset.format_name().to_string(),
            files: self.dataset.files(),
            bytes: self.dataset.total_bytes(),
            threads: self.budget.threads,
            ranks: self.crew.size(),
            nodes: self.nodes,
            vectors: Vectors::chosen().name(),
            chunk_bytes: self.budget.chunk,
            memory_bytes: self.request.memory,
            place: self.placing.clone(),
            filter: self.filter.as_ref().map(|f| f.to_string()),
            by: self.request.by.clone(),
            kernels,
            scan,
        }
    }
}
