//! What PEs find in their environment besides what their agent has: settings, and what was typed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use shmem_node::contract;

use super::JobError;
use crate::frame::EnvVar;

/// What PEs get beside the environment of their agent: `--env`, and the settings, which must be the
/// same everywhere, with whatever else is named like them.
pub(super) fn environment(
    typed: &[OsString],
    own: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<EnvVar>, JobError> {
    let own: Vec<(OsString, OsString)> = own.into_iter().collect();
    let is_setting = |name: &OsStr| {
        // What describes our own place in another job, if this is a part of one, is no setting.
        let place = [
            contract::ENV_NODE,
            contract::ENV_LOCAL_RANK,
            contract::ENV_TEMPLATE_FD,
        ];
        let bytes = name.as_bytes();
        let named = bytes.starts_with(b"SHMEM_") || bytes.starts_with(b"SMA_");
        named && place.iter().all(|p| name != *p)
    };
    let mut out: Vec<EnvVar> = own
        .iter()
        .filter(|(name, _)| is_setting(name))
        .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()))
        .collect();
    for item in typed {
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
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_variables_win_over_settings() {
        let own = [
            ("SHMEM_SPIN", "1"),
            ("HOME", "/h"),
            ("SHMEM_CONNECT", "static"),
            ("SMA_OF_THE_PROGRAM", "own"),
            ("SHMEM_NODE", "1"),
            ("SHMEM_LOCAL_RANK", "3"),
        ]
        .map(|(n, v)| (n.into(), v.into()));
        let typed = ["SHMEM_SPIN=7", "HOME", "NOT_THERE", "A=b=c"].map(OsString::from);
        let mut env = environment(&typed, own).unwrap();
        env.sort();
        let want = [
            ("A", "b=c"),
            ("HOME", "/h"),
            ("SHMEM_CONNECT", "static"),
            ("SHMEM_SPIN", "7"),
            ("SMA_OF_THE_PROGRAM", "own"),
        ]
        .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()));
        assert_eq!(env, want);
        assert!(matches!(
            environment(&["=x".into()], []),
            Err(JobError::Env(_))
        ));
    }
}
