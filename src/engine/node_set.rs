//! Small sets of nodes, as jobs hold them: eight bytes for up to three nodes, more in
//! a side table. Insertion order is kept, so nothing depends on how nodes hash.

use crate::base::table::{Ref, Table};

/// A node that completed its handshake once. Never used again for another node while
/// the process lives, so that jobs may go on naming a node that was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRef(pub u16);

/// This node.
pub const ME: NodeRef = NodeRef(0);

const INLINE: usize = 3;
const SPILLED: u16 = u16::MAX;

/// A set of nodes. Not `Clone`: a spilled set is owned once, and given back with
/// [`NodeSets::release`].
#[derive(Debug, Default)]
pub struct NodeSet {
    len: u16,
    nodes: Inline,
}

#[derive(Clone, Copy, Debug)]
struct Inline([NodeRef; INLINE]);

impl Default for Inline {
    fn default() -> Self {
        Self([ME; INLINE])
    }
}

const _: () = assert!(size_of::<NodeSet>() == 8);

impl NodeSet {
    /// The set of this node alone.
    pub fn me() -> Self {
        Self { len: 1, nodes: Inline::default() }
    }

    fn spill(&self) -> Option<Ref<Vec<NodeRef>>> {
        let [low, high, _] = self.nodes.0;
        (self.len == SPILLED).then(|| Ref::from_slot(u32::from(low.0) | u32::from(high.0) << 16))
    }
}

/// The sets that do not fit inline.
#[derive(Default)]
pub struct NodeSets(Table<Vec<NodeRef>>);

impl NodeSets {
    pub fn as_slice<'a>(&'a self, set: &'a NodeSet) -> &'a [NodeRef] {
        match set.spill() {
            None => &set.nodes.0[..usize::from(set.len)],
            Some(spill) => &self.0[spill],
        }
    }

    pub fn contains(&self, set: &NodeSet, node: NodeRef) -> bool {
        self.as_slice(set).contains(&node)
    }

    /// Adds a node; `false` when it was there already.
    pub fn add(&mut self, set: &mut NodeSet, node: NodeRef) -> bool {
        if self.contains(set, node) {
            return false;
        }
        if let Some(spill) = set.spill() {
            self.0[spill].push(node);
        } else if usize::from(set.len) < INLINE {
            set.nodes.0[usize::from(set.len)] = node;
            set.len += 1;
        } else {
            let mut nodes = set.nodes.0.to_vec();
            nodes.push(node);
            let slot = self.0.insert(nodes).slot();
            set.nodes.0[0] = NodeRef((slot & 0xffff) as u16);
            set.nodes.0[1] = NodeRef((slot >> 16) as u16);
            set.len = SPILLED;
        }
        true
    }

    pub fn release(&mut self, set: NodeSet) {
        if let Some(spill) = set.spill() {
            self.0.remove(spill);
        }
    }

    /// How many sets are spilled, for the invariants.
    pub fn spilled_len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_grows_past_its_inline_room_and_keeps_order() {
        let mut sets = NodeSets::default();
        let mut set = NodeSet::me();
        for n in [5, 3, 5, 9, 0, 7] {
            sets.add(&mut set, NodeRef(n));
        }
        assert_eq!(sets.as_slice(&set), [0, 5, 3, 9, 7].map(NodeRef));
        assert_eq!(sets.spilled_len(), 1);
        sets.release(set);
        assert_eq!(sets.spilled_len(), 0);
    }
}
