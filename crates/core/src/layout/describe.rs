//! What a layout is, for people and programs.

use super::Layout;
use crate::Result;
use serde::Serialize;

/// What a layout is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayoutDescription {
    /// Name of the file that the parts make up.
    pub name: String,
    /// Bytes of it.
    pub bytes: u64,
    /// Bytes of a stripe; `None` if stripes end where records end.
    pub stripe: Option<u64>,
    /// Number of stripes.
    pub stripes: u64,
    /// The nodes, in the order in which they are first named.
    pub nodes: Vec<NodeDescription>,
    /// The parts.
    pub parts: Vec<PartDescription>,
}

/// What a node has of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeDescription {
    /// Its name.
    pub node: String,
    /// How many parts it has.
    pub parts: usize,
    /// Bytes of these.
    pub bytes: u64,
    /// Its share of the bytes of the file, from 0 to 1.
    pub share: f64,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartDescription {
    /// The node that has it.
    pub node: String,
    /// The dataspace of that node, if it is in one.
    pub space: Option<String>,
    /// Its path.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// Number of stripes.
    pub stripes: u64,
    /// Its share of the bytes of the file, from 0 to 1.
    pub share: f64,
    /// The algorithm and the sum, if there is one.
    pub checksum: Option<String>,
}

impl Layout {
    /// What the layout is.
    ///
    /// # Errors
    /// None for a layout that was made.
    pub fn describe(&self) -> Result<LayoutDescription> {
        let share = |bytes: u64| bytes as f64 / self.length().max(1) as f64;
        let parts = self.parts().iter().enumerate().map(|(i, part)| {
            Ok(PartDescription {
                node: part.node.clone(),
                space: part.space.clone(),
                path: part.path.clone(),
                bytes: part.length,
                stripes: self.held(&[i])?.stripes(),
                share: share(part.length),
                checksum: part.checksum.as_ref().map(ToString::to_string),
            })
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let nodes = self.nodes().into_iter().map(|(node, has)| {
            let bytes = has.iter().map(|i| self.parts()[*i].length).sum();
            NodeDescription { node: node.to_owned(), parts: has.len(), bytes, share: share(bytes) }
        });
        Ok(LayoutDescription {
            name: self.name().to_owned(),
            bytes: self.length(),
            stripe: self.stripe_size(),
            stripes: self.stripes(),
            nodes: nodes.collect(),
            parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;

    #[test]
    fn a_layout_is_described() {
        let parts = ["a", "b", "a"].map(|n| Part::new(n, format!("x/{n}")));
        let parts =
            parts.into_iter().enumerate().map(|(i, p)| Part { path: format!("x/{i}"), ..p });
        let layout = Layout::even("f", 100, 30, parts.collect()).unwrap();
        let d = layout.describe().unwrap();
        assert_eq!((d.stripes, d.stripe, d.bytes), (4, Some(30), 100));
        let nodes: Vec<_> = d.nodes.iter().map(|n| (&*n.node, n.parts, n.bytes)).collect();
        assert_eq!(nodes, [("a", 2, 70), ("b", 1, 30)]);
        let parts: Vec<_> = d.parts.iter().map(|p| (p.bytes, p.stripes)).collect();
        assert_eq!(parts, [(40, 2), (30, 1), (30, 1)]);
        assert!((d.nodes[0].share - 0.7).abs() < 1e-12);
        let empty =
            Layout::even("f", 0, 30, vec![Part::new("a", "x")]).unwrap().describe().unwrap();
        assert_eq!((empty.stripes, empty.parts[0].share), (0, 0.0));
    }
}
