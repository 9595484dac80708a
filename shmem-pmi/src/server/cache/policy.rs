//! Which cache an agent has: the one place that lets in those that reproduce a paper.

use std::fmt;
use std::str::FromStr;

use super::store::NodeStore;
use super::whole::{Cache, Whole};
use crate::papers::caches::{Hierarchical, Recent};

/// How the pairs of the key-value space travel between agents, and which of them an agent keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CachePolicy {
    /// Hierarchical cache, simple: each put goes up to the root at once, in a message of its own,
    /// and stays in the caches on its way; a get that misses goes up to the first agent that has
    /// the key, and the answer stays in the caches on its way down.
    Hcs,
    /// With message aggregation: an agent sends the puts of all PEs below it up in the one message
    /// of the fence. Gets as under [`CachePolicy::Hcs`].
    Hcma,
    /// With aggregation and broadcast: the root sends the pairs of a fence to all agents. No get
    /// ever leaves its node; each node holds all pairs.
    #[default]
    Hcmab,
    /// As [`CachePolicy::Hcmab`], in at most `bytes` of memory at every agent but the root: what was
    /// used longest ago is forgotten, and a get of it goes up. The root forgets nothing.
    HcmabLru {
        /// Memory for pairs in bytes, their bookkeeping included.
        bytes: usize,
    },
}

impl CachePolicy {
    /// Name in the settings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hcs => "hcs",
            Self::Hcma => "hcma",
            Self::Hcmab => "hcmab",
            Self::HcmabLru { .. } => "hcmab-lru",
        }
    }

    /// The cache of an agent; what it holds of all that it is given lies in `store`.
    pub(in crate::server) fn cache(
        self,
        is_root: bool,
        store: Box<dyn NodeStore>,
    ) -> Box<dyn Cache> {
        let whole = Whole::new(store);
        match self {
            Self::Hcmab => Box::new(whole),
            Self::Hcs => Box::new(Hierarchical::eager(whole, is_root)),
            Self::Hcma => Box::new(Hierarchical::aggregating(whole, is_root)),
            Self::HcmabLru { .. } if is_root => Box::new(whole),
            Self::HcmabLru { bytes } => Box::new(Recent::new(bytes)),
        }
    }
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::HcmabLru { bytes } => write!(f, ":{bytes}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for CachePolicy {
    type Err = String;

    /// Reads what [`CachePolicy`] displays as, for example `hcs` or `hcmab-lru:65536`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "hcs" => Ok(Self::Hcs),
            None if text == "hcma" => Ok(Self::Hcma),
            None if text == "hcmab" => Ok(Self::Hcmab),
            Some(("hcmab-lru", bytes)) => {
                let bytes = bytes.parse().map_err(|e| format!("`{bytes}`: {e}"))?;
                Ok(Self::HcmabLru { bytes })
            }
            _ => Err(format!(
                "`{text}` is none of hcs, hcma, hcmab, hcmab-lru:BYTES"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        for policy in [
            CachePolicy::Hcs,
            CachePolicy::Hcma,
            CachePolicy::Hcmab,
            CachePolicy::HcmabLru { bytes: 77 },
        ] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for text in ["", "hcmab-lru", "hcmab-lru:", "hcs:1", "lru"] {
            assert!(text.parse::<CachePolicy>().is_err(), "{text}");
        }
    }
}
