//! Which machines a job runs on, as users name them: `--hosts a,b:4` and host files.
//!
//! Host files of other launchers and of batch systems are understood: `host:slots`, `user=` and `binding=`
//! (Hydra), `host slots=N max_slots=M` (Open MPI), and a line for every slot (PBS, LSF), also in any order. A
//! host that is named several times has the slots of all its lines together, a line without a number being
//! one.
//!
//! A host's name is handed to the remote shell as it stands, so it may be whatever that command
//! understands (an alias of ssh's configuration, `user@host`, an address).

use std::collections::HashMap;
use std::net::Ipv6Addr;

use shmem_node::contract::MAX_PES;

/// A machine, and how many PEs it takes if that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Most PEs on it.
    pub slots: Option<u32>,
    /// What it is called by what starts processes on it, if that is not its name.
    pub target: Option<String>,
}

impl Host {
    /// A host of which only the name is known.
    pub fn new(name: String) -> Self {
        Self {
            name,
            slots: None,
            target: None,
        }
    }
}

/// What a host file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// What in it has no effect.
    pub notes: Vec<String>,
}

/// Hosts that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// There is none.
    #[error("{place}: no host is named")]
    None {
        /// The option or the file.
        place: String,
    },
    /// A name that no remote shell could take.
    #[error("{place}: '{name}' cannot be the name of a host")]
    Name {
        /// Where it stands.
        place: String,
        /// What stands there.
        name: String,
    },
    /// Several names in one line of a file.
    #[error("{place}: '{line}' names several hosts; in a host file each line names one")]
    Several {
        /// Where it stands.
        place: String,
        /// What stands there.
        line: String,
    },
    /// Colons without an IPv6 address.
    #[error(
        "{place}: '{name}' is no IPv6 address; a host with a number of slots is HOST:SLOTS, and with an IPv6 address \
         [ADDRESS]:SLOTS"
    )]
    Colons {
        /// Where it stands.
        place: String,
        /// What stands there.
        name: String,
    },
    /// Slots that are no number.
    #[error("{place}: '{value}' is no number of slots; expected a number of at least 1")]
    Slots {
        /// Where it stands.
        place: String,
        /// What stands there.
        value: String,
    },
    /// A word in a host file that means nothing.
    #[error(
        "{place}: '{word}' is not understood; a line is: HOST, HOST:SLOTS or HOST slots=N, and perhaps \
         max_slots=N, user=NAME, # comment"
    )]
    Word {
        /// Where it stands.
        place: String,
        /// What stands there.
        word: String,
    },
    /// More slots than there can be PEs.
    #[error("{place}: host {name} has too many slots: more than {max} PEs cannot be started", max = MAX_PES)]
    TooMany {
        /// Where it stands.
        place: String,
        /// The host.
        name: String,
    },
    /// Something that is said twice.
    #[error("{place}: '{line}' says twice how many slots there are, or for which user")]
    Twice {
        /// Where it stands.
        place: String,
        /// What stands there.
        line: String,
    },
    /// `localhost` behind another host.
    #[error(
        "{place}: localhost has to be the first host, since others are reached from several hosts; \
         use the name by which those know this machine"
    )]
    Localhost {
        /// The option or the file.
        place: String,
    },
}

/// Reads the list of `--hosts`: names with commas between them, each with `:N` if it takes N PEs.
/// IPv6 addresses with slots stand in brackets.
///
/// # Errors
/// The first entry that makes no sense.
pub fn parse_list(text: &str) -> Result<Vec<Host>, HostsError> {
    let place = "--hosts";
    let mut hosts = Hosts::default();
    for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        let (name, slots) = split(entry);
        hosts.add(place, host(place, name, slots)?)?;
    }
    hosts.finish(place)
}

/// Reads a host file: a host on each line, as in the list or with `slots=N` behind it; `#` begins a
/// comment. `path` is for messages.
///
/// # Errors
/// The first line that makes no sense.
pub fn parse_file(path: &str, text: &str) -> Result<Parsed, HostsError> {
    let mut hosts = Hosts::default();
    let mut notes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{path}:{number}");
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(entry) = words.next() else { continue };
        let (name, mut slots) = split(entry);
        let (mut most, mut user) = (None, None);
        for word in words {
            let place = || place.clone();
            let twice = match word.split_once('=') {
                Some(("slots", value)) => slots.replace(value),
                Some(("max_slots" | "max-slots", value)) => most.replace(value),
                Some(("user", value)) => user.replace(value),
                // It is for each host in Hydra's files, and for all of a job here.
                Some(("binding", _)) => {
                    notes.push(format!("{}: {word} has no effect", place()));
                    None
                }
                _ => {
                    let (place, word) = (place(), word.to_owned());
                    return Err(HostsError::Word { place, word });
                }
            };
            if twice.is_some() {
                let (place, line) = (place(), line.trim().to_owned());
                return Err(HostsError::Twice { place, line });
            }
        }
        let mut found = host(&place, name, slots.or(most))?;
        let most = host(&place, name, most)?.slots;
        found.slots = found.slots.map(|n| most.map_or(n, |most| n.min(most)));
        if let Some(user) = user {
            // What it may be is what a host may be.
            host(&place, user, None)?;
            found.target = Some(format!("{user}@{name}"));
        }
        hosts.add(&place, found)?;
    }
    let hosts = hosts.finish(path)?;
    Ok(Parsed { hosts, notes })
}

/// The name and the slots of an entry.
fn split(entry: &str) -> (&str, Option<&str>) {
    match entry.strip_prefix('[').and_then(|e| e.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, rest)) => match rest.strip_prefix(':') {
            Some(slots) => (address, Some(slots)),
            // Refused as a name.
            None => (entry, None),
        },
        // Several colons make an IPv6 address.
        None if entry.matches(':').count() > 1 => (entry, None),
        None => match entry.split_once(':') {
            Some((name, slots)) => (name, Some(slots)),
            None => (entry, None),
        },
    }
}

/// Hosts as they are found, in the order in which they are named first.
#[derive(Debug, Default)]
struct Hosts {
    hosts: Vec<Host>,
    at: HashMap<String, usize>,
}

impl Hosts {
    fn add(&mut self, place: &str, host: Host) -> Result<(), HostsError> {
        let place = || place.to_owned();
        let Some(&at) = self.at.get(&host.name) else {
            if host.name == "localhost" && !self.hosts.is_empty() {
                return Err(HostsError::Localhost { place: place() });
            }
            self.at.insert(host.name.clone(), self.hosts.len());
            self.hosts.push(host);
            return Ok(());
        };
        let all = &mut self.hosts[at].slots;
        let sum = all.unwrap_or(1).saturating_add(host.slots.unwrap_or(1));
        if sum > MAX_PES {
            let name = host.name;
            let place = place();
            return Err(HostsError::TooMany { place, name });
        }
        *all = Some(sum);
        Ok(())
    }

    fn finish(self, place: &str) -> Result<Vec<Host>, HostsError> {
        match self.hosts.is_empty() {
            true => Err(HostsError::None {
                place: place.to_owned(),
            }),
            false => Ok(self.hosts),
        }
    }
}

fn host(place: &str, name: &str, slots: Option<&str>) -> Result<Host, HostsError> {
    let place = || place.to_owned();
    // A dash would make an option of it, for the remote shell to obey.
    let odd = |c: char| c.is_whitespace() || c.is_control() || "'\"`$\\;&|<>()[]*?!".contains(c);
    if name.is_empty() || name.starts_with('-') || name.contains(odd) {
        let name = name.to_owned();
        let place = place();
        return Err(HostsError::Name { place, name });
    }
    if name.contains(',') {
        let (place, line) = (place(), name.to_owned());
        return Err(HostsError::Several { place, line });
    }
    if name.contains(':') && !is_ipv6(name) {
        let (place, name) = (place(), name.to_owned());
        return Err(HostsError::Colons { place, name });
    }
    let slots = slots
        .map(|value| match value.parse() {
            Ok(n @ 1..) => Ok(n),
            _ => Err(HostsError::Slots {
                place: place(),
                value: value.to_owned(),
            }),
        })
        .transpose()?;
    Ok(Host {
        slots,
        ..Host::new(name.to_owned())
    })
}

/// Whether a name is an IPv6 address, perhaps of a user and with an interface: `user@fe80::1%eth0`.
fn is_ipv6(name: &str) -> bool {
    let address = name.rsplit_once('@').map_or(name, |(_, address)| address);
    let address = address
        .split_once('%')
        .map_or(address, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

/// Whether `name` is the machine that calls itself `own`, with or without its domain.
pub fn is_this_machine(name: &str, own: &str) -> bool {
    name == "localhost" || name == own || own.split('.').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(hosts: &[Host]) -> Vec<(&str, Option<u32>)> {
        hosts.iter().map(|h| (h.name.as_str(), h.slots)).collect()
    }

    #[test]
    fn lists_have_names_and_slots() {
        let hosts = parse_list("a, b:4,user@c.example,fd00::1,[fd00::2]:3,[fd00::3]").unwrap();
        assert_eq!(
            named(&hosts),
            [
                ("a", None),
                ("b", Some(4)),
                ("user@c.example", None),
                ("fd00::1", None),
                ("fd00::2", Some(3)),
                ("fd00::3", None)
            ]
        );
        for (wrong, part) in [
            ("", "no host"),
            (",,", "no host"),
            ("a:2000000,a", "host a has too many slots"),
            ("-oProxyCommand=x", "cannot be the name"),
            ("a b", "cannot be the name"),
            ("a;b", "cannot be the name"),
            ("a:0", "'0' is no number of slots"),
            ("a:many", "'many' is no number"),
            ("a:", "'' is no number"),
            ("[::1]x:3", "'[::1]x:3' cannot be the name"),
            ("[::1]3", "'[::1]3' cannot be the name"),
            (":4", "cannot be the name"),
            ("a,localhost", "localhost has to be the first"),
            (
                "localhost:2:3",
                "'localhost:2:3' is no IPv6 address; a host with",
            ),
        ] {
            let text = parse_list(wrong).unwrap_err().to_string();
            assert!(text.contains(part), "{wrong}: {text}");
        }
    }

    #[test]
    fn files_have_a_host_a_line() {
        let text = "# cluster\nlocalhost slots=2 # here\n\n  b\nc\tslots=16\r\n";
        let hosts = parse_file("f", text).unwrap().hosts;
        assert_eq!(
            named(&hosts),
            [("localhost", Some(2)), ("b", None), ("c", Some(16))]
        );
        let text = parse_file("f", "a\nb max=3\n").unwrap_err().to_string();
        assert!(text.contains("f:2: 'max=3'"), "{text}");
        let text = parse_file("f", "a slots=-1").unwrap_err().to_string();
        assert!(text.contains("f:1: ") && text.contains("'-1'"), "{text}");
        assert!(parse_file("f", "a slots=1 slots=2").is_err());
        assert!(parse_file("f", "#\n").is_err());
    }

    #[test]
    fn files_of_other_launchers_are_understood() {
        let hosts = |text: &str| parse_file("f", text).unwrap().hosts;
        // Hydra.
        assert_eq!(
            named(&hosts("a:2\nb:16 # big\n[fd00::2]:3\nfd00::3\n")),
            [
                ("a", Some(2)),
                ("b", Some(16)),
                ("fd00::2", Some(3)),
                ("fd00::3", None)
            ]
        );
        let found = hosts("a:2 user=bob\nb user=eve\n");
        let targets: Vec<_> = found.iter().map(|h| h.target.as_deref()).collect();
        assert_eq!(targets, [Some("bob@a"), Some("eve@b")]);
        let parsed = parse_file("f", "a:4 binding=user:0,1\nb\n").unwrap();
        assert_eq!(parsed.notes, ["f:1: binding=user:0,1 has no effect"]);
        // Open MPI.
        let limited = "a slots=2 max_slots=4\nb max-slots=3\nc slots=5 max_slots=4\n";
        assert_eq!(
            named(&hosts(limited)),
            [("a", Some(2)), ("b", Some(3)), ("c", Some(4))]
        );
        // PBS, block by block and cyclic.
        let want = [("n1", Some(3)), ("n2", Some(2)), ("n3", None)];
        assert_eq!(named(&hosts("n1\nn1\nn1\nn2\nn2\nn3\n")), want);
        assert_eq!(named(&hosts("n1\nn2\nn3\nn1\nn2\nn1\n")), want);
        assert_eq!(named(&hosts("a slots=2\na:3\na\n")), [("a", Some(6))]);
        assert_eq!(
            named(&parse_list("a,b,a").unwrap()),
            [("a", Some(2)), ("b", None)]
        );
        for (wrong, part) in [
            ("a\nb:x\n", "f:2: 'x' is no number of slots"),
            ("a:2 slots=3", "f:1: 'a:2 slots=3' says twice"),
            ("a max_slots=0", "f:1: '0' is no number of slots"),
            ("a user=-x", "f:1: '-x' cannot be the name"),
            (
                "a\n\nb cpus=3 # x",
                "f:3: 'cpus=3' is not understood; a line is: HOST, HOST:SLOTS",
            ),
            ("a\nlocalhost", "f:2: localhost has to be the first"),
            ("a\n-o\n", "f:2: '-o' cannot be the name"),
            ("# a", "f: no host"),
            ("a\nb,c,d", "f:2: 'b,c,d' names several hosts"),
            (
                "a\nlocalhost:2:3",
                "f:2: 'localhost:2:3' is no IPv6 address",
            ),
        ] {
            let text = parse_file("f", wrong).unwrap_err().to_string();
            assert!(text.contains(part), "{wrong}: {text}");
        }
    }

    #[test]
    fn ipv6_addresses_may_have_users_and_interfaces() {
        let hosts = parse_list("bob@fd00::1,fe80::1%eth0,::1").unwrap();
        assert_eq!(hosts.len(), 3);
        assert!(parse_list("bob@fd00::x").is_err());
    }

    #[test]
    fn this_machine_has_several_names() {
        assert!(is_this_machine("localhost", "n1"));
        assert!(is_this_machine("n1", "n1"));
        assert!(is_this_machine("n1", "n1.example"));
        assert!(!is_this_machine("n1.example", "n1.other"));
        assert!(!is_this_machine("n", "n1"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            hosts in proptest::collection::btree_map("[a-z][a-z0-9.]{0,12}-x", proptest::option::of(1u32..999), 1..20),
            blanks in "[ \t]{1,3}", comment in "(#[^\n]*)?",
        ) {
            let want: Vec<Host> =
                hosts.into_iter().map(|(name, slots)| Host { slots, ..Host::new(name) }).collect();
            let file: String = want.iter().map(|h| match h.slots {
                Some(n) => format!("{}{blanks}slots={n}{blanks}{comment}\n", h.name),
                None => format!("{blanks}{}{blanks}{comment}\n\n", h.name),
            }).collect();
            prop_assert_eq!(parse_file("f", &file).map(|f| f.hosts), Ok(want.clone()));
            let list: Vec<String> = want.iter().map(|h| match h.slots {
                Some(n) => format!("{}:{n}", h.name),
                None => h.name.clone(),
            }).collect();
            prop_assert_eq!(parse_list(&list.join(",")), Ok(want));
        }

        #[test]
        fn no_text_panics_and_no_name_is_an_option(text in ".*") {
            let file = parse_file("f", &text).map(|f| f.hosts);
            for hosts in [parse_list(&text), file].into_iter().flatten() {
                prop_assert!(hosts.iter().all(|h| !h.name.starts_with('-') && !h.name.contains(' ')));
            }
        }
    }
}
