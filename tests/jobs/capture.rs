//! What a job puts on the wire, judged by others: every packet is captured, tshark has to dissect it
//! as RoCEv2 without complaint, and its invariant CRC is computed again from the captured IP header.
//!
//! Needs `tshark`, `dumpcap`, `ip`, and the right to make a network namespace: the need `capture` of
//! `SHMEM_TEST_REQUIRE`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use shmem_testkit::needs::skipped;
use shmem_testkit::text;

use crate::programs::{HISTOGRAM, RING, SHMRUN};

/// Captures everything on the loopback of a fresh network namespace while the job runs.
const SCRIPT: &str = r#"
ip link set lo up || exit 77
for i in 1 2 3 4; do ip -6 address add fd5e::$i/128 dev lo nodad || exit 77; done
dumpcap -q -i lo -B 64 -P -f 'udp port 4791' -w "$1" 2>"$2" & capture=$!
until grep -q '^File:' "$2"; do kill -0 $capture 2>/dev/null || exit 77; sleep 0.05; done
file=$1; shift 2
"$@"; status=$?
# The kernel hands packets over in blocks, each a fraction of a second late at most.
sleep 1; kill -INT $capture; wait $capture
exit $status
"#;

const UD_SEND: u8 = 100;
const WRITE_ONLY: u8 = 10;
const ACK: u8 = 17;
const ATOMIC_ACK: u8 = 18;
const FETCH_ADD: u8 = 20;

/// One captured packet: the IP header, the UDP header, and what is in it.
struct Captured {
    ip: Vec<u8>,
    udp: Vec<u8>,
    packet: Vec<u8>,
}

impl Captured {
    fn opcode(&self) -> u8 {
        self.packet[0]
    }

    /// Who sends it, to which queue pair, and its number: one for all repetitions of a packet.
    fn identity(&self) -> (Vec<u8>, Vec<u8>) {
        let src = match self.ip[0] >> 4 {
            4 => &self.ip[12..16],
            _ => &self.ip[8..24],
        };
        (
            src.to_vec(),
            [&self.packet[5..8], &self.packet[9..12]].concat(),
        )
    }

    /// As annex A17 of the specification says, bit by bit.
    fn has_its_icrc(&self) -> bool {
        let (mut ip, mut udp) = (self.ip.clone(), self.udp.clone());
        let (body, crc) = self.packet.split_last_chunk::<4>().expect("an ICRC");
        let mut body = body.to_vec();
        match ip[0] >> 4 {
            4 => [1, 8, 10, 11].map(|i| ip[i] = 0xff).map(drop),
            _ => {
                ip[0] |= 0x0f;
                [1, 2, 3, 7].map(|i| ip[i] = 0xff).map(drop)
            }
        };
        (udp[6], udp[7], body[4]) = (0xff, 0xff, 0xff);
        let mut state = !0_u32;
        for byte in [[0xff; 8].as_slice(), &ip, &udp, &body].concat() {
            state ^= u32::from(byte);
            for _ in 0..8 {
                state = (state >> 1) ^ (0xedb8_8320 & (state & 1).wrapping_neg());
            }
        }
        !state == u32::from_le_bytes(*crc)
    }
}

/// Reads a capture file of the old format, made on this machine, of Ethernet frames.
fn read_capture(path: &Path) -> Vec<Captured> {
    let bytes = std::fs::read(path).expect("the capture");
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1), "pcap of Ethernet");
    let mut packets = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let (kept, len) = (word(at + 8) as usize, word(at + 12) as usize);
        assert_eq!(kept, len, "the whole packet is captured");
        let frame = &bytes[at + 16..at + 16 + len];
        let ip_len = match frame[12..14] {
            [0x08, 0x00] => 20,
            [0x86, 0xdd] => 40,
            ref other => panic!("frame of type {other:?}"),
        };
        let (ip, rest) = frame[14..].split_at(ip_len);
        let (udp, packet) = rest.split_at(8);
        packets.push(Captured {
            ip: ip.to_vec(),
            udp: udp.to_vec(),
            packet: packet.to_vec(),
        });
        at += 16 + len;
    }
    packets
}

/// Runs `program` on four nodes of one PE, with packets of its own on addresses that begin with
/// `first`. `None` where this machine cannot capture.
fn captured(name: &str, first: &str, program: &str) -> Option<(PathBuf, Vec<Captured>)> {
    for tool in ["tshark", "dumpcap"] {
        if Command::new(tool).arg("--version").output().is_err() {
            skipped("capture", format_args!("{tool} is not installed"));
            return None;
        }
    }
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (file, log) = (
        dir.join(format!("{name}.pcap")),
        dir.join(format!("{name}.log")),
    );
    for old in [&file, &log] {
        let _ = std::fs::remove_file(old);
    }
    std::fs::write(&log, "").expect("a writable directory");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", SCRIPT, "sh"])
        .args([&file, &log])
        .args([SHMRUN, "-n", "4"])
        .args(["--nodes", "4", program])
        // No other job has this port, although it is RoCE's own: the namespace is this job's alone.
        .env("SHMEM_SOFT_PORT", "4791")
        .env("SHMEM_SOFT_ADDRESS", first)
        .env("SHMEM_SOFT_INTEROP", "yes")
        .output()
        .expect("unshare is everywhere");
    let said = text(&output.stderr) + &std::fs::read_to_string(&log).expect("the log");
    let denied = said.contains("unshare:") || output.status.code() == Some(77);
    if denied {
        skipped(
            "capture",
            format_args!("nothing can be captured here: {said}"),
        );
        return None;
    }
    assert!(output.status.success(), "{program}: {said}");
    let packets = read_capture(&file);
    assert!(!packets.is_empty(), "{said}");
    Some((file, packets))
}

/// tshark dissects every packet of `file` as RoCEv2 and finds nothing wrong with any.
fn dissects(file: &Path, packets: &[Captured]) {
    let fields = [
        "infiniband.bth.opcode",
        "infiniband.bth.tver",
        "infiniband.invariant.crc",
        "frame.protocols",
        "_ws.malformed",
        "_ws.expert.severity",
    ];
    let output = Command::new("tshark")
        // Payload is the job's: tshark is not to guess a protocol from its first bytes.
        .args(["-n", "-o", "infiniband.identify_payload:FALSE"])
        .args(["-T", "fields", "-E", "separator=/t", "-r"])
        .arg(file)
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    assert_eq!(out.lines().count(), packets.len());
    for (line, packet) in out.lines().zip(packets) {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(columns.len(), fields.len(), "{line}");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        assert_eq!(number(columns[0]), Ok(packet.opcode().into()), "{line}");
        assert_eq!(number(columns[1]), Ok(0), "{line}");
        let crc = packet.packet.last_chunk::<4>().expect("an ICRC");
        assert_eq!(number(columns[2]), Ok(u32::from_be_bytes(*crc)), "{line}");
        assert!(columns[3].contains(":udp:infiniband"), "not RoCEv2: {line}");
        assert_eq!(columns[4..], ["", ""], "complaints: {line}");
    }
}

/// How many different packets there are of each opcode.
fn count(packets: &[Captured]) -> BTreeMap<u8, usize> {
    let mut seen: BTreeMap<u8, BTreeSet<_>> = BTreeMap::new();
    for packet in packets {
        seen.entry(packet.opcode())
            .or_default()
            .insert(packet.identity());
    }
    seen.into_iter()
        .map(|(op, seen)| (op, seen.len()))
        .collect()
}

fn is_rocev2(name: &str, first: &str, program: &str, judge: impl Fn(&BTreeMap<u8, usize>)) {
    let Some((file, packets)) = captured(name, first, program) else {
        return;
    };
    dissects(&file, &packets);
    for packet in &packets {
        assert!(packet.has_its_icrc(), "ICRC of {:02x?}", packet.packet);
        assert_eq!(packet.udp[2..4], 4791_u16.to_be_bytes(), "UDP port");
    }
    let counts = count(&packets);
    // Everybody is reached by datagrams first, and answers.
    assert!(counts[&UD_SEND] >= 6, "{counts:?}");
    judge(&counts);
}

/// Only writes, in packets of one message each.
fn ring_writes(counts: &BTreeMap<u8, usize>) {
    assert!(
        counts[&WRITE_ONLY] >= 4 && counts.contains_key(&ACK),
        "{counts:?}"
    );
    let known = BTreeSet::from([UD_SEND, WRITE_ONLY, ACK]);
    assert!(counts.keys().all(|op| known.contains(op)), "{counts:?}");
}

/// Each addition to a bin of another PE is one packet there, and one that brings the old value.
fn histogram_adds(counts: &BTreeMap<u8, usize>) {
    let far = (0..4_u64)
        .flat_map(|me| {
            let mut x = me + 1;
            std::iter::repeat_with(move || {
                x = x
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (x >> 33) % 32 / 8 != me
            })
            .take(500)
        })
        .filter(|far| *far)
        .count();
    assert_eq!(counts[&FETCH_ADD], far, "{counts:?}");
    assert_eq!(counts[&ATOMIC_ACK], far, "{counts:?}");
}

#[test]
fn a_ring_over_ipv4() {
    is_rocev2("ring4", "127.9.0.1+", RING, ring_writes);
}

#[test]
fn a_ring_over_ipv6() {
    is_rocev2("ring6", "fd5e::1+", RING, ring_writes);
}

#[test]
fn a_histogram_over_ipv4() {
    is_rocev2("histogram4", "127.9.0.1+", HISTOGRAM, histogram_adds);
}

#[test]
fn a_histogram_over_ipv6() {
    is_rocev2("histogram6", "fd5e::1+", HISTOGRAM, histogram_adds);
}
