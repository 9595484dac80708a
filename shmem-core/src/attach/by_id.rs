//! Without a launcher, by an id: which one, and this process's rank, are arguments of init or stand in the
//! environment.

use shmem_node::contract::ENV_NODE;
use shmem_node::settings::Settings;
use shmem_pmi::id::UniqueId;

use crate::error::Error;

/// What the processes of a framework have in their environments.
const RANK: &str = "RANK";
const WORLD_SIZE: &str = "WORLD_SIZE";
const MASTER_ADDR: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";
/// What names a run of it, and one of several attempts at that.
const RUN: [&str; 2] = ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"];

/// A place in the job of an id.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) id: UniqueId,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

impl Start {
    pub(crate) fn new(id: &UniqueId, rank: usize, size: usize) -> Result<Self, Error> {
        match (u32::try_from(rank), u32::try_from(size)) {
            (Ok(rank), Ok(size)) => Ok(Self {
                id: id.clone(),
                rank,
                size,
            }),
            _ => Err(Error::Launch(format!(
                "PE {rank} of {size}: the numbers are too large"
            ))),
        }
    }

    /// What the environment says, `lookup` giving the value of a variable; nothing where it names neither an id nor a
    /// secret, or `shmrun` has started this process.
    pub(super) fn from_environment(
        settings: &Settings,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Error> {
        if lookup(ENV_NODE).is_some() {
            return Ok(None);
        }
        let (setting, id) = match (&settings.unique_id, &settings.unique_id_secret) {
            (Some(text), _) => ("SHMEM_UNIQUE_ID", text.reveal().parse()),
            (None, Some(secret)) => {
                let host = needed(&lookup, SECRET, MASTER_ADDR)?;
                let run = RUN.map(|name| lookup(name).unwrap_or_default());
                let run = run.each_ref().map(String::as_str);
                let port = match settings.unique_id_port {
                    0 => number::<u16>(&lookup, SECRET, MASTER_PORT)?
                        .checked_add(1)
                        .ok_or_else(|| {
                            Error::Launch(
                                "there is no port after MASTER_PORT=65535: set SHMEM_UNIQUE_ID_PORT".into(),
                            )
                        })?,
                    port => port,
                };
                (
                    SECRET,
                    UniqueId::from_secret(secret.reveal(), host.trim(), port, &run),
                )
            }
            (None, None) => return Ok(None),
        };
        let id = id.map_err(|e| Error::Launch(format!("{setting} cannot be used: {e}")))?;
        Ok(Some(Self {
            rank: number(&lookup, setting, RANK)?,
            size: number(&lookup, setting, WORLD_SIZE)?,
            id,
        }))
    }
}

/// What says how to find the others, for a process whose settings make no sense: the rest is as if it were not set.
pub(super) fn settings_alone(lookup: impl Fn(&str) -> Option<String>) -> Settings {
    let of_ids = |name: &str| name.starts_with("SHMEM_UNIQUE_ID") || name == "SHMEM_INIT_TIMEOUT";
    Settings::parse(|name| of_ids(name).then(|| lookup(name)).flatten()).unwrap_or_default()
}

const SECRET: &str = "SHMEM_UNIQUE_ID_SECRET";

fn needed(
    lookup: &impl Fn(&str) -> Option<String>,
    given: &str,
    name: &str,
) -> Result<String, Error> {
    lookup(name).ok_or_else(|| {
        Error::Launch(format!(
            "{given} is set, but {name} is not: {}",
            match name {
                RANK => "it says which PE this process is, from 0",
                WORLD_SIZE => "it says how many PEs the job has",
                _ => "it says where PE 0 is, and torchrun and its like set it; or set SHMEM_UNIQUE_ID",
            }
        ))
    })
}

fn number<T: std::str::FromStr>(
    lookup: &impl Fn(&str) -> Option<String>,
    given: &str,
    name: &str,
) -> Result<T, Error> {
    let text = needed(lookup, given, name)?;
    let read = text.trim().parse();
    read.map_err(|_| Error::Launch(format!("{name}={text} is no number that it can be")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a secret of the tests";

    fn start(variables: &[(&str, &str)]) -> Result<Option<Start>, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let settings = Settings::parse(get).map_err(|e| e.to_string())?;
        Start::from_environment(&settings, get).map_err(|e| e.to_string())
    }

    #[test]
    fn frameworks_variables_make_a_start_where_there_is_a_secret() {
        let torch = [
            ("MASTER_ADDR", "node7"),
            ("MASTER_PORT", "29500"),
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
        ];
        assert!(start(&torch).unwrap().is_none());
        let secret = [("SHMEM_UNIQUE_ID_SECRET", KEY)];
        let found = start(&[&torch[..], &secret].concat()).unwrap().unwrap();
        assert_eq!((found.rank, found.size), (3, 8));
        assert_eq!(found.id.address(), ("node7", 29501));
        let port = [("SHMEM_UNIQUE_ID_PORT", "4711")];
        let found = start(&[&torch[..], &secret, &port].concat())
            .unwrap()
            .unwrap();
        assert_eq!(found.id.address(), ("node7", 4711));
        let alike = UniqueId::from_secret(KEY, "node7", 4711, &["", ""]).unwrap();
        assert_eq!(found.id.to_bytes(), alike.to_bytes());
        // Another attempt is another job.
        let again = [port[0], ("TORCHELASTIC_RESTART_COUNT", "1")];
        let again = start(&[&torch[..], &secret, &again].concat())
            .unwrap()
            .unwrap();
        assert_ne!(again.id.to_bytes(), alike.to_bytes());
        // Started by shmrun.
        let node = [("SHMEM_NODE", "5")];
        assert!(
            start(&[&torch[..], &secret, &node].concat())
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn an_id_comes_before_a_secret() {
        let id = UniqueId::at("node1", 99).unwrap().to_text();
        let found = start(&[
            ("SHMEM_UNIQUE_ID", &id),
            ("SHMEM_UNIQUE_ID_SECRET", KEY),
            ("RANK", "0"),
            ("WORLD_SIZE", "1"),
        ]);
        assert_eq!(found.unwrap().unwrap().id.to_text(), id);
    }

    #[test]
    fn what_is_missing_is_named_and_no_secret_is() {
        let id = UniqueId::at("node1", 99).unwrap().to_text();
        let damaged = &id[..id.len() - 3];
        let secret = ("SHMEM_UNIQUE_ID_SECRET", KEY);
        for (variables, parts) in [
            (
                &[("SHMEM_UNIQUE_ID", &id[..])][..],
                ["SHMEM_UNIQUE_ID is set", "RANK is not"],
            ),
            (
                &[("SHMEM_UNIQUE_ID", &id), ("RANK", "0")],
                ["SHMEM_UNIQUE_ID is set", "WORLD_SIZE is not"],
            ),
            (
                &[("SHMEM_UNIQUE_ID", &id), ("RANK", "x")],
                ["RANK=x", "number"],
            ),
            (
                &[("SHMEM_UNIQUE_ID", damaged)],
                ["SHMEM_UNIQUE_ID cannot", "hexadecimal"],
            ),
            (&[secret], ["MASTER_ADDR is not", "torchrun"]),
            (
                &[secret, ("MASTER_ADDR", "a")],
                ["MASTER_PORT is not", "torchrun"],
            ),
            (
                &[secret, ("MASTER_ADDR", "a"), ("MASTER_PORT", "65535")],
                ["65535", "SHMEM_UNIQUE_ID_PORT"],
            ),
        ] {
            let text = start(variables).unwrap_err();
            for part in parts {
                assert!(text.contains(part), "{variables:?}: {text}");
            }
            assert!(!text.contains(KEY) && !text.contains(&id[20..40]), "{text}");
        }
    }
}
