//! Completion channels: which completion queues announce that they have something, and where.
//!
//! A queue announces once each time that it was asked to. Asking for solicited completions after
//! having asked for all does not take the first back, as in verbs.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::engine::Engine;
use super::mr::Memory;
use shmem_verbs::{CompChannel, Cq, VerbsError};

/// Most channels of one HCA.
const MAX_CHANNELS: u32 = 1 << 10;

/// What a queue has been asked to announce.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Armed {
    No,
    Solicited,
    Any,
}

#[derive(Clone, Copy, Debug)]
struct Announcer {
    channel: CompChannel,
    armed: Armed,
}

/// All channels of one HCA. A destroyed one leaves its number to the next that is created.
#[derive(Debug, Default)]
pub(crate) struct ChannelTable {
    /// Announcements that nobody has taken.
    channels: Vec<Option<VecDeque<Cq>>>,
    cqs: HashMap<Cq, Announcer>,
}

impl ChannelTable {
    fn create(&mut self) -> Result<CompChannel, VerbsError> {
        let free = self.channels.iter().position(Option::is_none);
        let number = free.unwrap_or(self.channels.len());
        if number >= MAX_CHANNELS as usize {
            return Err(VerbsError::Exhausted {
                what: "completion channels",
                limit: MAX_CHANNELS,
            });
        }
        self.channels
            .resize_with(self.channels.len().max(number + 1), || None);
        self.channels[number] = Some(VecDeque::new());
        Ok(CompChannel(number as u32))
    }

    fn queue(&mut self, channel: CompChannel) -> Option<&mut VecDeque<Cq>> {
        self.channels.get_mut(channel.0 as usize)?.as_mut()
    }

    pub(crate) fn check(&self, channel: CompChannel) -> Result<(), VerbsError> {
        match self.channels.get(channel.0 as usize) {
            Some(Some(_)) => Ok(()),
            _ => Err(VerbsError::NoSuchChannel(channel)),
        }
    }

    fn destroy(&mut self, channel: CompChannel) -> Result<(), VerbsError> {
        self.check(channel)?;
        if self.cqs.values().any(|a| a.channel == channel) {
            let what = "a completion channel";
            return Err(VerbsError::Busy { what });
        }
        self.channels[channel.0 as usize] = None;
        Ok(())
    }

    /// A new queue announces on `channel`, once it is asked to.
    pub(crate) fn attach(&mut self, cq: Cq, channel: CompChannel) {
        let armed = Armed::No;
        self.cqs.insert(cq, Announcer { channel, armed });
    }

    /// A queue is gone, and what it has announced with it.
    pub(crate) fn detach(&mut self, cq: Cq) {
        if let Some(announcer) = self.cqs.remove(&cq)
            && let Some(queue) = self.queue(announcer.channel)
        {
            queue.retain(|announced| *announced != cq);
        }
    }

    fn arm(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        let announcer = self.cqs.get_mut(&cq).ok_or(VerbsError::InvalidAttr {
            what: "completion queue",
            value: cq.0.into(),
            allowed: "one that was created with a completion channel",
        })?;
        let asked = match solicited_only {
            true => Armed::Solicited,
            false => Armed::Any,
        };
        announcer.armed = announcer.armed.max(asked);
        Ok(())
    }

    /// A completion was added to a queue. Errors count as solicited.
    #[inline]
    pub(crate) fn completed(&mut self, cq: Cq, solicited: bool) {
        if self.cqs.is_empty() {
            return;
        }
        let Some(announcer) = self.cqs.get_mut(&cq) else {
            return;
        };
        let due = match announcer.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Any => true,
        };
        if due {
            announcer.armed = Armed::No;
            let channel = announcer.channel;
            if let Some(queue) = self.queue(channel) {
                queue.push_back(cq);
            }
        }
    }

    fn take(&mut self, channel: CompChannel) -> Option<Cq> {
        self.queue(channel)?.pop_front()
    }

    /// Whether a channel has something to take.
    pub(crate) fn has_event(&self, channel: CompChannel) -> bool {
        let queue = self.channels.get(channel.0 as usize);
        matches!(queue, Some(Some(queue)) if !queue.is_empty())
    }
}

impl<M: Memory> Engine<M> {
    /// Creates a completion channel.
    ///
    /// # Errors
    /// There are too many.
    pub fn create_comp_channel(&mut self) -> Result<CompChannel, VerbsError> {
        self.channels.create()
    }

    /// Creates a completion queue that announces what it has on `channel`.
    ///
    /// # Errors
    /// As [`Engine::create_cq`], or the channel does not exist.
    pub fn create_announcing_cq(
        &mut self,
        depth: u32,
        channel: Option<CompChannel>,
    ) -> Result<Cq, VerbsError> {
        if let Some(channel) = channel {
            self.channels.check(channel)?;
        }
        let cq = self.create_cq(depth)?;
        if let Some(channel) = channel {
            self.channels.attach(cq, channel);
        }
        Ok(cq)
    }

    /// Destroys a completion channel.
    ///
    /// # Errors
    /// It does not exist, or a completion queue uses it.
    pub fn destroy_comp_channel(&mut self, channel: CompChannel) -> Result<(), VerbsError> {
        self.channels.destroy(channel)
    }

    /// Asks a completion queue for one announcement.
    ///
    /// # Errors
    /// It does not exist, or has no channel.
    pub fn req_notify_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        self.cqs.check(cq)?;
        self.channels.arm(cq, solicited_only)
    }

    /// Takes the oldest announcement of a channel.
    pub fn get_cq_event(&mut self, channel: CompChannel) -> Option<Cq> {
        self.channels.take(channel)
    }

    /// Whether a channel has an announcement to take.
    pub fn has_cq_event(&self, channel: CompChannel) -> bool {
        self.channels.has_event(channel)
    }

    /// Whether a completion channel exists.
    ///
    /// # Errors
    /// It does not.
    pub fn check_comp_channel(&self, channel: CompChannel) -> Result<(), VerbsError> {
        self.channels.check(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_announces_once_each_time_it_is_asked() {
        let mut table = ChannelTable::default();
        let channel = table.create().unwrap();
        table.attach(Cq(3), channel);
        table.completed(Cq(3), true);
        assert_eq!(table.take(channel), None, "not asked");
        table.arm(Cq(3), false).unwrap();
        assert!(!table.has_event(channel));
        table.completed(Cq(3), false);
        table.completed(Cq(3), true);
        assert_eq!(table.take(channel), Some(Cq(3)));
        assert_eq!(table.take(channel), None);
        table.arm(Cq(3), true).unwrap();
        table.completed(Cq(3), false);
        assert_eq!(table.take(channel), None, "not solicited");
        table.completed(Cq(3), true);
        assert_eq!(table.take(channel), Some(Cq(3)));
        // The wider wish wins, in whichever order.
        for order in [[true, false], [false, true]] {
            for solicited_only in order {
                table.arm(Cq(3), solicited_only).unwrap();
            }
            table.completed(Cq(3), false);
            assert_eq!(table.take(channel), Some(Cq(3)));
        }
    }

    #[test]
    fn channels_live_as_long_as_their_queues() {
        let mut table = ChannelTable::default();
        let (a, b) = (table.create().unwrap(), table.create().unwrap());
        assert!(table.arm(Cq(1), false).is_err(), "without a channel");
        table.attach(Cq(1), a);
        table.attach(Cq(2), a);
        assert!(matches!(table.destroy(a), Err(VerbsError::Busy { .. })));
        for cq in [Cq(1), Cq(2)] {
            table.arm(cq, false).unwrap();
            table.completed(cq, false);
        }
        table.detach(Cq(1));
        assert_eq!(
            table.take(a),
            Some(Cq(2)),
            "what the first announced is gone"
        );
        table.detach(Cq(2));
        table.destroy(a).unwrap();
        assert!(matches!(
            table.destroy(a),
            Err(VerbsError::NoSuchChannel(_))
        ));
        assert_eq!(table.create().unwrap(), a, "numbers are used again");
        assert_ne!(table.create().unwrap(), b);
    }
}
