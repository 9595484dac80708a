//! What there is to tell, gathered before anything is printed.

use shmem_ib::device::choice::{
    Choice, NO_XRC, NoChoice, PortRequest, Usable, Verdict, choose, judge,
};
use shmem_ib::device::hardware::Survey;
use shmem_ib::device::inspect::{self, Inspection, NO_PROVIDER};
use shmem_ib::device::memlock::Memlock;
use shmem_ib::device::seat::Seat;
use shmem_ib::device::sysfs::Places;
use shmem_node::settings::{Settings, TABLE, Transport, shown};

use crate::wanted::{options, wanted};

/// Everything.
pub(crate) struct Facts {
    pub(crate) version: &'static str,
    /// Variables that are set to something else than their default.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// A variable that cannot be used.
    pub(crate) bad_setting: Option<String>,
    pub(crate) memlock: Memlock,
    /// What a PE registers, in bytes, without the runtime's own few.
    pub(crate) heap: u64,
    pub(crate) survey: Survey,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) inspection: Inspection,
    /// Where this process may run, as PEs would that were started alike.
    pub(crate) seat: Seat,
    /// What the PEs of the first node of a job would open, each; one PE at least.
    pub(crate) choices: Vec<Result<Choice, NoChoice>>,
}

impl Facts {
    /// Of this machine, as for so many PEs on it.
    pub(crate) fn gather(pes: usize) -> Self {
        let (settings, bad_setting) = match Settings::from_env() {
            Ok(settings) => (settings, None),
            Err(e) => (Settings::default(), Some(e.to_string())),
        };
        let asked = PortRequest {
            gid_index: settings.gid_index,
            pkey: options(&settings).pkey,
        };
        let places = Places {
            gid_index: asked.gid_index,
            whole_pkeys: true,
            ..Places::default()
        };
        let survey = places.survey();
        let verdicts = judge(&survey, asked);
        let inspection = inspect::inspect();
        let seat = Seat::here(&places, 0, 0);
        let choice = |local| {
            let seat = Seat {
                local,
                ..seat.clone()
            };
            let choice = choose(&wanted(&settings), &seat, asked, &survey)?;
            that_open(choice, &settings, &inspection)
        };
        let choices = (0..pes.max(1)).map(choice).collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            settings: changed(),
            bad_setting,
            memlock: Memlock::current(),
            heap: settings.symmetric_size,
            inspection,
            survey,
            verdicts,
            seat,
            choices,
        }
    }
}

impl Facts {
    /// The PEs, by their numbers on the node, that take this port.
    pub(crate) fn users(&self, device: &str, port: u8) -> Vec<usize> {
        let takes = |choice: &Result<Choice, NoChoice>| match choice {
            Ok(Choice::Verbs { ports, .. }) => ports
                .first()
                .is_some_and(|p| p.device == device && p.port == port),
            _ => false,
        };
        let numbered = self.choices.iter().enumerate();
        numbered.filter(|(_, c)| takes(c)).map(|(i, _)| i).collect()
    }
}

/// Passes over ports of devices that do not open, or have no XRC where a PE needs it, as PEs do.
fn that_open(
    choice: Choice,
    settings: &Settings,
    inspection: &Inspection,
) -> Result<Choice, NoChoice> {
    let Choice::Verbs { ports, or_soft } = choice else {
        return Ok(choice);
    };
    let (open, refused): (Vec<_>, Vec<_>) = ports
        .into_iter()
        .map(|port| (refusal(&port, settings, inspection), port))
        .partition(|(refusal, _)| refusal.is_none());
    if !open.is_empty() {
        let ports = open.into_iter().map(|(_, port)| port).collect();
        return Ok(Choice::Verbs { ports, or_soft });
    }
    let found: Vec<_> = refused
        .iter()
        .map(|(why, port)| format!("{port}: {}", why.as_deref().unwrap_or_default()))
        .collect();
    let found = found.join("; ");
    match or_soft {
        true => Ok(Choice::Soft(found)),
        false => Err(NoChoice {
            wanted: settings.hca.to_string(),
            found,
        }),
    }
}

/// Why the device of a port would not do, as far as that is known. One that cannot be asked may yet open for a PE.
fn refusal(port: &Usable, settings: &Settings, inspection: &Inspection) -> Option<String> {
    if let Err(why) = &inspection.library {
        return Some(why.clone());
    }
    let mut asked = inspection.devices.iter();
    let why = match asked.find(|(name, _)| *name == port.device) {
        None => NO_PROVIDER,
        Some((_, Ok(a))) if settings.transport == Transport::Xrc && !a.xrc => NO_XRC,
        Some(_) => return None,
    };
    Some(why.to_owned())
}

/// The variables of the table that are set, and not to their default.
fn changed() -> Vec<(&'static str, String)> {
    TABLE
        .iter()
        .filter_map(|row| {
            let set = |name: &'static str| {
                let value = std::env::var_os(name)?.to_string_lossy().into_owned();
                Some((name, value))
            };
            let (name, value) = set(row.name).or_else(|| row.alias.and_then(set))?;
            (value != row.default).then(|| (name, shown(name, value)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_ib::device::abilities::Abilities;
    use shmem_ib::verbs::{Fabric, Gid, Pkey};

    fn abilities(xrc: bool) -> Abilities {
        Abilities {
            xrc,
            ..Abilities::default()
        }
    }

    #[test]
    fn devices_that_do_not_serve_are_passed_over() {
        let inspection = Inspection {
            library: Ok("there".into()),
            devices: vec![
                ("without".into(), Ok(abilities(false))),
                ("with".into(), Ok(abilities(true))),
                ("closed".into(), Err("no permission".into())),
            ],
        };
        let over = |transport| Settings {
            transport,
            ..Settings::default()
        };
        let left_over = |transport, names: &[&str], or_soft| {
            let port = |name: &&str| Usable {
                device: (*name).into(),
                port: 1,
                gid_index: 0,
                gid: Gid([0; 16]),
                gid_why: "",
                pkey: Pkey::DEFAULT,
                sm_lid: 1,
                numa: None,
                fabric: Fabric::InfiniBand,
                rate: 1,
                emulated: false,
                why: String::new(),
            };
            let ports = names.iter().map(port).collect();
            match that_open(
                Choice::Verbs { ports, or_soft },
                &over(transport),
                &inspection,
            ) {
                Ok(Choice::Verbs { ports, .. }) => {
                    Ok(ports.into_iter().map(|p| p.device).collect::<Vec<_>>())
                }
                Ok(Choice::Soft(why)) => Err(format!("soft: {why}")),
                Err(e) => Err(e.to_string()),
            }
        };
        let left = |names: &[&str], or_soft| left_over(Transport::Xrc, names, or_soft);
        let all = left(&["without", "with", "closed"], true);
        assert_eq!(all, Ok(vec!["with".into(), "closed".into()]));
        let soft = left(&["without"], true).unwrap_err();
        assert!(soft.starts_with("soft: without port 1") && soft.contains(NO_XRC));
        let none = left(&["without"], false).unwrap_err();
        assert!(none.starts_with("SHMEM_HCA=auto cannot be had: without port 1"));
        let rc = left_over(Transport::Rc, &["without", "unlisted"], true);
        assert_eq!(rc, Ok(vec!["without".into()]));
        let unlisted = left_over(Transport::Rc, &["unlisted"], false).unwrap_err();
        assert!(unlisted.contains("ibverbs-providers"), "{unlisted}");
    }
}
