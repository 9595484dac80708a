//! Packets from addresses of other processes.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::calls::{become_user, socket};
use crate::datagrams::{Datagram, STRANGERS_TTL};

/// Sends from an address that is another process's.
pub(crate) enum Sender {
    /// As a user of its host may: a socket at another address and the same port, and a note that says which address is meant.
    User(Ipv4Addr),
    /// With headers of its own making.
    Raw(OwnedFd),
}

impl Sender {
    pub(crate) fn new(how: &str, from: Ipv4Addr) -> Self {
        if how == "raw" {
            return Self::Raw(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW));
        }
        become_user(how);
        Self::User(from)
    }

    /// Whatever does not arrive is lost, as is what no socket of this host takes.
    pub(crate) fn send(&self, datagram: &Datagram) {
        let _ = match self {
            Self::User(from) => self.send_as(*from, datagram),
            Self::Raw(socket) => send_raw(socket, datagram),
        };
    }

    fn send_as(&self, from: Ipv4Addr, datagram: &Datagram) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, datagram.from.port()))?;
        socket.set_ttl(STRANGERS_TTL.into())?;
        let mut to = name(datagram.to);
        let mut part = libc::iovec {
            iov_base: datagram.bytes.as_ptr().cast_mut().cast(),
            iov_len: datagram.bytes.len(),
        };
        // SAFETY: numbers alone, for which zeros are right.
        let mut info: libc::in_pktinfo = unsafe { std::mem::zeroed() };
        info.ipi_spec_dst.s_addr = u32::from(from).to_be();
        // Of words, because a header has to be aligned.
        let mut control = [0u64; 8];
        // SAFETY: as above; the pointers are set below.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut to).cast();
        message.msg_namelen = size_of_val(&to) as u32;
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        let len = size_of_val(&info) as u32;
        // SAFETY: `control` has room for a header and the note, and both it and all that the message points to live until the
        // call returns.
        let sent = unsafe {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(len) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::IPPROTO_IP;
            (*head).cmsg_type = libc::IP_PKTINFO;
            (*head).cmsg_len = libc::CMSG_LEN(len) as _;
            libc::CMSG_DATA(head)
                .cast::<libc::in_pktinfo>()
                .write_unaligned(info);
            libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
        };
        match sent {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn name(at: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: at.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*at.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn send_raw(socket: &OwnedFd, datagram: &Datagram) -> io::Result<()> {
    let Datagram { from, to, bytes } = datagram;
    // The kernel fills in the length, the identification and the check sum of the header. UDP needs no check sum.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, STRANGERS_TTL, 17, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend((8 + bytes.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(bytes);
    let to = name(*to);
    // SAFETY: the call reads the packet and the address, whose lengths these are.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const to).cast(),
            size_of_val(&to) as u32,
        )
    };
    match sent {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
