//! The constants of `shmem.h`.

/// A constant.
pub struct Constant {
    /// Name in C.
    pub name: &'static str,
    /// Its value: C source.
    pub value: &'static str,
}

/// Constants that belong together.
pub struct Block {
    /// What they are for: a comment.
    pub about: &'static str,
    /// The constants.
    pub constants: &'static [Constant],
}

macro_rules! blocks {
    ($($about:literal { $($name:ident $value:expr;)* })*) => {
        &[$(Block {
            about: $about,
            constants: &[$(Constant { name: stringify!($name), value: $value }),*],
        }),*]
    };
}

/// All constants, in the header's order.
pub const BLOCKS: &[Block] = blocks! {
    "The version of the specification, and the library's name." {
        SHMEM_MAJOR_VERSION "1";
        SHMEM_MINOR_VERSION "6";
        SHMEM_MAX_NAME_LEN "256";
        SHMEM_VENDOR_STRING concat!("\"shmem ", env!("CARGO_PKG_VERSION"), "\"");
    }
    "Thread levels." {
        SHMEM_THREAD_SINGLE "0";
        SHMEM_THREAD_FUNNELED "1";
        SHMEM_THREAD_SERIALIZED "2";
        SHMEM_THREAD_MULTIPLE "3";
    }
    "Handles: they fit static initialisers and compare equal in all parts of a program." {
        SHMEM_TEAM_INVALID "((shmem_team_t) 0)";
        SHMEM_TEAM_WORLD "((shmem_team_t) 1)";
        SHMEM_TEAM_SHARED "((shmem_team_t) 2)";
        SHMEM_CTX_INVALID "((shmem_ctx_t) 0)";
        SHMEM_CTX_DEFAULT "((shmem_ctx_t) 1)";
    }
    "Members of shmem_team_config_t that hold a value." {
        SHMEM_TEAM_NUM_CONTEXTS "1L";
    }
    "Options of contexts." {
        SHMEM_CTX_PRIVATE "1L";
        SHMEM_CTX_SERIALIZED "2L";
        SHMEM_CTX_NOSTORE "4L";
    }
    "Options of sessions, and members of shmem_ctx_session_config_t that hold a value." {
        SHMEM_CTX_SESSION_BATCH "1L";
        SHMEM_CTX_SESSION_TOTAL_OPS "1L";
    }
    "What a signal does to the word that it arrives at." {
        SHMEM_SIGNAL_SET "0";
        SHMEM_SIGNAL_ADD "1";
    }
    "Hints for allocations." {
        SHMEM_MALLOC_ATOMICS_REMOTE "1L";
        SHMEM_MALLOC_SIGNAL_REMOTE "2L";
    }
    "Comparisons of waits and tests." {
        SHMEM_CMP_EQ "1";
        SHMEM_CMP_NE "2";
        SHMEM_CMP_GT "3";
        SHMEM_CMP_GE "4";
        SHMEM_CMP_LT "5";
        SHMEM_CMP_LE "6";
    }
    "Deprecated: work arrays of active-set collectives." {
        SHMEM_SYNC_VALUE "0L";
        SHMEM_SYNC_SIZE "64";
        SHMEM_BARRIER_SYNC_SIZE "64";
        SHMEM_BCAST_SYNC_SIZE "64";
        SHMEM_COLLECT_SYNC_SIZE "64";
        SHMEM_REDUCE_SYNC_SIZE "64";
        SHMEM_ALLTOALL_SYNC_SIZE "64";
        SHMEM_ALLTOALLS_SYNC_SIZE "64";
        SHMEM_REDUCE_MIN_WRKDATA_SIZE "1";
    }
    "Deprecated: old names." {
        _SHMEM_MAJOR_VERSION "SHMEM_MAJOR_VERSION";
        _SHMEM_MINOR_VERSION "SHMEM_MINOR_VERSION";
        _SHMEM_MAX_NAME_LEN "SHMEM_MAX_NAME_LEN";
        _SHMEM_VENDOR_STRING "SHMEM_VENDOR_STRING";
        _SHMEM_CMP_EQ "SHMEM_CMP_EQ";
        _SHMEM_CMP_NE "SHMEM_CMP_NE";
        _SHMEM_CMP_GT "SHMEM_CMP_GT";
        _SHMEM_CMP_GE "SHMEM_CMP_GE";
        _SHMEM_CMP_LT "SHMEM_CMP_LT";
        _SHMEM_CMP_LE "SHMEM_CMP_LE";
        _SHMEM_SYNC_VALUE "SHMEM_SYNC_VALUE";
        _SHMEM_BARRIER_SYNC_SIZE "SHMEM_BARRIER_SYNC_SIZE";
        _SHMEM_BCAST_SYNC_SIZE "SHMEM_BCAST_SYNC_SIZE";
        _SHMEM_COLLECT_SYNC_SIZE "SHMEM_COLLECT_SYNC_SIZE";
        _SHMEM_REDUCE_SYNC_SIZE "SHMEM_REDUCE_SYNC_SIZE";
        _SHMEM_REDUCE_MIN_WRKDATA_SIZE "SHMEM_REDUCE_MIN_WRKDATA_SIZE";
    }
};

/// The integer and text constants as Rust source: what the library compares with is what C programs pass.
#[must_use]
pub fn rust() -> String {
    let mut out = String::new();
    for constant in BLOCKS.iter().flat_map(|block| block.constants) {
        let value = constant.value.trim_end_matches('L');
        if value.starts_with('"') {
            out.push_str(&format!(
                "pub(crate) const {}: &str = {value};\n",
                constant.name
            ));
        }
        if let Ok(value) = value.parse::<i64>() {
            let ty = match constant.value.ends_with('L') {
                true => "c_long",
                false => "c_int",
            };
            out.push_str(&format!(
                "pub(crate) const {}: {ty} = {value};\n",
                constant.name
            ));
        }
    }
    out
}
