//! The legal transitions of queue pairs, as data.
//!
//! An HCA answers a wrong `modify_qp` with a bare "invalid argument". This table says which
//! transitions exist and which attributes each needs, so that the error can tell the from, the
//! to, and what is missing; and so that a program which passes on the software HCA is legal on
//! hardware.

use super::{QpAttr, QpState, QpType, Qpn, VerbsError};

/// An attribute which depends on the type of the queue pair.
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

/// Every transition between two different states that does not lead to RESET or ERR: those two
/// can be reached from anywhere and need nothing.
pub const TRANSITIONS: [Transition; 6] = [
    t(
        QpType::Rc,
        QpState::Reset,
        QpState::Init,
        &[],
        &[Attr::Qkey],
    ),
    t(QpType::Rc, QpState::Init, QpState::Rtr, &[Attr::Dest], &[]),
    t(QpType::Rc, QpState::Rtr, QpState::Rts, &[], &[]),
    t(
        QpType::Ud,
        QpState::Reset,
        QpState::Init,
        &[Attr::Qkey],
        &[],
    ),
    t(QpType::Ud, QpState::Init, QpState::Rtr, &[], &[Attr::Dest]),
    t(QpType::Ud, QpState::Rtr, QpState::Rts, &[], &[]),
];

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
        Err(VerbsError::Transition {
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
    use super::super::{Access, AddressVector, Mtu, Psn, Qkey, RcDest};
    use super::*;

    const STATES: [QpState; 5] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Err,
    ];

    fn attrs(ty: QpType) -> Vec<QpAttr> {
        let rc = ty == QpType::Rc;
        let dest = RcDest {
            av: AddressVector::default(),
            qpn: Qpn(1),
            rq_psn: Psn(0),
            mtu: Mtu::M1024,
            max_dest_rd_atomic: 1,
        };
        vec![
            QpAttr::Init {
                access: Access::ALL,
                qkey: (!rc).then_some(Qkey(1)),
            },
            QpAttr::Rtr {
                dest: rc.then_some(dest),
            },
            QpAttr::Rts {
                sq_psn: Psn(0),
                timeout: 14,
                retry_cnt: 7,
                max_rd_atomic: 1,
            },
            QpAttr::Err,
            QpAttr::Reset,
        ]
    }

    #[test]
    fn exactly_the_ladder_and_the_two_exits_are_legal() {
        for ty in [QpType::Rc, QpType::Ud] {
            for from in STATES {
                for attr in attrs(ty) {
                    let ladder = matches!(
                        (from, attr.target()),
                        (QpState::Reset, QpState::Init)
                            | (QpState::Init, QpState::Rtr)
                            | (QpState::Rtr, QpState::Rts)
                    );
                    let exit = matches!(attr.target(), QpState::Err | QpState::Reset);
                    let ok = check(Qpn(2), ty, from, &attr).is_ok();
                    assert_eq!(ok, ladder || exit, "{ty:?} {from:?} -> {:?}", attr.target());
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
            &init(Some(Qkey(1))),
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
