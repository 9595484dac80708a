//! Round trips of what is said by streams, and whatever else may come.

use proptest::prelude::*;

use super::*;
use crate::wire::{Aeth, AtomicEth, Bth, Ext, Reth, Syndrome};
use shmem_verbs::Rkey;

fn of_kind(opcode: Opcode) -> Ext {
    let (va, rkey) = (0x1122_3344_5566_7788, Rkey(7));
    let reth = Reth { va, rkey, len: 9 };
    let aeth = Aeth {
        syndrome: Syndrome::OK,
        msn: 5,
    };
    let atomic = AtomicEth {
        va,
        rkey,
        swap_add: 1,
        compare: 2,
    };
    let all = [
        Ext::None,
        Ext::Imm(1),
        Ext::Reth(reth),
        Ext::RethImm(reth, 2),
        Ext::Aeth(aeth),
        Ext::AtomicAck(aeth, 3),
        Ext::Atomic(atomic),
    ];
    let mut all = all.into_iter();
    all.find(|ext| ext.kind() == opcode.ext()).unwrap()
}

#[test]
fn frames_are_told_from_their_fronts() {
    for &opcode in Opcode::ALL {
        if !opcode.is_rc_request() && !opcode.is_rc_response() {
            continue;
        }
        let bth = Bth::new(opcode, Qpn(0x12_3456), Psn(0xab_cdef), true);
        let ext = of_kind(opcode);
        let bare = matches!(ext, Ext::Atomic(_) | Ext::AtomicAck(..))
            || matches!(opcode, Opcode::Ack | Opcode::ReadRequest);
        let frame = Frame {
            header: Header { bth, ext },
            len: if bare { 0 } else { RUN_MAX },
        };
        let mut out = [0; FRAME_HEAD_MAX];
        let n = frame.encode(&mut out);
        assert_eq!(Frame::decode(&out), Ok(Some((frame, n))));
        for short in 0..n {
            assert_eq!(Frame::decode(&out[..short]), Ok(None), "{opcode:?}");
        }
        let long = Frame {
            len: frame.len + 1,
            ..frame
        };
        long.encode(&mut out);
        assert_eq!(Frame::decode(&out), Err(DecodeError::Run(long.len)));
    }
}

#[test]
fn nothing_else_goes_by_a_stream() {
    for opcode in [Opcode::UdSendOnly, Opcode::Cnp, Opcode::Invite] {
        let mut out = [0; FRAME_HEAD_MAX];
        out[4] = opcode as u8;
        assert_eq!(
            Frame::decode(&out),
            Err(DecodeError::Opcode(opcode as u8)),
            "{opcode:?}"
        );
    }
    // A request over XRC.
    let mut out = [0; FRAME_HEAD_MAX];
    out[4] = 0xa0 + Opcode::WriteOnly as u8;
    assert!(Frame::decode(&out).is_err());
}

#[test]
fn invitations_and_hellos_round_trip() {
    let token = std::array::from_fn(|i| i as u8 + 1);
    let mac = |text: &[u8]| [text.iter().fold(0, |sum: u8, b| sum.wrapping_add(*b)); 16];
    let invite = Invite {
        attempt: 3,
        port: 0x1234,
        token,
    };
    let bytes = invite.encode(mac);
    assert_eq!(Invite::decode(&bytes, mac), Some(invite));
    assert_eq!(Invite::decode(&bytes, |_| [0; 16]), None);
    assert_eq!(bytes[..5], [2, 3, 0x12, 0x34, 1]);
    assert_eq!(Invite::decode(&bytes[1..], mac), None);
    let other_version = [&[1], &bytes[1..]].concat();
    assert_eq!(Invite::decode(&other_version, mac), None);
    let hello = Hello {
        qpn: Qpn(0xab_cdef),
        token,
    };
    let bytes = hello.encode();
    assert_eq!(Hello::decode(&bytes), Some(hello));
    assert_eq!(&bytes[..9], b"SHS1\0\xab\xcd\xef\x01");
    assert_eq!(Hello::decode(&[b'S'; HELLO_LEN]), None);
}

proptest! {
    #[test]
    fn whatever_comes_is_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(Some((frame, n))) = Frame::decode(&bytes) {
            let mut out = [0; FRAME_HEAD_MAX];
            prop_assert!(n <= bytes.len());
            prop_assert_eq!(frame.encode(&mut out), n);
            prop_assert_eq!(Frame::decode(&out[..n]), Ok(Some((frame, n))));
        }
        let _ = Invite::decode(&bytes, |_| [0; 16]);
        if let Some(hello) = bytes.first_chunk() {
            let _ = Hello::decode(hello);
        }
    }
}
