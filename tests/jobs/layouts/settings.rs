//! The settings that the covering array combines, each with the values that matter, and which of them cannot meet.

use super::covering::Value;

/// A setting of a job.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) values: &'static [(&'static str, Choice)],
}

/// What a value is to `shmrun`.
#[derive(Clone, Copy)]
pub(super) enum Choice {
    /// Options.
    Options(&'static str),
    /// Variables.
    Env(&'static [(&'static str, &'static str)]),
}

use Choice::{Env, Options};

const DEFAULT: Choice = Env(&[]);

/// Uneven, on nodes that are no power of two.
pub(super) const FEW_ON_3: &str = "-n 4 --nodes 3";
/// Takes the place of [`FEW_ON_3`] when all layouts run: the number of PEs is no power of two either.
pub(super) const MORE_ON_3: &str = "-n 5 --nodes 3";

/// The first one has the PEs; the others' defaults come first.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "pes",
        values: &[
            ("2 on 2", Options("-n 2 --nodes 2")),
            ("4 on 2", Options("-n 4 --nodes 2")),
            ("few on 3", Options(FEW_ON_3)),
        ],
    },
    Setting {
        name: "faults",
        values: &[
            ("none", DEFAULT),
            (
                "lossy",
                Env(&[(
                    "SHMEM_SOFT_FAULTS",
                    "drop=1%,duplicate=1%,reorder=2%,seed=3",
                )]),
            ),
            // As taciturn as an RDMA device: a PE that waits for a bell waits until it looks by itself.
            ("silent", Env(&[("SHMEM_SOFT_FAULTS", "silent")])),
        ],
    },
    Setting {
        name: "packets",
        values: &[
            ("default", DEFAULT),
            ("small", Env(&[("SHMEM_SOFT_MTU", "256")])),
            (
                "streams",
                Env(&[("SHMEM_SOFT_MTU", "1024"), ("SHMEM_SOFT_STREAM", "64")]),
            ),
        ],
    },
    Setting {
        name: "transport",
        values: &[("rc", DEFAULT), ("xrc", Env(&[("SHMEM_TRANSPORT", "xrc")]))],
    },
    Setting {
        name: "connect",
        values: &[
            ("on demand", DEFAULT),
            ("static", Env(&[("SHMEM_CONNECT", "static")])),
        ],
    },
    Setting {
        name: "register",
        values: &[
            ("whole", DEFAULT),
            ("grow", Env(&[("SHMEM_HEAP_REGISTER", "grow")])),
        ],
    },
    Setting {
        name: "atomics",
        values: &[
            ("hca", DEFAULT),
            ("owner", Env(&[("SHMEM_ATOMICS", "owner")])),
        ],
    },
    Setting {
        name: "contexts",
        values: &[("shared", DEFAULT), ("own", Env(&[("SHMEM_CTX_QPS", "3")]))],
    },
    Setting {
        name: "spin",
        values: &[("default", DEFAULT), ("0", Env(&[("SHMEM_SPIN", "0")]))],
    },
    Setting {
        name: "spawn",
        values: &[
            ("template", DEFAULT),
            ("exec", Options("-x SHMEM_SPAWN=exec")),
        ],
    },
    Setting {
        name: "pages",
        values: &[
            ("default", DEFAULT),
            ("transparent", Env(&[("SHMEM_HEAP_PAGES", "transparent")])),
        ],
    },
    Setting {
        name: "address",
        values: &[
            ("IPv4", DEFAULT),
            ("IPv6", Env(&[("SHMEM_SOFT_ADDRESS", "::1")])),
        ],
    },
    Setting {
        name: "ports",
        values: &[
            ("one each", DEFAULT),
            (
                "one for all",
                Env(&[("SHMEM_SOFT_PORT", "free"), ("SHMEM_SOFT_INTEROP", "yes")]),
            ),
        ],
    },
];

/// Pairs that shmrun or the software HCA rejects, by the names of their settings and values.
const NEVER: &[[(&str, &str); 2]] = &[
    // Over XRC no message reaches the owner from every PE.
    [("transport", "xrc"), ("atomics", "owner")],
    // Nodes that share a port need an address each, which loopback has in IPv4 only.
    [("ports", "one for all"), ("address", "IPv6")],
];

/// Whether two values may meet.
pub(super) fn allowed(a: Value, b: Value) -> bool {
    let name = |(setting, value): Value| {
        let setting = &SETTINGS[setting];
        (setting.name, setting.values[value].0)
    };
    let pair = [name(a), name(b)];
    !NEVER
        .iter()
        .any(|never| never.iter().all(|value| pair.contains(value)))
}

#[test]
fn exceptions_are_of_values_that_there_are() {
    for (setting, value) in NEVER.iter().flatten() {
        let there = |s: &Setting| s.name == *setting && s.values.iter().any(|(v, _)| v == value);
        assert!(SETTINGS.iter().any(there), "{setting} {value}");
    }
}
