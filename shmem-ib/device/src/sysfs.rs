//! Looks for RDMA devices in sysfs, where the kernel tells all that a choice needs: without a
//! library, without opening a device, and on a machine without any for the price of one look at
//! a directory that is not there.

#![forbid(unsafe_code)]

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::hardware::{
    GidEntry, GidKind, LinkLayer, PhysicalState, PortState, RdmaDevice, RdmaPort, Survey, Transport,
};
use super::networks;
use shmem_verbs::{Gid, Pkey};

/// Tables of GIDs have up to 1024 entries, filled from the front. After so many empty ones in a
/// row nobody looks any further.
const EMPTY_GIDS: u16 = 16;

/// What [`Places::remember_absence`] found: the directory without devices, and why it has none.
static NO_DEVICE: OnceLock<(PathBuf, String)> = OnceLock::new();

/// Where the kernel tells of devices.
#[derive(Clone, Debug)]
pub struct Places {
    /// `/sys/class`.
    pub class: PathBuf,
    /// `/dev/infiniband`.
    pub dev: PathBuf,
    /// `/proc/net`.
    pub net: PathBuf,
    /// `/sys/devices/system/node`.
    pub nodes: PathBuf,
    /// An index of the tables of GIDs to look at wherever it is.
    pub gid_index: Option<u8>,
    /// Whether to read tables of partitions whole, and not just their first entries.
    pub whole_pkeys: bool,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            class: "/sys/class".into(),
            dev: "/dev/infiniband".into(),
            net: "/proc/net".into(),
            nodes: "/sys/devices/system/node".into(),
            gid_index: None,
            whole_pkeys: false,
        }
    }
}

impl Places {
    /// Looks at all devices.
    #[must_use]
    pub fn survey(&self) -> Survey {
        let names = match self.remembered_absence() {
            Some(trouble) => Err(trouble.to_owned()),
            None => self.names(),
        };
        match names {
            Ok(names) => Survey {
                networks: match names.len() {
                    1 => Vec::new(),
                    _ => networks::connected(&self.net),
                },
                devices: names.into_iter().map(|name| self.device(name)).collect(),
                trouble: None,
            },
            Err(trouble) => Survey {
                trouble: Some(trouble),
                ..Survey::default()
            },
        }
    }

    /// Remembers that there is no device, if there is none. [`survey`](Self::survey) then makes no system call, neither in
    /// this process nor in those that it forks.
    pub fn remember_absence(&self) {
        if let Err(trouble) = self.names() {
            let _ = NO_DEVICE.set((self.class.clone(), trouble));
        }
    }

    /// Why there is no device, if [`remember_absence`](Self::remember_absence) found none.
    #[must_use]
    pub fn remembered_absence(&self) -> Option<&'static str> {
        let (class, trouble) = NO_DEVICE.get()?;
        (*class == self.class).then_some(trouble)
    }

    /// The names of all devices in order, at least one; or why there are none.
    fn names(&self) -> Result<Vec<String>, String> {
        let class = self.class.join("infiniband");
        let entries = fs::read_dir(&class).map_err(|e| match e.kind() {
            ErrorKind::NotFound => format!(
                "{} does not exist: this machine has no RDMA device, or its driver is not loaded",
                class.display()
            ),
            _ => format!("cannot read {}: {e}", class.display()),
        })?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        if names.is_empty() {
            let class = class.display();
            return Err(format!("{class} is empty: this machine has no RDMA device"));
        }
        // So that mlx5_10 comes behind mlx5_9.
        names.sort_unstable_by_key(|name| (name.len(), name.clone()));
        Ok(names)
    }

    fn device(&self, name: String) -> RdmaDevice {
        let dir = self.dir(&name);
        let mut numbers: Vec<u8> = fs::read_dir(dir.join("ports"))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let ports = numbers
            .into_iter()
            .map(|number| self.look_at_port(&self.port(&name, number), number))
            .collect();
        RdmaDevice {
            transport: transport(&line(&dir.join("node_type"))),
            emulated: self.is_emulated(&name),
            guid: line(&dir.join("node_guid")),
            // -1 where the machine does not tell.
            numa: line(&dir.join("device/numa_node")).parse().ok(),
            access: self.access(&name),
            name,
            ports,
        }
    }

    /// Where the kernel tells of a device.
    fn dir(&self, name: &str) -> PathBuf {
        self.class.join("infiniband").join(name)
    }

    /// Where the kernel tells of a port.
    pub(crate) fn port(&self, name: &str, number: u8) -> PathBuf {
        self.dir(name).join("ports").join(number.to_string())
    }

    /// Whether the device is Soft-RoCE, which sits on a network interface; other devices belong to a
    /// bus instead.
    pub(crate) fn is_emulated(&self, name: &str) -> bool {
        let dir = self.dir(name);
        dir.join("parent").exists() && !dir.join("device").exists()
    }

    fn look_at_port(&self, dir: &Path, number: u8) -> RdmaPort {
        let link = match line(&dir.join("link_layer")).as_str() {
            "InfiniBand" => LinkLayer::InfiniBand,
            "Ethernet" => LinkLayer::Ethernet,
            other => LinkLayer::Other(other.to_owned()),
        };
        let hex = |name| {
            let text = line(&dir.join(name));
            u16::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
        };
        let physical = line(&dir.join("phys_state"));
        RdmaPort {
            number,
            state: state(&line(&dir.join("state"))),
            rate: rate(&line(&dir.join("rate"))),
            physical: code(&physical).map_or(PhysicalState::Other, |code| {
                PhysicalState::from_code(u8::try_from(code).unwrap_or(0))
            }),
            lid: hex("lid"),
            lmc: line(&dir.join("lid_mask_count")).parse().unwrap_or(0),
            sm_lid: hex("sm_lid"),
            needs_grh: false,
            pkeys: self.pkeys(dir),
            gids: self.gids(dir, &link),
            link,
        }
    }

    fn gids(&self, port: &Path, link: &LinkLayer) -> Vec<GidEntry> {
        let mut found = Vec::new();
        let mut empty = 0;
        let front = (0..=u16::MAX).map_while(|index| gid(port, link, index).ok());
        for entry in front {
            empty = if entry.is_some() { 0 } else { empty + 1 };
            found.extend(entry);
            if empty == EMPTY_GIDS {
                break;
            }
        }
        if let Some(index) = self.gid_index.map(u16::from)
            && !found.iter().any(|entry: &GidEntry| entry.index == index)
        {
            found.extend(gid(port, link, index).ok().flatten());
        }
        found
    }

    fn pkeys(&self, port: &Path) -> Vec<(u16, Pkey)> {
        let most = if self.whole_pkeys { u16::MAX } else { 0 };
        let entry = |index: u16| {
            let path = port.join("pkeys").join(index.to_string());
            let text = fs::read_to_string(path).ok()?;
            let key = u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
            Some((index, Pkey(key)))
        };
        (0..=most).map_while(entry).collect()
    }

    /// Whether the device's file can be opened.
    fn access(&self, name: &str) -> Result<(), String> {
        let entries = fs::read_dir(self.class.join("infiniband_verbs"));
        let file = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok())
            .find(|entry| line(&entry.path().join("ibdev")) == name)
            .ok_or("programs cannot use it: load the kernel module ib_uverbs")?
            .file_name();
        let file = self.dev.join(file);
        match OpenOptions::new().read(true).write(true).open(&file) {
            Ok(_) => Ok(()),
            Err(e) => Err(match e.kind() {
                ErrorKind::NotFound => format!(
                    "{} does not exist: in a container, give it that device (--device \
                     /dev/infiniband)",
                    file.display()
                ),
                ErrorKind::PermissionDenied => format!(
                    "{} may not be opened: give its users read and write permission (group rdma, \
                     udev rule), or allow the container that device",
                    file.display()
                ),
                _ => format!("{} cannot be opened: {e}", file.display()),
            }),
        }
    }
}

/// The entry of a table of GIDs, if it is set; an error behind the table's end.
pub(crate) fn gid(
    port: &Path,
    link: &LinkLayer,
    index: u16,
) -> Result<Option<GidEntry>, std::io::Error> {
    let text = fs::read_to_string(port.join("gids").join(index.to_string()))?;
    // Entries that are not set have no interface part; on InfiniBand they may have a prefix.
    let set = |ip: &Ipv6Addr| ip.segments()[4..] != [0; 4];
    let Some(ip) = text.trim().parse::<Ipv6Addr>().ok().filter(set) else {
        return Ok(None);
    };
    let kind = line(&port.join("gid_attrs/types").join(index.to_string()));
    Ok(Some(GidEntry {
        index,
        gid: Gid(ip.octets()),
        // The kernel has one name for the others: "IB/RoCE v1".
        kind: match (kind.as_str(), link) {
            ("RoCE v2", _) => GidKind::RoceV2,
            (_, LinkLayer::Ethernet) => GidKind::RoceV1,
            _ => GidKind::InfiniBand,
        },
    }))
}

/// Of "4: ACTIVE".
fn state(text: &str) -> PortState {
    match code(text).map(PortState::from_code) {
        Some(state @ PortState::Other(_)) if word(text).is_empty() => state,
        Some(PortState::Other(_)) | None => PortState::Other(word(text).to_owned()),
        Some(state) => state,
    }
}

/// The number in front in "4: ACTIVE".
fn code(text: &str) -> Option<u32> {
    text.split(':').next()?.trim().parse().ok()
}

fn transport(node_type: &str) -> Transport {
    match word(node_type) {
        "CA" => Transport::InfiniBand,
        "RNIC" => Transport::Iwarp,
        other => Transport::Other(other.to_owned()),
    }
}

/// What follows the number in "4: ACTIVE".
fn word(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, word)| word.trim())
}

/// Megabits per second of "100 Gb/sec (4X EDR)".
fn rate(text: &str) -> u32 {
    let number = text.split_whitespace().next();
    let gigabits: Option<f64> = number.and_then(|n| n.parse().ok());
    gigabits.map_or(0, |g| (g * 1000.0) as u32)
}

/// The content of a file of one line; empty if it cannot be read.
pub(crate) fn line(path: &Path) -> String {
    fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree like the kernel's, which goes away in the end.
    pub(crate) struct Tree(PathBuf);

    impl Tree {
        pub(crate) fn new(name: &str) -> Self {
            let name = format!("shmem-sysfs-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        pub(crate) fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a place for tests");
            fs::write(path, format!("{text}\n")).expect("a place for tests");
        }

        pub(crate) fn places(&self) -> Places {
            Places {
                class: self.0.join("class"),
                dev: self.0.join("dev"),
                net: self.0.join("net"),
                nodes: self.0.join("node"),
                ..Places::default()
            }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const NO_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

    fn rxe(tree: &Tree, name: &str, uverbs: u32) {
        let dir = format!("class/infiniband/{name}");
        tree.file(&format!("{dir}/node_type"), "1: CA");
        tree.file(&format!("{dir}/parent"), "eth0");
        tree.file(&format!("{dir}/node_guid"), "5054:00ff:fe00:0001");
        let port = format!("{dir}/ports/1");
        tree.file(&format!("{port}/state"), "4: ACTIVE");
        tree.file(&format!("{port}/link_layer"), "Ethernet");
        tree.file(&format!("{port}/rate"), "2.5 Gb/sec (1X SDR)");
        tree.file(&format!("{port}/lid"), "0x0");
        tree.file(&format!("{port}/phys_state"), "5: LinkUp");
        tree.file(&format!("{port}/pkeys/0"), "0xffff");
        tree.file(&format!("{port}/pkeys/1"), "0x0001");
        let gids = [
            (0, "fe80:0000:0000:0000:5054:00ff:fe00:0001", "RoCE v2"),
            (1, "0000:0000:0000:0000:0000:ffff:0a05:0001", "RoCE v2"),
        ];
        for (index, gid, kind) in gids {
            tree.file(&format!("{port}/gids/{index}"), gid);
            tree.file(&format!("{port}/gid_attrs/types/{index}"), kind);
        }
        for index in 2..64 {
            tree.file(&format!("{port}/gids/{index}"), NO_GID);
        }
        tree.file(
            &format!("class/infiniband_verbs/uverbs{uverbs}/ibdev"),
            name,
        );
    }

    #[test]
    fn a_machine_without_devices_says_so() {
        let survey = Tree::new("none").places().survey();
        assert!(survey.devices.is_empty());
        assert!(survey.trouble.expect("a reason").contains("does not exist"));
    }

    #[test]
    fn the_absence_of_devices_is_remembered() {
        let tree = Tree::new("absent");
        tree.places().remember_absence();
        rxe(&tree, "rxe0", 0);
        let trouble = tree.places().survey().trouble.expect("a reason");
        assert!(trouble.contains("does not exist"), "{trouble}");
        // Only what is absent is remembered.
        let other = Tree::new("present");
        rxe(&other, "rxe0", 0);
        other.places().remember_absence();
        assert_eq!(other.places().survey().devices.len(), 1);
    }

    #[test]
    fn a_soft_roce_device_is_read() {
        let tree = Tree::new("rxe");
        rxe(&tree, "rxe10", 1);
        rxe(&tree, "rxe9", 0);
        tree.file("dev/uverbs0", "");
        let survey = tree.places().survey();
        assert_eq!(survey.trouble, None);
        let names: Vec<_> = survey.devices.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["rxe9", "rxe10"]);
        let [nine, ten] = &survey.devices[..] else {
            panic!("{survey:?}")
        };
        assert_eq!(nine.access, Ok(()));
        assert!(ten.access.as_ref().unwrap_err().contains("container"));
        assert_eq!(nine.transport, Transport::InfiniBand);
        assert!(nine.emulated);
        let port = &nine.ports[0];
        assert!(port.state.is_active());
        assert_eq!((port.number, port.rate, port.lid), (1, 2500, 0));
        assert_eq!((nine.numa, port.physical), (None, PhysicalState::Up));
        assert_eq!(
            port.pkeys,
            [(0, Pkey(0xffff))],
            "no more is read than is asked for"
        );
        let whole = Places {
            whole_pkeys: true,
            ..tree.places()
        };
        let keys = &whole.survey().devices[0].ports[0].pkeys;
        assert_eq!(keys[..], [(0, Pkey(0xffff)), (1, Pkey(1))]);
        assert_eq!(port.link, LinkLayer::Ethernet);
        let ips: Vec<_> = port.gids.iter().map(|g| (g.index, g.gid.ip())).collect();
        assert_eq!(ips[1], (1, "10.5.0.1".parse().unwrap()));
        assert_eq!(ips.len(), 2);
    }

    #[test]
    fn an_infiniband_port_is_read() {
        let tree = Tree::new("ib");
        let dir = "class/infiniband/mlx5_0";
        for (name, text) in [
            ("node_type", "1: CA"),
            ("device/numa_node", "1"),
            ("ports/1/state", "2: INIT"),
            ("ports/1/phys_state", "2: Polling"),
            ("ports/1/link_layer", "InfiniBand"),
            ("ports/1/lid", "0x18"),
            ("ports/1/lid_mask_count", "3"),
            ("ports/1/sm_lid", "0x1"),
        ] {
            tree.file(&format!("{dir}/{name}"), text);
        }
        let survey = tree.places().survey();
        let (device, port) = (&survey.devices[0], &survey.devices[0].ports[0]);
        assert_eq!((device.numa, device.emulated), (Some(1), false));
        assert_eq!((port.lid, port.lmc, port.sm_lid), (24, 3, 1));
        assert_eq!(
            (&port.state, port.physical),
            (&PortState::Init, PhysicalState::Polling)
        );
        assert!(port.pkeys.is_empty() && port.pkey(None).is_ok());
        tree.file(&format!("{dir}/device/numa_node"), "-1");
        assert_eq!(tree.places().survey().devices[0].numa, None);
    }

    #[test]
    fn gaps_among_the_gids_are_passed() {
        let tree = Tree::new("gaps");
        rxe(&tree, "rxe0", 0);
        let gid = "0000:0000:0000:0000:0000:ffff:0a05:0002";
        tree.file("class/infiniband/rxe0/ports/1/gids/9", gid);
        tree.file("class/infiniband/rxe0/ports/1/gids/60", gid);
        let mut places = tree.places();
        assert_eq!(places.survey().devices[0].ports[0].gids.len(), 3);
        places.gid_index = Some(60);
        let survey = places.survey();
        let gids = &survey.devices[0].ports[0].gids;
        let found: Vec<_> = gids.iter().map(|g| (g.index, g.kind)).collect();
        assert_eq!(
            found,
            [
                (0, GidKind::RoceV2),
                (1, GidKind::RoceV2),
                (9, GidKind::RoceV1),
                (60, GidKind::RoceV1)
            ]
        );
    }

    #[test]
    fn damaged_files_are_no_failure() {
        let tree = Tree::new("damaged");
        tree.file("class/infiniband/odd/node_type", "");
        tree.file("class/infiniband/odd/ports/1/lid", "what");
        tree.file("class/infiniband/odd/ports/x/lid", "0x1");
        let survey = tree.places().survey();
        let device = &survey.devices[0];
        assert_eq!(device.transport, Transport::Other(String::new()));
        assert_eq!(device.ports.len(), 1);
        assert!(!device.ports[0].state.is_active());
        assert!(device.access.is_err());
    }
}
