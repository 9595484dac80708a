//! The loop that template and spawner share: take a request, start its PEs, answer.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::lost::Lost;
use super::message::{MAX_MESSAGE, PeSpec, Refusal, Started, request};
use crate::contract::Descriptors;
use crate::sys;

/// In which process the loop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// In a forked PE.
    Pe,
    /// In the one that serves, with no more to start.
    Finished,
}

/// Whether the launch agent has gone, with a reply unread or before it could be sent.
fn is_gone(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Serves spawn requests until the launch agent says that there are no more, or goes away.
///
/// `lost` is why PEs are not forked, if they are not. `start` starts one PE with the descriptors that came for it and gives its pid, or `None` in the
/// PE itself if that is a fork; there it has closed all received descriptors.
pub(super) fn serve_requests(
    sock: BorrowedFd<'_>,
    fds: Descriptors,
    lost: Lost,
    mut start: impl FnMut(&PeSpec, &[OwnedFd]) -> Result<Option<i32>, Refusal>,
) -> io::Result<Role> {
    // The PMI descriptor's number must be taken, or a received descriptor could land on it and be
    // overwritten while it is still needed.
    // SAFETY: a number that the call tells whether it is open.
    let pmi = unsafe { BorrowedFd::borrow_raw(fds.pmi()) };
    if rustix::io::fcntl_getfd(pmi).is_err() {
        // SAFETY: it is nobody's.
        unsafe { sys::put(0, fds.pmi())? };
    }
    let malformed = |e| io::Error::new(io::ErrorKind::InvalidData, e);
    let mut buf = [0; MAX_MESSAGE];
    loop {
        let (n, fds) = match sys::recv_with_fds(sock, &mut buf) {
            Ok((0, _)) => return Ok(Role::Finished),
            Err(e) if is_gone(&e) => return Ok(Role::Finished),
            received => received?,
        };
        let pes = request(&buf[..n]).map_err(malformed)?;
        let mut fds = fds.into_iter();
        let mut reply = Started {
            refusal: None,
            lost,
            pids: Vec::with_capacity(pes.len()),
        };
        for pe in &pes {
            let own: Vec<OwnedFd> = fds.by_ref().take(pe.fd_count()).collect();
            if own.len() != pe.fd_count() {
                let what = "descriptors are missing";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            match start(pe, &own) {
                Ok(Some(pid)) => reply.pids.push(pid),
                Ok(None) => {
                    // These are closed, as are those of the PEs after this one. Only they are
                    // forgotten, not the memory that holds their numbers: a leak checker would
                    // end the program for it.
                    own.into_iter().chain(fds).for_each(std::mem::forget);
                    return Ok(Role::Pe);
                }
                Err(refusal) => {
                    reply.refusal = Some(refusal);
                    break;
                }
            }
        }
        match sys::send_with_fds(sock, &reply.encode(), &[]) {
            Err(e) if is_gone(&e) => return Ok(Role::Finished),
            sent => sent?,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::template::NlaSide;

    const FDS: Descriptors = Descriptors::USUAL;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    #[test]
    fn an_agent_that_has_gone_asks_for_nothing_more() {
        // It has not read what was answered.
        let (ours, theirs) = pair();
        sys::send_with_fds(theirs.as_fd(), &[0; 8], &[]).unwrap();
        drop(ours);
        let nobody =
            |_: &PeSpec, _: &[OwnedFd]| -> Result<Option<i32>, Refusal> { panic!("asked for") };
        let served = serve_requests(theirs.as_fd(), FDS, Lost::default(), nobody);
        assert_eq!(served.unwrap(), Role::Finished);
        // It ends before it is answered.
        let (ours, theirs) = pair();
        let fds = [theirs.as_fd(); 3];
        let pe = PeSpec {
            rank: 0,
            local: 0,
            has_stdin: 0,
        };
        let agent = NlaSide::new(ours);
        agent.spawn(&[pe], &fds).unwrap();
        let mut agent = Some(agent);
        let served = serve_requests(theirs.as_fd(), FDS, Lost::default(), |_, _| {
            agent = None;
            Ok(Some(77))
        });
        assert_eq!(served.unwrap(), Role::Finished);
    }
}
