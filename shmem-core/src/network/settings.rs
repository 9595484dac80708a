//! The settings that reach a device or an endpoint, in the words of `shmem-ib`, which knows no settings.
//!
//! Whoever adds such a setting to the table in `shmem-node` carries it over here, and nowhere else in
//! this crate. What is asked of a device by name is in [`wanted`](super::wanted), which the program
//! `shmem-info` shares.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shmem_ib::connect::endpoint::{Atomics, EndpointConfig, Transport};
use shmem_ib::device::sysfs::Places;
use shmem_ib::device::{Request, VerbsOptions};
use shmem_ib::soft::xrc::SharedWindow;
use shmem_ib::soft::{Faults, SoftConfig};
use shmem_ib::verbs::timeouts::ack_timeout_code;
use shmem_ib::verbs::{Fabric, Lane, Mtu, Pkey};
use shmem_node::own_address;
use shmem_node::segment::NodeView;
use shmem_node::settings::{self, CtxQps, Settings, StreamChoice};

use super::register;
use super::wanted::{options, wanted};
use crate::error::Error;
use crate::pmi::Identity;

/// Operations under way per connection on a device. It takes the memory for all of them when the
/// queue pair is made, with room for inline payloads 1 KiB each and more; enough to keep a link busy.
const DEVICE_SQ_DEPTH: u32 = 64;

/// Contexts at a time that may have connections of their own if the settings say nothing: they are asked for
/// by the program, which knows what it does.
const ASKED_FOR: u32 = 16;

/// The software HCA of PE `me`.
pub(super) fn software_hca(
    settings: &Settings,
    view: &NodeView,
    me: usize,
    seed: u64,
) -> Result<SoftConfig, Error> {
    let addresses = view.hca_addresses().ok_or_else(|| {
        Error::Launch("shmrun gave addresses of a kind that this program does not know".into())
    })?;
    let bind = addresses.of(view.node() as u32, me as u32);
    let (window, window_len) = view.heap_window();
    let faults = settings.soft_faults;
    Ok(SoftConfig {
        bind,
        ports: settings.soft_port.ends(),
        lane: Lane {
            traffic_class: settings.traffic_class,
            pkey: settings.pkey.map_or(Pkey::DEFAULT, Pkey::full),
            ..Lane::default()
        },
        mtu: match settings.soft_mtu {
            0 => mtu(own_address::path_mtu(bind).unwrap_or(0)),
            bytes => mtu(bytes),
        }
        .min(match settings.soft_interop {
            true => Mtu::M4096,
            false => Mtu::M61440,
        }),
        interop: settings.soft_interop,
        stream: stream(settings.soft_stream, &faults),
        silent: faults.silent,
        receive_buffer: settings.soft_buffer.try_into().unwrap_or(u32::MAX),
        // Where PEs outnumber cores, so that nobody spins, senders take turns anyway.
        shares: view.spins() > 0,
        // SAFETY: the heap memory of the node, whole, as every PE of it maps it until its end; the
        // library and the program access it through raw pointers or atomics.
        shared: Some(unsafe { SharedWindow::new(window, window_len) }),
        faults: Faults {
            drop: faults.drop_ppm,
            duplicate: faults.duplicate_ppm,
            reorder: faults.reorder_ppm,
            seed: faults.seed ^ (me as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        },
        seed,
    })
}

/// Bytes from which messages go by streams. From 64 KiB on these are faster than datagrams of 1024 bytes: see
/// docs/performance.md.
fn stream(choice: StreamChoice, faults: &settings::Faults) -> Option<u32> {
    let mistreated = faults.drop_ppm | faults.duplicate_ppm | faults.reorder_ppm != 0;
    match choice {
        StreamChoice::Auto if mistreated => None,
        StreamChoice::Auto => Some(64 << 10),
        StreamChoice::Never => None,
        StreamChoice::From(bytes) => Some(bytes),
    }
}

/// The device of PE `me`, which may be the software HCA.
pub(super) fn device<'a>(
    settings: &Settings,
    view: &NodeView,
    me: usize,
    soft: &'a SoftConfig,
) -> Request<'a> {
    Request {
        wanted: wanted(settings),
        node: view.node(),
        local: view.local_of()[me] as usize,
        places: Places::default(),
        gid_index: settings.gid_index,
        memory: register::at_least(settings, view.heap_start(), view.segment_len()) as u64,
        xrc: settings.transport == settings::Transport::Xrc,
        verbs: VerbsOptions {
            on_demand_paging: register::wants_paging(settings),
            ..options(settings)
        },
        soft,
    }
}

/// The endpoint of PE `me` on a device of this fabric. Without an `identity` the job's comes later.
pub(super) fn endpoint(
    settings: &Settings,
    view: &NodeView,
    me: usize,
    fabric: Fabric,
    xrc: Option<OwnedFd>,
    identity: Option<Identity>,
) -> EndpointConfig {
    let (job_id, job_key) = identity.unwrap_or(([0; 16], &[0; 32]));
    let defaults = times(settings);
    EndpointConfig {
        pe: me as u32,
        n_pes: view.n_pes() as u32,
        transport: match settings.transport {
            settings::Transport::Rc => Transport::Rc,
            settings::Transport::Xrc => Transport::Xrc {
                domain: xrc.map(Arc::new),
            },
        },
        atomics: match settings.atomics {
            settings::Atomics::Auto => Atomics::Auto,
            settings::Atomics::Hca => Atomics::Hca,
            settings::Atomics::Owner => Atomics::Owner,
        },
        job_id,
        job_key,
        identity_later: identity.is_none(),
        connect_deadline: settings.connect_timeout,
        max_qps: shares(settings).main,
        spin_rounds: view.spins(),
        sq_depth: match fabric {
            Fabric::Soft => defaults.sq_depth,
            Fabric::Roce | Fabric::InfiniBand => DEVICE_SQ_DEPTH,
        },
        // The software HCA has completions in its own memory, and no bell.
        signal_every: match fabric {
            Fabric::Soft => 1,
            Fabric::Roce | Fabric::InfiniBand => defaults.signal_every,
        },
        hold: match fabric {
            Fabric::Soft => 1,
            Fabric::Roce | Fabric::InfiniBand => defaults.hold,
        },
        ..defaults
    }
}

/// How many queue pairs contexts may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shares {
    /// Contexts at a time that have connections of their own.
    pub(super) branches: u32,
    /// Whether those that one thread at a time uses get them without having asked.
    pub(super) unasked: bool,
    /// Queue pairs of each of them, and of all other contexts together; 0: no limit.
    pub(super) each: u32,
    pub(super) main: u32,
}

/// What contexts get of the queue pairs of a PE. Those with connections of their own have equal shares of a
/// limit, as all others together have, which get what is left over as well.
pub(super) fn shares(settings: &Settings) -> Shares {
    let all = settings.max_qps;
    let xrc = settings.transport == settings::Transport::Xrc;
    let (most, unasked) = match settings.ctx_qps {
        CtxQps::Auto if all > 0 => (0, false),
        CtxQps::Auto => (ASKED_FOR, false),
        CtxQps::Most(most) => (most, true),
    };
    let branches = match (xrc, all) {
        (true, _) => 0,
        (false, 0) => most,
        (false, all) => most.min(all - 1),
    };
    let each = all / (branches + 1);
    Shares {
        branches,
        unasked,
        each,
        main: all - branches * each,
    }
}

/// How long queue pairs wait, and how often they try again.
fn times(settings: &Settings) -> EndpointConfig {
    EndpointConfig {
        rc_timeout: ack_timeout_code(settings.ack_timeout),
        rc_retry: settings.retry_count,
        ..EndpointConfig::default()
    }
}

/// The settings table allows no other values.
fn mtu(bytes: u32) -> Mtu {
    match bytes {
        256 => Mtu::M256,
        512 => Mtu::M512,
        1024 => Mtu::M1024,
        2048 => Mtu::M2048,
        61_440 => Mtu::M61440,
        _ => Mtu::M4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_with_their_own_connections_share_a_limit() {
        let shares = |given: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let found = given.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let Shares {
                branches,
                unasked,
                each,
                main,
            } = shares(&Settings::parse(lookup).unwrap());
            (branches, unasked, each, main)
        };
        let (qps, most) = ("SHMEM_CTX_QPS", "SHMEM_MAX_QPS");
        assert_eq!(shares(&[]), (16, false, 0, 0));
        assert_eq!(shares(&[(qps, "0")]), (0, true, 0, 0));
        assert_eq!(shares(&[(qps, "3")]), (3, true, 0, 0));
        assert_eq!(shares(&[(most, "10")]), (0, false, 10, 10));
        assert_eq!(shares(&[(most, "10"), (qps, "3")]), (3, true, 2, 4));
        // One is left to all others.
        assert_eq!(shares(&[(most, "2"), (qps, "3")]), (1, true, 1, 1));
        assert_eq!(shares(&[(most, "1"), (qps, "3")]), (0, true, 1, 1));
        let xrc = ("SHMEM_TRANSPORT", "xrc");
        assert_eq!(shares(&[xrc, (qps, "3")]), (0, true, 0, 0));
    }

    #[test]
    fn times_and_retries_are_those_of_the_settings() {
        let told = |given: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let found = given.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let config = times(&Settings::parse(lookup).unwrap());
            [config.rc_timeout, config.rc_retry]
        };
        let defaults = EndpointConfig::default();
        assert_eq!(told(&[]), [defaults.rc_timeout, defaults.rc_retry]);
        let all = [("SHMEM_ACK_TIMEOUT", "67ms"), ("SHMEM_RETRY_COUNT", "3")];
        // 67.1 ms.
        assert_eq!(told(&all), [14, 3]);
    }
}
