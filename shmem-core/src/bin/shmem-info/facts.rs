//! What there is to tell, gathered before anything is printed.

use shmem_ib::device::choice::{Choice, NoChoice, Verdict, choose, judge};
use shmem_ib::device::inspect::{self, Inspection};
use shmem_ib::device::memlock::Memlock;
use shmem_ib::device::survey::Survey;
use shmem_ib::device::sysfs::Places;
use shmem_node::settings::{Settings, TABLE};

use crate::device::wanted;

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
        Self {
            version: env!("CARGO_PKG_VERSION"),
            verbs,
            settings: changed(),
            bad_setting,
            memlock: Memlock::current(),
            heap: settings.symmetric_size,
            inspection: inspect::inspect(),
            survey,
            verdicts,
            choice,
        }
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
