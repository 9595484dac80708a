//! Datagrams that are recorded, and the file that has them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use shmem_ib::verbs::Qpn;
use shmem_ib::wire::Opcode;

use crate::calls::socket;
use crate::{ended, say, watch_input};

/// Time to live of all packets that strangers send, which marks them: the recorder would otherwise record them as packets of
/// the job, and strangers would send them again.
pub(crate) const STRANGERS_TTL: u8 = 99;

/// A datagram that was recorded.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) bytes: Vec<u8>,
}

const RECORD_HEAD: usize = 16;

impl Datagram {
    /// From an IP packet, unless it is something else, or a stranger sent it.
    fn of(packet: &[u8]) -> Option<Self> {
        let head = usize::from(packet.first()? & 15) * 4;
        let is_udp = packet[0] >> 4 == 4 && *packet.get(9)? == 17;
        if packet.get(8) == Some(&STRANGERS_TTL) {
            return None;
        }
        let udp = packet.get(head..).filter(|_| is_udp)?;
        let ip = |at: usize| {
            Ipv4Addr::from([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
        };
        let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        (udp.len() > 8 + 16).then(|| Self {
            from: SocketAddrV4::new(ip(12), port(0)),
            to: SocketAddrV4::new(ip(16), port(2)),
            bytes: udp[8..].to_vec(),
        })
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        let mut out = Vec::new();
        for at in [self.from, self.to] {
            out.extend(at.ip().octets());
            out.extend(at.port().to_be_bytes());
        }
        out.extend((self.bytes.len() as u32).to_be_bytes());
        out.extend(&self.bytes);
        file.write_all(&out)
    }

    /// All that a file holds so far.
    pub(crate) fn read(file: &str) -> Vec<Self> {
        let bytes = fs::read(file).expect("a recording");
        let mut rest = &bytes[..];
        let mut all = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEAD>() {
            let at = |i: usize| {
                let ip = Ipv4Addr::from([head[i], head[i + 1], head[i + 2], head[i + 3]]);
                SocketAddrV4::new(ip, u16::from_be_bytes([head[i + 4], head[i + 5]]))
            };
            let len = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
            // The last one may not be there as a whole yet.
            let Some(bytes) = behind.get(..len) else {
                break;
            };
            all.push(Self {
                from: at(0),
                to: at(6),
                bytes: bytes.to_vec(),
            });
            rest = &behind[len..];
        }
        all
    }

    /// Whether it makes, changes or ends a connection.
    pub(crate) fn is_about_connections(&self) -> bool {
        let opcodes = [Opcode::UdSendOnly, Opcode::UdSendOnlyImm, Opcode::Invite];
        opcodes.iter().any(|code| *code as u8 == self.bytes[0])
    }

    pub(crate) fn queue_pair(&self) -> Qpn {
        Qpn(u32::from_be_bytes([
            0,
            self.bytes[5],
            self.bytes[6],
            self.bytes[7],
        ]))
    }
}

pub(crate) fn record(file: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    // Of all protocols, because only then there is what the namespace sends, too.
    let all = i32::from((libc::ETH_P_ALL as u16).to_be());
    let socket = UdpSocket::from(socket(libc::AF_PACKET, libc::SOCK_DGRAM, all));
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    watch_input();
    say("recording");
    let mut buf = vec![0; 1 << 17];
    while !ended() {
        if let Ok(len) = socket.recv(&mut buf)
            && let Some(datagram) = Datagram::of(&buf[..len])
        {
            datagram.write(&mut file)?;
        }
    }
    Ok(())
}
