//! The legal transitions of queue pairs, as data.
//!
//! An HCA answers a wrong `modify_qp` with a bare "invalid argument". This table says which
//! transitions exist and which attributes each needs, so that the error can tell the from, the
//! to, and what is missing; and so that a program which passes on the software HCA is legal on
//! hardware.

use super::{QpAttr, QpState, QpType, Qpn, VerbsError};

/// An attribute which depends on the type of the queue pair or on where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attr {
    /// `QpAttr::Init::qkey`.
    Qkey,
    /// `QpAttr::Rtr::dest`.
    Dest,
}

/// One legal transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Type of queue pair.
    pub ty: QpType,
    /// Present state.
    pub from: QpState,
    /// Next state.
    pub to: QpState,
    /// Must be present.
    pub required: &'static [Attr],
    /// Must be absent.
    pub refused: &'static [Attr],
}

const fn t(
    ty: QpType,
    from: QpState,
    to: QpState,
    required: &'static [Attr],
    refused: &'static [Attr],
) -> Transition {
    Transition {
        ty,
        from,
        to,
        required,
        refused,
    }
}

use Attr::{Dest, Qkey};
use QpState::{Init, Reset, Rtr, Rts, Sqe};
use QpType::{Rc, Ud, XrcIni, XrcTgt};

/// Every transition that `modify_qp` makes between two different states and that does not lead
/// to RESET or ERR: those two can be reached from anywhere and need nothing.
pub const TRANSITIONS: [Transition; 12] = [
    t(Rc, Reset, Init, &[], &[Qkey]),
    t(Rc, Init, Rtr, &[Dest], &[]),
    t(Rc, Rtr, Rts, &[], &[]),
    t(XrcIni, Reset, Init, &[], &[Qkey]),
    t(XrcIni, Init, Rtr, &[Dest], &[]),
    t(XrcIni, Rtr, Rts, &[], &[]),
    t(XrcTgt, Reset, Init, &[], &[Qkey]),
    t(XrcTgt, Init, Rtr, &[Dest], &[]),
    t(XrcTgt, Rtr, Rts, &[], &[]),
    t(Ud, Reset, Init, &[Qkey], &[]),
    t(Ud, Init, Rtr, &[], &[Dest]),
    t(Ud, Rtr, Rts, &[], &[]),
];

/// The transitions that the HCA makes by itself, besides those from anywhere to ERR. A datagram that
/// cannot be sent ends the send queue; receives go on, and only RESET makes it of use again.
pub const SPONTANEOUS: [(QpType, QpState, QpState); 1] = [(Ud, Rts, Sqe)];

/// Checks one `modify_qp` against the table.
///
/// # Errors
/// [`VerbsError::Transition`], with a hint what to do instead.
pub fn check(qpn: Qpn, ty: QpType, from: QpState, attr: &QpAttr) -> Result<(), VerbsError> {
    let to = attr.target();
    if matches!(to, QpState::Reset | QpState::Err) {
        return Ok(());
    }
    let fail = |hint: String| {
        Result::Err(VerbsError::Transition {
            qpn,
            ty,
            from,
            to,
            hint,
        })
    };
    let Some(row) = TRANSITIONS
        .iter()
        .find(|r| r.ty == ty && r.from == from && r.to == to)
    else {
        let mut next: Vec<String> = TRANSITIONS
            .iter()
            .filter(|r| r.ty == ty && r.from == from)
            .map(|r| format!("{:?}", r.to))
            .collect();
        next.push("Err or Reset".into());
        return fail(format!("from {from:?} it can go to {}", next.join(", ")));
    };
    if let Some(missing) = row.required.iter().find(|a| !present(attr, **a)) {
        return fail(format!("attribute {missing:?} is missing"));
    }
    if let Some(surplus) = row.refused.iter().find(|a| present(attr, **a)) {
        return fail(format!(
            "attribute {surplus:?} has no meaning for this type"
        ));
    }
    Ok(())
}

fn present(attr: &QpAttr, which: Attr) -> bool {
    match (attr, which) {
        (QpAttr::Init { qkey, .. }, Attr::Qkey) => qkey.is_some(),
        (QpAttr::Rtr { dest }, Attr::Dest) => dest.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Access, AddressVector, Mtu, Psn, RcDest};
    use super::*;

    const STATES: [QpState; 6] = [Reset, Init, Rtr, Rts, Sqe, QpState::Err];
    const TYPES: [QpType; 4] = [Rc, Ud, XrcIni, XrcTgt];

    fn attrs(ty: QpType) -> Vec<QpAttr> {
        let ud = ty == Ud;
        let dest = RcDest {
            av: AddressVector::default(),
            qpn: Qpn(1),
            rq_psn: Psn(0),
            mtu: Mtu::M1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
        };
        vec![
            QpAttr::Init {
                access: Access::ALL,
                qkey: ud.then_some(crate::Qkey(1)),
            },
            QpAttr::Rtr {
                dest: (!ud).then_some(dest),
            },
            QpAttr::Rts {
                sq_psn: Psn(0),
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
            },
            QpAttr::Err,
            QpAttr::Reset,
        ]
    }

    /// The state diagram of the specification, written down a second time.
    fn legal(from: QpState, attr: &QpAttr) -> bool {
        matches!(
            (from, attr),
            (_, QpAttr::Err | QpAttr::Reset)
                | (Reset, QpAttr::Init { .. })
                | (Init, QpAttr::Rtr { .. })
                | (Rtr, QpAttr::Rts { .. })
        )
    }

    #[test]
    fn exactly_the_state_diagram_is_legal() {
        for ty in TYPES {
            for from in STATES {
                for attr in attrs(ty) {
                    let ok = check(Qpn(2), ty, from, &attr).is_ok();
                    assert_eq!(ok, legal(from, &attr), "{ty:?} {from:?}: {attr:?}");
                }
            }
        }
    }

    #[test]
    fn errors_name_what_is_missing_or_surplus() {
        let init = |qkey| QpAttr::Init {
            access: Access::NONE,
            qkey,
        };
        let text = |r: Result<(), VerbsError>| r.unwrap_err().to_string();
        let e = text(check(Qpn(2), QpType::Ud, QpState::Reset, &init(None)));
        assert!(e.contains("Qkey is missing"), "{e}");
        let e = text(check(
            Qpn(2),
            QpType::Rc,
            QpState::Reset,
            &init(Some(crate::Qkey(1))),
        ));
        assert!(e.contains("Qkey has no meaning"), "{e}");
        let e = text(check(
            Qpn(2),
            QpType::Rc,
            QpState::Init,
            &QpAttr::Rtr { dest: None },
        ));
        assert!(e.contains("Dest is missing"), "{e}");
        let e = text(check(
            Qpn(7),
            QpType::Rc,
            QpState::Init,
            &attrs(QpType::Rc)[2],
        ));
        assert!(
            e.contains("0x7") && e.contains("Init to Rts") && e.contains("Rtr"),
            "{e}"
        );
    }
}
