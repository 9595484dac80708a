//! What the state machine tells code that posts operations, and what that code tells the machine.

use super::Handshake;
use super::state::State;
use crate::route::Route;
use shmem_verbs::Qpn;

impl Handshake {
    /// The connection, for operations.
    #[must_use]
    #[inline]
    pub fn route(&self) -> Option<Route<'_>> {
        let (pair, draining) = match &self.state {
            State::Open(pair) => (pair, false),
            State::Draining(pair, drain) if drain.idle.is_none() => (pair, true),
            _ => return None,
        };
        Some(Route {
            qpn: pair.mine.qpn,
            srqn: None,
            segments: &pair.theirs.memory.segments,
            draining,
            left: self.left,
            broken: self.broken,
        })
    }

    /// The local queue pair is in error, and stays so until it is destroyed. Returns which one that is.
    pub fn broke(&mut self) -> Option<Qpn> {
        let mine = self.state.mine()?;
        self.broken = true;
        Some(mine.qpn)
    }

    /// The local queue pair, if it is in error.
    #[must_use]
    pub fn in_error(&self) -> Option<Qpn> {
        let mine = self.state.mine().filter(|_| self.broken)?;
        Some(mine.qpn)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::super::tests::connected;
    use crate::interface::Action;

    #[test]
    fn operations_go_over_a_connection_from_open_to_drained() {
        let (mut a, b) = connected();
        let qpn = a.machine.local_qp().expect("it is open").0;
        let route = a.machine.route().expect("it is open");
        assert_eq!((route.qpn, route.segments.len()), (qpn, 1));
        assert!(!route.draining && !route.left && !route.broken);
        assert!(b.machine.route().is_none(), "B has only answered");
        a.event(super::Handshake::evict);
        assert!(
            a.machine
                .route()
                .expect("something may be under way")
                .draining
        );
        a.event(|h, cx| h.drained(cx, qpn));
        assert!(a.phase() == Phase::Draining && a.machine.route().is_none());
    }

    #[test]
    fn an_error_lasts_as_long_as_its_queue_pair() {
        let (mut a, mut b) = connected();
        let first = a.machine.local_qp().expect("it is open").0;
        assert_eq!(a.machine.broke(), Some(first));
        assert_eq!(a.machine.in_error(), Some(first));
        assert!(a.machine.route().expect("it is open").broken);
        // B makes room, so that both get another.
        let drain = b.event(super::Handshake::evict);
        a.receive_all(&drain);
        a.event(|h, cx| h.drained(cx, first));
        assert!(a.done.contains(&Action::DestroyQp(first)));
        assert_eq!((a.machine.in_error(), a.machine.broke()), (None, None));
        let request = a.connect();
        let reply = b.receive_all(&request);
        a.receive_all(&reply);
        let route = a.machine.route().expect("it is open again");
        assert!(route.qpn != first && !route.broken);
    }
}
