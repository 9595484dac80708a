//! The bodies of the fuzz targets: each takes bytes and panics if something is wrong.
//!
//! `fuzz/` runs them under libFuzzer; `tests/stable.rs` runs them as ordinary tests, on the
//! seeds, on the corpus in `corpus/`, and on random mutations of both; `campaign` does that for as
//! many mutations as there is time for. A target is a decoder of bytes that come from outside, or a
//! list of operations on two HCAs or on the PMI servers of two nodes.

pub mod ib;
pub mod launch;
pub mod mutation;
pub mod pmi;
pub mod pmi1;
pub mod pmi_server;
pub mod settings;
pub mod verbs;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its corpus.
    pub name: &'static str,
    /// Panics if something is wrong.
    pub body: fn(&[u8]),
    /// Inputs from which everything interesting can be reached by small changes.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "packet",
        body: ib::packet,
        seeds: ib::packet_seeds,
    },
    Target {
        name: "connection_message",
        body: ib::connection_message,
        seeds: ib::connection_message_seeds,
    },
    Target {
        name: "ud_address",
        body: ib::ud_address,
        seeds: ib::ud_address_seeds,
    },
    Target {
        name: "owner_message",
        body: ib::owner_message,
        seeds: ib::owner_message_seeds,
    },
    Target {
        name: "pmi1",
        body: pmi1::pmi1,
        seeds: pmi1::pmi1_seeds,
    },
    Target {
        name: "pmi2",
        body: pmi::pmi2,
        seeds: pmi::pmi2_seeds,
    },
    Target {
        name: "pmi_tree",
        body: pmi::pmi_tree,
        seeds: pmi::pmi_tree_seeds,
    },
    Target {
        name: "pmi_question",
        body: pmi::pmi_question,
        seeds: pmi::pmi_question_seeds,
    },
    Target {
        name: "pmi_server",
        body: pmi_server::pmi_server,
        seeds: pmi_server::pmi_server_seeds,
    },
    Target {
        name: "process_mapping",
        body: pmi::process_mapping,
        seeds: pmi::process_mapping_seeds,
    },
    Target {
        name: "launch_frame",
        body: launch::launch_frame,
        seeds: launch::launch_frame_seeds,
    },
    Target {
        name: "settings",
        body: settings::settings,
        seeds: settings::settings_seeds,
    },
    Target {
        name: "verbs",
        body: verbs::verbs,
        seeds: verbs::verbs_seeds,
    },
];

/// Reads choices off the input; everything is 0 behind its end.
#[derive(Debug)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Begins at the front of `input`.
    #[must_use]
    pub const fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether input is left.
    #[must_use]
    pub const fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// A number below `n`, 0 if `n` is 0, from as many bytes as it needs.
    pub fn below(&mut self, n: u64) -> u64 {
        let mut value = 0_u64;
        let mut most = n.saturating_sub(1);
        while most > 0 {
            let (byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
            self.0 = rest;
            value = value << 8 | u64::from(*byte);
            most >>= 8;
        }
        value % n.max(1)
    }

    /// The next `len` bytes, or as many as there are.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// All the rest.
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }
}
