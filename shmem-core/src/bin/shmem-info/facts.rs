//! What there is to tell, gathered before anything is printed.

use shmem_ib::device::choice::{Choice, NO_XRC, NoChoice, Usable, Verdict, choose, judge};
use shmem_ib::device::hardware::Survey;
use shmem_ib::device::inspect::{self, Inspection};
use shmem_ib::device::memlock::Memlock;
use shmem_ib::device::sysfs::Places;
use shmem_node::settings::{Settings, TABLE, Transport};

use crate::wanted::wanted;

/// Everything.
pub(crate) struct Facts {
    pub(crate) version: &'static str,
    /// Whether this build can use RDMA devices.
    pub(crate) verbs: bool,
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
    /// What the first PE of a job would open.
    pub(crate) choice: Result<Choice, NoChoice>,
}

impl Facts {
    pub(crate) fn gather() -> Self {
        let (settings, bad_setting) = match Settings::from_env() {
            Ok(settings) => (settings, None),
            Err(e) => (Settings::default(), Some(e.to_string())),
        };
        let verbs = cfg!(feature = "verbs");
        let gid_index = settings.gid_index;
        let survey = Places {
            gid_index,
            ..Places::default()
        }
        .survey();
        let verdicts = judge(&survey, gid_index);
        // A build without verbs sees no devices.
        let choice = if verbs {
            choose(&wanted(&settings), 0, gid_index, &survey)
        } else {
            let none = Survey {
                devices: Vec::new(),
                trouble: Some("this program was built without feature `verbs`".into()),
            };
            choose(&wanted(&settings), 0, gid_index, &none)
        };
        let inspection = inspect::inspect();
        let choice = choice.and_then(|choice| match settings.transport {
            Transport::Rc => Ok(choice),
            Transport::Xrc => with_xrc(choice, &settings, &inspection),
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            verbs,
            settings: changed(),
            bad_setting,
            memlock: Memlock::current(),
            heap: settings.symmetric_size,
            inspection,
            survey,
            verdicts,
            choice,
        }
    }
}

/// Passes over ports of devices that open, but have no XRC, as a PE does that needs it.
fn with_xrc(
    choice: Choice,
    settings: &Settings,
    inspection: &Inspection,
) -> Result<Choice, NoChoice> {
    let Choice::Verbs { ports, or_soft } = choice else {
        return Ok(choice);
    };
    // What cannot be asked may yet open for a PE.
    let lacks = |port: &Usable| {
        let mut asked = inspection.devices.iter();
        let mine = asked.find(|(name, _)| *name == port.device);
        mine.is_some_and(|(_, a)| a.as_ref().is_ok_and(|a| !a.xrc))
    };
    let (without, ports): (Vec<_>, Vec<_>) = ports.into_iter().partition(lacks);
    if !ports.is_empty() {
        return Ok(Choice::Verbs { ports, or_soft });
    }
    let found: Vec<_> = without.iter().map(|p| format!("{p}: {NO_XRC}")).collect();
    let found = found.join("; ");
    match or_soft {
        true => Ok(Choice::Soft(found)),
        false => Err(NoChoice {
            wanted: settings.hca.to_string(),
            found,
        }),
    }
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
            (value != row.default).then_some((name, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_ib::device::abilities::Abilities;
    use shmem_ib::verbs::{Fabric, Gid};

    fn abilities(xrc: bool) -> Abilities {
        Abilities {
            xrc,
            ..Abilities::default()
        }
    }

    #[test]
    fn a_device_without_xrc_is_passed_over_where_it_is_needed() {
        let inspection = Inspection {
            library: Ok("there".into()),
            devices: vec![
                ("without".into(), Ok(abilities(false))),
                ("with".into(), Ok(abilities(true))),
                ("closed".into(), Err("no permission".into())),
            ],
        };
        let settings = Settings::default();
        let left = |names: &[&str], or_soft| {
            let port = |name: &&str| Usable {
                device: (*name).into(),
                port: 1,
                gid_index: 0,
                gid: Gid([0; 16]),
                fabric: Fabric::InfiniBand,
                rate: 1,
                emulated: false,
            };
            let ports = names.iter().map(port).collect();
            match with_xrc(Choice::Verbs { ports, or_soft }, &settings, &inspection) {
                Ok(Choice::Verbs { ports, .. }) => {
                    Ok(ports.into_iter().map(|p| p.device).collect::<Vec<_>>())
                }
                Ok(Choice::Soft(why)) => Err(format!("soft: {why}")),
                Err(e) => Err(e.to_string()),
            }
        };
        let all = left(&["without", "with", "closed"], true);
        assert_eq!(all, Ok(vec!["with".into(), "closed".into()]));
        let soft = left(&["without"], true).unwrap_err();
        assert!(soft.starts_with("soft: without port 1") && soft.contains(NO_XRC));
        let none = left(&["without"], false).unwrap_err();
        assert!(none.starts_with("SHMEM_HCA=auto cannot be had: without port 1"));
    }
}
