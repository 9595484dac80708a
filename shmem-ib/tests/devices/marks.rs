//! How the packets of jobs over the kernel's Soft-RoCE are marked, as they are seen on its wire: runs a command
//! and looks at all packets of RoCEv2 that go by meanwhile.
//!
//! ```text
//! devices marks TRAFFIC_CLASS P_KEY COMMAND...
//! ```
//!
//! Every packet has to be marked so, and there have to be packets of connections and datagrams. Seeing
//! packets takes a privilege (`CAP_NET_RAW`); the job `marks` of `ci/vm.sh` has it. Without arguments this is
//! skipped.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use shmem_ib::wire::{Opcode, Packet};
use shmem_testkit::needs::skipped;

/// The UDP port of RoCEv2.
const PORT: u16 = 4791;
const UDP: u8 = 17;
/// Bytes of packets that the kernel keeps until they are looked at.
static BUFFER: libc::c_int = 16 << 20;

/// A socket that is given whatever IPv4 packets go by, on all interfaces.
fn packets_going_by() -> io::Result<OwnedFd> {
    let protocol = libc::c_int::from((libc::ETH_P_IP as u16).to_be());
    // SAFETY: a plain call.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new, and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let options = [
        (
            libc::SO_RCVBUFFORCE,
            (&raw const BUFFER).cast(),
            size_of_val(&BUFFER),
        ),
        (
            libc::SO_RCVTIMEO,
            (&raw const SOON).cast(),
            size_of_val(&SOON),
        ),
    ];
    for (name, value, len) in options {
        // SAFETY: each points to a value of this length.
        let rc = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                value,
                len as libc::socklen_t,
            )
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(fd)
}

/// How long a look for a packet waits for one.
static SOON: libc::timeval = libc::timeval {
    tv_sec: 0,
    tv_usec: 100_000,
};

/// What packets had: traffic class, partition key, and whether they were datagrams.
type Marks = BTreeMap<(u8, u16, bool), u64>;

/// Counts packets until there are no more after `over`.
fn look(fd: &OwnedFd, over: &AtomicBool) -> Marks {
    let (mut marks, mut bytes) = (Marks::new(), [0; 9000]);
    loop {
        let last = over.load(Ordering::Relaxed);
        // SAFETY: `bytes` has this length.
        let got = unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(got) {
            Ok(len) => {
                if let Some(seen) = marks_of(&bytes[..len.min(bytes.len())]) {
                    *marks.entry(seen).or_default() += 1;
                }
            }
            Err(_) if last => return marks,
            Err(_) => {}
        }
    }
}

/// Of an IPv4 packet, if it is one of RoCEv2.
fn marks_of(packet: &[u8]) -> Option<(u8, u16, bool)> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let (ip, udp) = packet.split_at_checked(header)?;
    let to = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
    if *ip.get(9)? != UDP || to != PORT {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    let packet = Packet::decode(udp.get(8..len)?).expect("what RoCEv2 devices send can be read");
    let datagram = matches!(
        packet.bth.opcode,
        Opcode::UdSendOnly | Opcode::UdSendOnlyImm
    );
    Some((ip[1], packet.bth.pkey, datagram))
}

fn number(text: &str) -> u16 {
    let hex = text.strip_prefix("0x");
    let number = hex.map_or_else(|| text.parse(), |digits| u16::from_str_radix(digits, 16));
    number.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Runs the command of the arguments. Returns whether it succeeded and all packets were marked as they should be.
pub(crate) fn run(arguments: &[String]) -> bool {
    let [class, pkey, program, rest @ ..] = arguments else {
        skipped("rdma", "nobody said which packets to expect");
        return true;
    };
    let (class, pkey) = (number(class), number(pkey));
    let fd = packets_going_by().expect("packets can be seen (CAP_NET_RAW)");
    let over = AtomicBool::new(false);
    let (status, marks) = thread::scope(|scope| {
        let looking = scope.spawn(|| look(&fd, &over));
        let status = Command::new(program).args(rest).status();
        // What is on its way still comes.
        thread::sleep(Duration::from_millis(200));
        over.store(true, Ordering::Relaxed);
        (status, looking.join().expect("it looks"))
    });
    let mut kinds = [false; 2];
    let mut right = status.expect("the command runs").success();
    for ((seen_class, seen_pkey, datagram), count) in &marks {
        let kind = if *datagram {
            "datagrams"
        } else {
            "packets of connections"
        };
        println!("traffic class {seen_class}, partition {seen_pkey:#06x}: {count} {kind}");
        right &= u16::from(*seen_class) == class && *seen_pkey == pkey;
        kinds[usize::from(*datagram)] = true;
    }
    right && kinds == [true; 2]
}
