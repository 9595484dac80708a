#!/bin/bash
# Makes src/bindings.rs from the headers of this machine: types and constants that shmem-device names, with all that
# those consist of. Needs libibverbs-dev and bindgen (packages of Debian 12).
set -euo pipefail
cd "$(dirname "$0")"

# Types and constants, as patterns. A device's tables of operations lead to most of the others.
in_use=(
    verbs_context
    _compat_ibv_port_attr 'ibv_(port|ah|qp|device)_attr(_ex|_mask)?' 'ibv_(qp|srq|xrcd)_init_attr(_ex|_mask)?'
    'ibv_(async_event|event_type|comp_channel|gid_entry|gid_type|mr|wc|wc_opcode|wc_status|wr_opcode)'
    'ibv_(access|send|wc|device_cap)_flags' 'ibv_odp_(general_caps|transport_cap_bits)' ibv_atomic_cap
)
# What only operations that nobody calls here take or return, by pointers: no more than a name.
behind_pointers=(
    ibv_alloc_dm_attr ibv_counter_attach_attr ibv_counters ibv_counters_init_attr ibv_cq_ex ibv_cq_init_attr_ex
    ibv_dm ibv_flow ibv_flow_action ibv_flow_action_esp_attr ibv_flow_attr ibv_modify_cq_attr ibv_mw ibv_mw_bind
    ibv_ops_wr ibv_parent_domain_init_attr ibv_qp_open_attr ibv_qp_rate_limit_attr ibv_query_device_ex_input
    ibv_rwq_ind_table ibv_rwq_ind_table_init_attr ibv_td ibv_td_init_attr ibv_values_ex ibv_wq ibv_wq_attr
    ibv_wq_init_attr verbs_ex_private
)

options=(
    --no-layout-tests --no-doc-comments --no-derive-debug --size_t-is-usize --ctypes-prefix libc
    --constified-enum-module '.*'
    # The C library's own, of which the crate libc has those of every 64-bit Linux.
    --blocklist-type '_*(pthread|atomic)_.*' --blocklist-type 'ibv_ops_wr__.*'
)
for types in "${in_use[@]}"; do
    options+=(--allowlist-type "$types")
done
for name in "${behind_pointers[@]}"; do
    options+=(--blocklist-type "$name" --opaque-type "$name" --raw-line "pub type $name = c_void;")
done
bindgen "${options[@]}" --output src/bindings.rs <(echo '#include <infiniband/verbs.h>') -- -x c "$@"
