//! What PEs find in their environment besides what their agent has: that of shmrun, settings, and what was
//! typed.
//!
//! As with other launchers that users know, the variables of `shmrun` hold on all hosts. What describes a
//! host or a session there is left as it is found there ([`of_a_place`]). `--export` leaves nothing as it is
//! found: PEs get all, or only what is named.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use shmem_node::contract;

use super::JobError;
use crate::cli::{Export, HEAP_SIZE, Inherited};
use crate::frame::EnvVar;

/// Whether a variable is a setting, or named like one.
pub(super) fn is_setting(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    (bytes.starts_with(b"SHMEM_") || bytes.starts_with(b"SMA_")) && !is_of_a_pe(name)
}

/// Whether a variable describes our own place in another job, if this is a part of one.
fn is_of_a_pe(name: &OsStr) -> bool {
    contract::is_place(name.as_bytes())
}

/// Whether a variable describes a host, a session there or a terminal, and means nothing elsewhere.
fn of_a_place(name: &OsStr) -> bool {
    const NAMES: [&str; 17] = [
        "_",
        "HOME",
        "HOST",
        "HOSTNAME",
        "LOGNAME",
        "MAIL",
        "OLDPWD",
        "PWD",
        "SHELL",
        "SHLVL",
        "TTY",
        "USER",
        "WINDOWID",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        "STY",
    ];
    // Of batch systems there are also variables of the task that shmrun is.
    const BEGINNINGS: [&str; 6] = ["SSH_", "XDG_", "DBUS_", "TMUX", "SLURM", "FLUX_"];
    let begins = |with: &&str| name.as_bytes().starts_with(with.as_bytes());
    NAMES.iter().any(|n| name == *n) || BEGINNINGS.iter().any(begins)
}

/// Variables that were typed, each NAME=VALUE or the NAME of one of ours; the last one counts.
pub(super) fn typed(
    items: &[OsString],
    own: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<EnvVar>, JobError> {
    let own: Vec<(OsString, OsString)> = own.into_iter().collect();
    let mut out = Vec::new();
    add_typed(&mut out, items, &own)?;
    Ok(out)
}

fn add_typed(
    out: &mut Vec<EnvVar>,
    items: &[OsString],
    own: &[(OsString, OsString)],
) -> Result<(), JobError> {
    for item in items {
        let bytes = item.as_bytes();
        let split = bytes.iter().position(|&b| b == b'=');
        let name = &bytes[..split.unwrap_or(bytes.len())];
        if name.is_empty() {
            return Err(JobError::Env(item.display().to_string()));
        }
        let value = match split {
            Some(at) => Some(bytes[at + 1..].to_vec()),
            None => own
                .iter()
                .find(|(n, _)| n.as_bytes() == name)
                .map(|(_, v)| v.as_bytes().to_vec()),
        };
        out.retain(|(n, _)| n != name);
        // A variable that does not exist here is not passed on, as with mpiexec.
        out.extend(value.map(|v| (name.to_vec(), v)));
    }
    Ok(())
}

/// What PEs get beside the environment of their agent, if they get that, too: the settings, which must be
/// the same everywhere, with whatever else is named like them, then what was typed. With `far`, there are
/// agents on other hosts, whose environment is not ours.
pub(super) fn environment(
    options: &Inherited,
    several: bool,
    far: bool,
    own: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<EnvVar>, JobError> {
    let own: Vec<(OsString, OsString)> = own.into_iter().collect();
    let passed = |name: &OsStr| match &options.export {
        _ if is_setting(name) => true,
        Some(Export::Only(names)) => names.iter().any(|n| **n == *name),
        _ if is_of_a_pe(name) => false,
        Some(Export::All) => true,
        Some(Export::None) => false,
        None => far && !of_a_place(name),
    };
    let mut out: Vec<EnvVar> = own
        .iter()
        .filter(|(name, _)| passed(name))
        .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()))
        .collect();
    add_typed(&mut out, &options.genv, &own)?;
    if !several {
        add_typed(&mut out, &options.env, &own)?;
    }
    if let Some(heap) = &options.heap {
        add_typed(&mut out, &[format!("{HEAP_SIZE}={heap}").into()], &own)?;
    }
    Ok(out)
}

/// Whether PEs find nothing of the environment of their agent.
pub(super) fn has_bare_env(options: &Inherited) -> bool {
    options.export.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(options: &Inherited, far: bool) -> Vec<(String, String)> {
        let own = [
            ("SHMEM_SPIN", "1"),
            ("HOME", "/h"),
            ("LD_LIBRARY_PATH", "/lib"),
            ("SHMEM_CONNECT", "static"),
            ("SMA_OF_THE_PROGRAM", "own"),
            ("SHMEM_NODE", "1"),
            ("SHMEM_LOCAL_RANK", "3"),
            ("PMI_RANK", "3"),
            ("SSH_CLIENT", "x"),
        ]
        .map(|(n, v)| (n.into(), v.into()));
        let env = environment(options, false, far, own).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let mut env: Vec<_> = env.into_iter().map(|(n, v)| (text(n), text(v))).collect();
        env.sort();
        env
    }

    fn names(options: &Inherited, far: bool) -> Vec<String> {
        env(options, far)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    const SETTINGS: [&str; 3] = ["SHMEM_CONNECT", "SHMEM_SPIN", "SMA_OF_THE_PROGRAM"];

    #[test]
    fn typed_variables_win_over_settings() {
        let options = Inherited {
            genv: ["A=x", "SHMEM_SPIN=6"].map(OsString::from).to_vec(),
            env: ["SHMEM_SPIN=7", "HOME", "NOT_THERE", "A=b=c"]
                .map(OsString::from)
                .to_vec(),
            ..Inherited::default()
        };
        let heap = Inherited {
            heap: Some("1g".into()),
            genv: vec!["SHMEM_SYMMETRIC_SIZE=2g".into()],
            ..Inherited::default()
        };
        assert!(env(&heap, false).contains(&("SHMEM_SYMMETRIC_SIZE".into(), "1g".into())));
        let want = [
            ("A", "b=c"),
            ("HOME", "/h"),
            ("SHMEM_CONNECT", "static"),
            ("SHMEM_SPIN", "7"),
            ("SMA_OF_THE_PROGRAM", "own"),
        ]
        .map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(env(&options, false), want);
        let nameless = typed(&["=x".into()], []);
        assert!(matches!(nameless, Err(JobError::Env(_))));
    }

    #[test]
    fn other_hosts_get_what_describes_no_place() {
        let options = Inherited::default();
        assert_eq!(names(&options, false), SETTINGS);
        let far = [&["LD_LIBRARY_PATH"][..], &SETTINGS].concat();
        assert_eq!(names(&options, true), far);
        assert!(!has_bare_env(&options));
    }

    #[test]
    fn all_none_or_some_are_passed_on() {
        let [all, none, some] = ["all", "none", "HOME,NOT_THERE"].map(|export| Inherited {
            export: export.parse().ok(),
            ..Inherited::default()
        });
        let want = ["HOME", "LD_LIBRARY_PATH"];
        let want = [&want[..], &SETTINGS, &["SSH_CLIENT"]].concat();
        assert_eq!(names(&all, false), {
            let mut want = want.clone();
            want.sort_unstable();
            want
        });
        for far in [false, true] {
            assert_eq!(names(&none, far), SETTINGS);
            assert_eq!(names(&some, far), [&["HOME"][..], &SETTINGS].concat());
        }
        assert!([all, none, some].iter().all(has_bare_env));
    }
}
