//! Opening a port: which one, whether it can be used, and what it can do.

use std::sync::Arc;

use super::SysError;
use super::context::{Context, Pd};
use super::discover::describe;
use super::error::reason;
use super::events::Events;
use super::hca::{Port, VerbsHca};
use super::map::Origin;
use super::objects::{Channel, CqObject};
use super::qp::{Held, Qp};
use super::sleepers::Sleepers;
use crate::abilities::{Abilities, PortAbilities};
use crate::hardware::{Atomics, GidEntry, RdmaPort};
use crate::options::VerbsConfig;
use shmem_verbs::{Cq, PortInfo, QpInit, QpType};

/// Inline payloads to ask for, the longest first: all queue pairs get what the port promises, and
/// devices have between none and some hundred bytes. What exceeds a few hundred is copied as fast
/// from a registered buffer.
const INLINE: [u32; 7] = [512, 256, 220, 128, 64, 32, 0];

impl VerbsHca {
    /// Opens a port.
    ///
    /// # Errors
    /// There is no such device, port or GID, the process may not use it, the port is not active, or
    /// the device refuses what every process needs.
    pub fn open(config: &VerbsConfig) -> Result<Self, SysError> {
        let context = Arc::new(Context::open(&config.device)?);
        let name = &config.device;
        let info = describe(&context)?;
        let told = active_port(name, &info, config.port)?;
        let port = &told.port;
        let wanted = |g: &&GidEntry| g.index == u16::from(config.gid_index);
        let gid = port.gids.iter().find(wanted);
        let gid = gid.ok_or_else(|| no_such_gid(name, port, config.gid_index))?;
        let whole = config.options.pkey.is_some();
        let with_pkeys = RdmaPort {
            pkeys: context.query_pkeys(port.number, whole),
            ..port.clone()
        };
        let pkey = with_pkeys.pkey(config.options.pkey);
        let pkey = pkey.map_err(|why| SysError::NoSuchPkey {
            name: name.clone(),
            port: port.number,
            why,
        })?;
        let origin = Origin::new(port, gid.gid, pkey, config);
        let on_demand = config.options.on_demand_paging && info.odp.serves_segments();
        let (bell, sleepers) = sleeping(&context)?;
        let events = Arc::new(Events::new(Arc::clone(&context), config.port));
        let pd = Arc::new(Pd::alloc(context)?);
        let max_inline =
            probe_inline(&pd, &bell).map_err(|(what, e)| refused(&pd.context, what, e))?;
        let port = port_info(&info, told, &origin, max_inline, on_demand);
        let port = Port {
            events,
            info: port,
            origin,
            told: info,
            on_demand,
            pd,
        };
        Ok(Self::new(port, bell, sleepers))
    }

    /// Another HCA at the same port: with queues, sleepers and an alarm of its own, in the same protection
    /// domain. What ends the one ends the other.
    ///
    /// # Errors
    /// The device refuses a completion channel, or the system an event descriptor.
    pub fn beside(&self) -> Result<Self, SysError> {
        let (bell, sleepers) = sleeping(&self.port.pd.context)?;
        Ok(Self::new(self.port.clone(), bell, sleepers))
    }
}

fn refused(context: &Context, what: &str, errno: i32) -> SysError {
    SysError::Refused {
        name: context.name.clone(),
        reason: format!("cannot make {what}: {}", reason(errno)),
    }
}

/// What threads of one HCA sleep on.
fn sleeping(context: &Arc<Context>) -> Result<(Arc<Channel>, Sleepers), SysError> {
    let bell = Channel::create(context).map_err(|e| refused(context, "a completion channel", e))?;
    let sleepers = Sleepers::new().map_err(|e| {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        refused(context, "an event descriptor", errno)
    })?;
    Ok((Arc::new(bell), sleepers))
}

fn active_port<'a>(
    name: &str,
    info: &'a Abilities,
    number: u8,
) -> Result<&'a PortAbilities, SysError> {
    let told = info.port(number).ok_or_else(|| SysError::NoSuchPort {
        name: name.to_owned(),
        port: number,
        count: info.ports.len(),
    })?;
    let port = &told.port;
    if port.state.is_active() {
        return Ok(told);
    }
    Err(SysError::PortNotActive {
        name: name.to_owned(),
        port: number,
        state: port.state.to_string(),
        advice: port.remedy(),
    })
}

fn no_such_gid(name: &str, port: &RdmaPort, index: u8) -> SysError {
    let all = port.gids.iter();
    let present: Vec<String> = all
        .map(|g| format!("{}: {} ({})", g.index, g.gid, g.kind))
        .collect();
    SysError::NoSuchGid {
        name: name.to_owned(),
        port: port.number,
        index,
        present: match present.is_empty() {
            true => "none: give its network interface an address".to_owned(),
            false => present.join(", "),
        },
    }
}

fn port_info(
    caps: &Abilities,
    port: &PortAbilities,
    origin: &Origin,
    max_inline: u32,
    on_demand: bool,
) -> PortInfo {
    // Zero is "not told" here.
    let sge = |n: u32| if n == 0 { u32::MAX } else { n };
    let rd_atomic = caps.max_qp_rd_atom.min(caps.max_qp_init_rd_atom);
    PortInfo {
        av: origin.av(),
        lane: origin.lane(),
        active_mtu: port.mtu.0,
        max_inline,
        max_rd_atomic: u8::try_from(rd_atomic).unwrap_or(u8::MAX),
        max_qp_wr: caps.max_qp_wr,
        max_cqe: caps.max_cqe,
        max_msg: port.max_msg,
        max_sge: caps
            .max_sge
            .min(sge(caps.max_sge_rd))
            .min(sge(caps.max_srq_sge)),
        max_srq_wr: caps.max_srq_wr,
        xrc: caps.xrc,
        atomics_coherent: caps.atomics == Atomics::Global,
        // The device writes memory, and tells nobody.
        notices_inbound: false,
        pins_memory: !on_demand,
    }
}

/// The inline payload that every queue pair gets: found out by making one of each type.
fn probe_inline(pd: &Arc<Pd>, bell: &Arc<Channel>) -> Result<u32, (&'static str, i32)> {
    let cq = CqObject::create(1, 0, bell).map_err(|e| ("a completion queue", e))?;
    let cq = Arc::new(cq);
    let probe = |ty, what, most: u32| {
        let mut refused = libc::EINVAL;
        for max_inline in INLINE.into_iter().filter(|n| *n <= most) {
            let init = QpInit {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_inline,
                ..QpInit::new(ty, Cq(0))
            };
            let held = Held {
                send_cq: Some(Arc::clone(&cq)),
                recv_cq: Some(Arc::clone(&cq)),
                ..Held::default()
            };
            match Qp::create(pd, &init, held) {
                Ok(qp) => return Ok(qp.granted.inline.min(max_inline)),
                Err(errno) => refused = errno,
            }
        }
        Err((what, refused))
    };
    let rc = probe(QpType::Rc, "an RC queue pair", INLINE[0])?;
    probe(QpType::Ud, "a UD queue pair", rc)
}
