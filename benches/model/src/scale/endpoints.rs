//! Endpoints of PEs of the model: their connections, and the thread that serves them.
//!
//! Static connections are reckoned: so many handshakes are more than a model of a large job can hold, and while they are made
//! all cores are busy all the time, so that what one takes a PE ([`Costs::contact`], [`Costs::deeper`]) says how long.
//!
//! [`Costs::contact`]: super::Costs
//! [`Costs::deeper`]: super::Costs

use super::Connect;
use super::contacts::{Connections, Done, contact};
use super::cores::TaskId;
use super::work::{EndpointWork, Event, Work};
use super::world::World;

impl World {
    /// Whether there is a way from one PE to another, or all are connected anyway.
    pub(super) fn is_connected(&self, me: u32, pe: u32) -> bool {
        self.shape.connect == Connect::Static || self.endpoints[me as usize].is_open_to(pe)
    }

    /// A PE wants a connection.
    pub(super) fn connect(&mut self, now: f64, me: u32, pe: u32) {
        let (n_pes, per_node) = (self.shape.pes(), self.shape.per_node);
        let endpoint = &mut self.endpoints[me as usize];
        let new = || Box::new(Connections::new(me, n_pes));
        let connections = endpoint.connections.get_or_insert_with(new);
        if !connections.is_wanted(pe) {
            let done = connections.connect(now, pe, pe / per_node);
            self.act(now, me, done);
        }
    }

    fn thread_of(&mut self, me: u32) -> TaskId {
        if let Some(thread) = self.endpoints[me as usize].thread {
            return thread;
        }
        let thread = self.cores.task(self.machine_of(me / self.shape.per_node));
        self.endpoints[me as usize].thread = Some(thread);
        thread
    }

    /// The thread has something done to connections, which takes time.
    fn act(&mut self, now: f64, me: u32, done: Done) {
        let costs = self.costs;
        let queue_pairs = f64::from(done.made + done.linked) / 2.0 * costs.queue_pair;
        let takes = queue_pairs + done.datagrams.len() as f64 * costs.datagram;
        self.keep_time(now, me);
        let thread = self.thread_of(me);
        let work = Work::Endpoint(me, EndpointWork::Acted(done));
        self.give_first(now, thread, takes, work);
    }

    fn keep_time(&mut self, now: f64, me: u32) {
        let endpoint = &mut self.endpoints[me as usize];
        if let Some(at) = endpoint.connections.as_ref().and_then(|c| c.timeout())
            && at < endpoint.timer
        {
            endpoint.timer = at;
            self.agenda.add(at.max(now), Event::Timer(me));
        }
    }

    pub(super) fn endpoint_timer(&mut self, now: f64, me: u32) {
        let endpoint = &mut self.endpoints[me as usize];
        endpoint.timer = f64::INFINITY;
        let next = endpoint.connections.as_ref().and_then(|c| c.timeout());
        match next {
            _ if endpoint.gone => {}
            Some(at) if at <= now => {
                let thread = self.thread_of(me);
                self.give(now, thread, 0.0, Work::Endpoint(me, EndpointWork::Tick));
            }
            _ => self.keep_time(now, me),
        }
    }

    pub(super) fn endpoint_does(&mut self, now: f64, me: u32, work: EndpointWork) {
        let (n_pes, costs) = (self.shape.pes(), self.costs);
        let endpoint = &mut self.endpoints[me as usize];
        let new = || Box::new(Connections::new(me, n_pes));
        match work {
            EndpointWork::Acted(done) => {
                for (pe, bytes) in done.datagrams {
                    let other = &self.endpoints[pe as usize];
                    if !other.open || other.gone {
                        continue;
                    }
                    let thread = self.thread_of(pe);
                    let work = Work::Endpoint(pe, EndpointWork::Hears(bytes));
                    let at = now + costs.latency;
                    self.agenda
                        .add(at, Event::Arrives(thread, costs.datagram, work));
                }
                if !done.opened.is_empty() {
                    self.opened(now, me);
                }
                self.goes_if_it_may(now, me);
            }
            EndpointWork::Hears(_) | EndpointWork::Tick if endpoint.gone => {}
            EndpointWork::Hears(bytes) => {
                let connections = endpoint.connections.get_or_insert_with(new);
                let done = connections.hear(now, &bytes);
                self.act(now, me, done);
            }
            EndpointWork::Tick => {
                let connections = endpoint.connections.get_or_insert_with(new);
                let done = connections.tick(now);
                self.act(now, me, done);
            }
        }
    }

    fn opened(&mut self, now: f64, me: u32) {
        let per_node = self.shape.per_node;
        if me.is_multiple_of(per_node) {
            self.write_what_waits(now, me / per_node);
        }
    }

    /// A PE can hear.
    pub(super) fn endpoint_opens(&mut self, me: u32) {
        self.endpoints[me as usize].open = true;
    }

    /// A PE takes leave of all with whom it has connections, and goes when nobody needs it any more.
    pub(super) fn leave(&mut self, now: f64, me: u32) {
        let endpoint = &mut self.endpoints[me as usize];
        endpoint.leaves = true;
        match &mut endpoint.connections {
            Some(connections) => {
                let done = connections.leave(now);
                self.act(now, me, done);
            }
            None => self.goes_if_it_may(now, me),
        }
    }

    fn goes_if_it_may(&mut self, now: f64, me: u32) {
        let endpoint = &mut self.endpoints[me as usize];
        let may = endpoint.connections.as_ref().is_none_or(|c| c.has_left());
        if endpoint.leaves && may {
            endpoint.leaves = false;
            endpoint.gone = true;
            self.exits(now, me);
        }
    }

    /// What it takes a PE to connect to all PEs of other nodes, who connect to it, and to leave, where connections are
    /// static.
    pub(super) fn reckoned_contacts(&self) -> [f64; 2] {
        let all = f64::from(self.shape.all_contacts());
        if self.shape.connect == Connect::OnDemand || all == 0.0 {
            return [0.0; 2];
        }
        let farewell = f64::from(contact(true).farewell) * self.costs.datagram;
        let each = self.costs.contact + self.costs.deeper * all.log2();
        [all * (each - farewell).max(0.0), all * farewell]
    }
}
