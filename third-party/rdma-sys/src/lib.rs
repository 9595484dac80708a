#![allow(non_snake_case, non_camel_case_types, non_upper_case_globals)]
#![allow(deref_nullptr)] // TODO(fxbug.dev/74605): Remove once bindgen is fixed.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

use libc::*;

include!("bindings.rs");

mod opcode;
mod types;
mod verbs;

pub use self::opcode::*;
pub use self::types::*;
pub use self::verbs::*;

// As C lays them out on 64-bit Linux; locks are as large as the C library has them.
const _: () = {
    use std::mem::{offset_of, size_of};
    let (mutex, cond) = (size_of::<pthread_mutex_t>(), size_of::<pthread_cond_t>());
    assert!(offset_of!(ibv_context, abi_compat) == 280 + mutex);
    assert!(size_of::<ibv_qp>() == 72 + mutex + cond);
    assert!(size_of::<ibv_cq>() == 40 + mutex + cond);
    assert!(size_of::<ibv_srq>() == 40 + mutex + cond);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(size_of::<ibv_wc>() == 48);
};
