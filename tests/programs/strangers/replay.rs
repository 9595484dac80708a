//! Sends what was recorded again, and invitations that are forged.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::sync::atomic::Ordering;
use std::thread::sleep;

use shmem_ib::verbs::{AddressVector, Gid, Psn};
use shmem_ib::wire::{Bth, Ext, Flow, Header, Invite, Opcode, PACKET_MAX};

use crate::datagrams::Datagram;
use crate::sender::Sender;
use crate::{LINES, PAUSE, ended, say, watch_input};

/// An invitation to a stranger's port, right in all but what needs the job's key.
fn invitation(template: &Datagram, guess: u8, port: u16) -> Datagram {
    let av = |at: SocketAddrV4| AddressVector {
        gid: Gid::from(*at.ip()),
        udp_port: at.port(),
    };
    let header = Header {
        bth: Bth::new(
            Opcode::Invite,
            template.queue_pair(),
            Psn(guess.into()),
            false,
        ),
        ext: Ext::None,
    };
    let invite = Invite {
        attempt: 4,
        port,
        token: [guess; 16],
    };
    let text = invite.encode(|_| [guess; 16]);
    let mut packet = vec![0; PACKET_MAX];
    let at = header.encode(&mut packet, text.len());
    packet[at..at + text.len()].copy_from_slice(&text);
    let flow = Flow {
        src: av(template.from),
        dst: av(template.to),
    };
    let len = header.seal(&mut packet, text.len(), &flow);
    packet.truncate(len);
    Datagram {
        bytes: packet,
        ..*template
    }
}

pub(crate) fn replay(sender: &Sender, from: Ipv4Addr, earlier: &str, live: &str) {
    // A PE that takes an invitation connects to the address of its peer, which only a user of that host has.
    let listener = match sender {
        Sender::User(_) => Some(TcpListener::bind((from, 0)).expect("a port")),
        Sender::Raw(_) => None,
    };
    let port = listener.as_ref().map_or(9, |listener| {
        listener.set_nonblocking(true).expect("a socket");
        listener.local_addr().expect("its address").port()
    });
    watch_input();
    let mut earlier = Datagram::read(earlier);
    earlier.retain(|datagram| *datagram.from.ip() == from);
    let known: BTreeSet<&Datagram> = earlier.iter().collect();
    for pass in (0..=u8::MAX).cycle() {
        let lines = LINES.load(Ordering::Relaxed);
        let mut live = Datagram::read(live);
        live.retain(|datagram| *datagram.from.ip() == from && !known.contains(datagram));
        let mut queue_pairs = BTreeSet::new();
        for datagram in &live {
            if queue_pairs.insert(datagram.queue_pair().0) {
                sender.send(&invitation(datagram, pass, port));
            }
        }
        live.retain(Datagram::is_about_connections);
        earlier
            .iter()
            .chain(&live)
            .for_each(|datagram| sender.send(datagram));
        say(&format!(
            "{lines} {} {} {}",
            earlier.len(),
            live.len(),
            queue_pairs.len()
        ));
        if let Some(Ok((_, who))) = listener.as_ref().map(TcpListener::accept) {
            say(&format!("{who} connected"));
        }
        if ended() {
            break;
        }
        sleep(5 * PAUSE);
    }
}
