//! The bodies of the fuzz targets: each takes bytes and panics if something is wrong.
//!
//! `libfuzzer/` runs them under libFuzzer; `tests/stable.rs` runs them as ordinary tests, on the
//! seeds, on the corpus in `corpus/`, and on random mutations of both; `campaign` does that for as
//! many mutations as there is time for. A target is a decoder of bytes that come from outside, or a
//! list of operations on two HCAs or on the PMI servers of two nodes.

pub mod hca_stream;
pub mod ib;
pub mod launch;
pub mod mutation;
pub mod pmi;
pub mod pmi1;
pub mod pmi_server;
pub mod settings;
mod streams;
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

macro_rules! targets {
    ($($module:ident::$name:ident + $seeds:ident;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            body: $module::$name,
            seeds: $module::$seeds,
        }),*];
    };
}

targets! {
    ib::packet + packet_seeds;
    ib::connection_message + connection_message_seeds;
    ib::ud_address + ud_address_seeds;
    ib::owner_message + owner_message_seeds;
    hca_stream::hca_stream + hca_stream_seeds;
    pmi1::pmi1 + pmi1_seeds;
    pmi::pmi2 + pmi2_seeds;
    pmi::pmi_tree + pmi_tree_seeds;
    pmi::pmi_question + pmi_question_seeds;
    pmi::pmix_message + pmix_message_seeds;
    launch::pmix_server + pmix_server_seeds;
    pmi_server::pmi_server + pmi_server_seeds;
    pmi::process_mapping + process_mapping_seeds;
    launch::launch_frame + launch_frame_seeds;
    settings::settings + settings_seeds;
    verbs::verbs + verbs_seeds;
}

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
