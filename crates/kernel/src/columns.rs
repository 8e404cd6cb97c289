//! The columns that a specification names: `mean:x`, `mean:x,y`, `mean:*`.

use crate::{Context, Spec};
use stead_core::{Needs, Result, Value};

/// The numeric columns that a kernel works on.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// Schema indices, in the order in which they were named.
    pub ids: Vec<usize>,
    /// Their names.
    pub names: Vec<String>,
    /// True if exactly one was named: the answer is then a plain value and no map.
    pub single: bool,
}

impl Chosen {
    /// The columns that `args` name. `*` stands for all numeric columns; no argument at all for the only
    /// numeric column of a dataset that has but one.
    pub fn numbers(spec: &Spec, args: &[&str], context: &Context<'_>) -> Result<Chosen> {
        let schema = context.schema;
        let all = schema.numbers();
        let (ids, single) = match args {
            [] if all.len() == 1 => (all, true),
            [] => {
                return Err(spec.error(format!(
                    "it needs a column, for example {}:NAME or {}:* for all numeric ones",
                    spec.name, spec.name
                )));
            }
            ["*"] if all.is_empty() => return Err(spec.error("there is no numeric column")),
            ["*"] => (all, false),
            names => {
                let ids = names.iter().map(|n| schema.number(n)).collect::<Result<Vec<_>>>()?;
                (ids, names.len() == 1)
            }
        };
        for (i, id) in ids.iter().enumerate() {
            if ids[..i].contains(id) {
                let name = &schema.columns[*id].name;
                return Err(spec.error(format!("column '{name}' is named twice")));
            }
        }
        let names = ids.iter().map(|i| schema.columns[*i].name.clone()).collect();
        Ok(Chosen { ids, names, single })
    }

    /// All arguments of a specification name columns.
    pub fn of(spec: &Spec, context: &Context<'_>) -> Result<Chosen> {
        let args: Vec<&str> = spec.args.iter().map(String::as_str).collect();
        Chosen::numbers(spec, &args, context)
    }

    /// What a kernel over these columns needs.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        needs.add(&Needs { numbers: self.ids.clone(), ..Needs::default() });
        needs
    }

    /// A text that tells these columns from all others.
    pub fn key(&self) -> String {
        let ids: Vec<String> = self.ids.iter().map(usize::to_string).collect();
        format!("{}{}", if self.single { "" } else { "*" }, ids.join(","))
    }

    /// The answer from one value a column: the value itself, or a map by name.
    pub fn value(&self, values: impl IntoIterator<Item = Value>) -> Value {
        let mut values = values.into_iter();
        if self.single {
            values.next().unwrap_or(Value::Null)
        } else {
            Value::Map(self.names.iter().cloned().zip(values).collect())
        }
    }
}

/// Which members of a kernel's answer somebody wants: all of them unless it is said.
#[derive(Debug, Clone, Default)]
pub struct Only(Option<Vec<&'static str>>);

impl Only {
    /// These.
    pub fn these(members: &[&'static str]) -> Only {
        Only(Some(members.to_vec()))
    }

    /// The answer that has these of all members. Where a single one is wanted it is the answer.
    pub fn answer(&self, all: &[&'static str], value: impl Fn(&'static str) -> Value) -> Value {
        match self.0.as_deref() {
            Some([member]) => value(member),
            wanted => {
                let wanted = wanted.unwrap_or(all);
                Value::Map(wanted.iter().map(|m| (m.to_string(), value(m))).collect())
            }
        }
    }
}
