//! The job attribute `PMI_process_mapping`: which PE runs on which node, in a compact form.
//!
//! The form is `(vector,(first,count,ppn),...)`: each block places `ppn` consecutive ranks on each
//! of `count` consecutive nodes from `first` on. **If ranks remain at the end of the list, the walk
//! starts again at the first block.** Some servers rely on that (`(vector,(0,1,1))` for eight ranks
//! on one node) and some clients cannot read it, so [`ProcessMapping::from_nodes`] always covers
//! all ranks without wrapping.

use std::fmt;
use std::str::FromStr;

/// Name of the job attribute.
pub const KEY: &str = "PMI_process_mapping";

/// `ppn` consecutive ranks on each of `count` consecutive nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Number of the first node.
    pub first: u32,
    /// How many nodes, at least 1.
    pub count: u32,
    /// PEs on each node, at least 1.
    pub ppn: u32,
}

/// A list of blocks. `Display` and `FromStr` are its wire form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMapping {
    blocks: Vec<Block>,
}

/// Why a text is no process mapping, or does not describe the job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// The text does not have the form `(vector,(first,count,ppn),...)`.
    #[error("process mapping is malformed at byte {at}: expected {expected}")]
    Syntax {
        /// Offset in the text, in bytes.
        at: usize,
        /// What would have been accepted there.
        expected: &'static str,
    },
    /// A block without nodes or PEs, or whose node numbers overflow.
    #[error(
        "process mapping block ({first},{count},{ppn}) is empty or beyond the last node number"
    )]
    Block {
        /// Number of its first node.
        first: u32,
        /// Number of its nodes.
        count: u32,
        /// PEs on each of its nodes.
        ppn: u32,
    },
}

impl ProcessMapping {
    /// The mapping of a job, from the node of each rank. An empty job has no mapping: it is given
    /// the one of a single PE.
    pub fn from_nodes(node_of_rank: &[u32]) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        for run in node_of_rank.chunk_by(|a, b| a == b) {
            // A job has fewer than 2^32 PEs: ranks are u32.
            let ppn = run.len() as u32;
            match blocks.last_mut() {
                Some(block)
                    if block.ppn == ppn && block.first.checked_add(block.count) == Some(run[0]) =>
                {
                    block.count += 1;
                }
                _ => blocks.push(Block {
                    first: run[0],
                    count: 1,
                    ppn,
                }),
            }
        }
        if blocks.is_empty() {
            blocks.push(Block {
                first: 0,
                count: 1,
                ppn: 1,
            });
        }
        Self { blocks }
    }

    /// The blocks; there is at least one.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The node of each of the `size` ranks, by walking the blocks and wrapping around.
    pub fn to_nodes(&self, size: u32) -> Vec<u32> {
        let walk = self.blocks.iter().cycle().flat_map(|block| {
            let nodes = block.first..block.first + block.count;
            nodes.flat_map(|node| std::iter::repeat_n(node, block.ppn as usize))
        });
        walk.take(size as usize).collect()
    }
}

impl fmt::Display for ProcessMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(vector")?;
        for Block { first, count, ppn } in &self.blocks {
            write!(f, ",({first},{count},{ppn})")?;
        }
        f.write_str(")")
    }
}

impl FromStr for ProcessMapping {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Self, MappingError> {
        let mut cursor = Cursor { text, at: 0 };
        cursor.expect("(vector")?;
        let mut blocks = Vec::new();
        loop {
            cursor.expect(",(")?;
            let first = cursor.number()?;
            cursor.expect(",")?;
            let count = cursor.number()?;
            cursor.expect(",")?;
            let ppn = cursor.number()?;
            cursor.expect(")")?;
            if count == 0 || ppn == 0 || first.checked_add(count).is_none() {
                return Err(MappingError::Block { first, count, ppn });
            }
            blocks.push(Block { first, count, ppn });
            if cursor.rest().starts_with(')') {
                break;
            }
        }
        cursor.expect(")")?;
        if cursor.rest().is_empty() {
            Ok(Self { blocks })
        } else {
            Err(cursor.error("the end"))
        }
    }
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, expected: &'static str) -> MappingError {
        MappingError::Syntax {
            at: self.at,
            expected,
        }
    }

    fn expect(&mut self, token: &'static str) -> Result<(), MappingError> {
        if self.rest().starts_with(token) {
            self.at += token.len();
            Ok(())
        } else {
            Err(self.error(token))
        }
    }

    fn number(&mut self) -> Result<u32, MappingError> {
        let rest = self.rest();
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = rest[..digits]
            .parse()
            .map_err(|_| self.error("a number below 2^32"))?;
        self.at += digits;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(text: &str, size: u32) -> Vec<u32> {
        text.parse::<ProcessMapping>().unwrap().to_nodes(size)
    }

    #[test]
    fn mappings_seen_in_the_field() {
        let cases: [(&str, &[u32]); 6] = [
            ("(vector,(0,2,2),(2,1,4))", &[0, 0, 1, 1, 2, 2, 2, 2]),
            ("(vector,(0,3,2))", &[0, 0, 1, 1, 2, 2]),
            ("(vector,(0,4,2))", &[0, 0, 1, 1, 2, 2, 3, 3]),
            ("(vector,(0,3,2),(3,1,1))", &[0, 0, 1, 1, 2, 2, 3]),
            ("(vector,(0,4,1),(0,3,1))", &[0, 1, 2, 3, 0, 1, 2]),
            ("(vector,(5,1,1))", &[5]),
        ];
        for (text, expected) in cases {
            assert_eq!(nodes(text, expected.len() as u32), expected, "{text}");
            assert_eq!(ProcessMapping::from_nodes(expected).to_string(), text);
        }
    }

    #[test]
    fn ranks_beyond_the_list_wrap_around() {
        assert_eq!(nodes("(vector,(0,1,1))", 8), [0; 8]);
        assert_eq!(
            nodes("(vector,(0,2,2),(2,1,1))", 8),
            [0, 0, 1, 1, 2, 0, 0, 1]
        );
        assert_eq!(nodes("(vector,(0,4000000000,4000000000))", 2), [0, 0]);
    }

    #[test]
    fn errors_say_where() {
        for (text, at) in [
            ("", 0),
            ("(vector)", 7),
            ("(vector,(0,1,1)", 15),
            ("(vector,(0,1,1))x", 16),
            ("(vector,(0,-1,1))", 11),
            ("(vector, (0,1,1))", 7),
            ("(vector,(99999999999,1,1))", 9),
        ] {
            match text.parse::<ProcessMapping>() {
                Err(MappingError::Syntax { at: found, .. }) => assert_eq!(found, at, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in [
            "(vector,(0,0,1))",
            "(vector,(0,1,0))",
            "(vector,(4294967295,1,1))",
        ] {
            assert!(
                matches!(
                    text.parse::<ProcessMapping>(),
                    Err(MappingError::Block { .. })
                ),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn round_trip(nodes in prop::collection::vec(0u32..6, 1..60)) {
            let mapping = ProcessMapping::from_nodes(&nodes);
            let read: ProcessMapping = mapping.to_string().parse().unwrap();
            prop_assert_eq!(&read, &mapping);
            prop_assert_eq!(read.to_nodes(nodes.len() as u32), nodes);
            let covered: u64 = mapping.blocks().iter()
                .map(|b| u64::from(b.count) * u64::from(b.ppn)).sum();
            prop_assert_eq!(covered, mapping.to_nodes(covered as u32).len() as u64);
        }

        #[test]
        fn random_text_never_panics(text in "\\PC{0,40}", like in "\\(vector[(),0-9]{0,30}") {
            let _ = text.parse::<ProcessMapping>();
            if let Ok(mapping) = like.parse::<ProcessMapping>() {
                let _ = mapping.to_nodes(50);
            }
        }
    }
}
