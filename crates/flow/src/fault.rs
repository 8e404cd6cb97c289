//! Where a text of TOML is wrong within a node: of a table that says by `op` what it is, the parser tells where it begins, and no more.

use crate::graph::Operator;
use serde::Deserialize;
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// Keys of a node of which it is looked which one is wrong: no operator has as many.
const MOST_KEYS: usize = 64;

/// Where the node that this message is about says what is wrong, and the message with its name and its key.
pub fn find(text: &str, message: &str) -> Option<(Range<usize>, String)> {
    let whole: Table = toml::from_str(text).ok()?;
    let is_it = |node: &Value| wrong(node).is_some_and(|said| said == message);
    let nodes = whole.get("node")?.as_table()?;
    let (name, node) = nodes.iter().find(|(_, node)| is_it(node))?;
    let key = node.as_table().and_then(|keys| culprit(keys, message));
    let spans = DeTable::parse(text).ok()?;
    let (_, nodes) = entry(spans.get_ref(), "node")?;
    let (mut at, keys) = entry(table(nodes)?, name)?;
    let shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    let mut told = format!("node '{shown}': ");
    if let Some(key) = key {
        if let Some((of_key, _)) = table(keys).and_then(|keys| entry(keys, key)) {
            at = of_key;
        }
        let shown: String = key.chars().take(40).flat_map(char::escape_debug).collect();
        told += &format!("{shown}: ");
    }
    Some((at, told + message))
}

/// What is wrong with a node.
fn wrong(node: &Value) -> Option<String> {
    Operator::deserialize(node.clone()).err().map(|e| e.message().to_owned())
}

/// The key without which something else would be wrong, or nothing.
fn culprit<'k>(keys: &'k Table, message: &str) -> Option<&'k str> {
    if message.starts_with("missing field") || keys.len() > MOST_KEYS {
        return None;
    }
    let is_it = |key: &&str| {
        let mut without = keys.clone();
        without.remove(*key);
        wrong(&Value::Table(without)).is_none_or(|said| said != message)
    };
    // Without `op` all are wrong, in another way.
    let all = keys.keys().map(String::as_str);
    let others = all.filter(|key| *key != "op").chain(keys.contains_key("op").then_some("op"));
    others.into_iter().find(is_it)
}

fn table<'t, 'i>(value: &'t DeValue<'i>) -> Option<&'t DeTable<'i>> {
    match value {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Where a key is, and its value.
fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<(Range<usize>, &'t DeValue<'i>)> {
    let found = table.iter().find(|(name, _)| name.get_ref().as_ref() == key);
    found.map(|(name, value)| (name.span(), value.get_ref()))
}
