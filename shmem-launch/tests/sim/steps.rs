//! What happens in a world, step by step: links deliver, processes end, output is written, time passes.

use super::*;
use shmem_launch::census::{self, Census, Doing, Example, Group, Places, RankSet, Span};

const STOP: u8 = 20;
const USR1: u8 = 10;

/// How long the job may be stopped.
const MINUTES: usize = 300_000_000_000;

/// How much time passes at once while somebody has something to do.
const MOMENT: usize = 20_000_000;

/// Whether standard output of a PE may be read.
fn may_read(reading: Reading, local: u32) -> bool {
    match reading {
        Reading::All => true,
        Reading::Only([out, _]) => out == Some(local),
        Reading::Nothing => false,
    }
}

impl Node {
    /// Whether there is output of its PEs to be read.
    fn readable(&self) -> bool {
        let reading = self.agent.reading();
        let readable = |pe: &Pe| {
            pe.open
                && (!pe.pipe.is_empty()
                    || matches!(pe.life, Life::Reaped | Life::Zombie(_))
                    || (pe.life == Life::Waiting && !self.template.alive))
        };
        let mut pes = (0u32..).zip(&self.pes);
        pes.any(|(local, pe)| may_read(reading, local) && readable(pe))
    }
}

impl Node {
    /// What its driver finds of its PEs.
    fn census(&self, node: u32) -> Census {
        let group = |(rank, pe): (u32, &Pe)| Group {
            doing: Doing::Runs {
                life: match pe.life {
                    Life::Waiting => census::Life::NotStarted,
                    Life::Alive => census::Life::Running,
                    Life::Zombie(_) | Life::Reaped => census::Life::Ended,
                },
                process: None,
                begun: None,
            },
            ranks: RankSet::range(rank..rank + 1),
            example: Example { rank, node, pid: 0 },
            age: None,
            cpu: None,
            begun: Span::of(0),
            for_whom: RankSet::default(),
            operations: 0,
            places: Places::default(),
        };
        Census::of(node, (self.first_rank..).zip(&self.pes).map(group))
    }
}

impl World {
    pub(super) fn tell(&mut self, at: usize, event: Event<'_>) {
        if self.nodes[at].alive && !self.nodes[at].frozen {
            self.nodes[at].agent.handle(event, self.now);
            self.act(at);
        }
    }

    /// The driver of an agent.
    fn act(&mut self, at: usize) {
        while let Some(action) = self.nodes[at].agent.poll_action() {
            match action {
                Action::StartPes { first, count } => {
                    for pe in &mut self.nodes[at].pes[first as usize..(first + count) as usize] {
                        pe.open = true;
                    }
                    self.nodes[at].template.requests.push_back((first, count));
                }
                // A PE that was reaped has nobody else who writes: its pipe ends.
                Action::CloseOutputOf(_) => {}
                Action::Respawn { local, .. } => self.respawn(at, local),
                Action::FinishTemplate => self.nodes[at].template.finishing = true,
                Action::Continued(_) => {}
                Action::FindParent => self.find_parent(at),
                Action::FindAttached { lost } => {
                    if !self.scripted && self.rng.one_in(4) {
                        let event = Event::Attached { lost };
                        self.nodes[at].agent.handle(event, self.now);
                    }
                }
                Action::Signal(signal) => self.signal(at, signal),
                Action::KillAll => {
                    // They have had no time to end.
                    assert!(!self.nodes[at].stopped);
                    self.signal(at, 9);
                }
                Action::CleanUp => {
                    assert!(self.nodes[at].pes.iter().all(|p| p.life != Life::Alive));
                    let report = Reduced {
                        agents: 1,
                        ..Reduced::default()
                    };
                    self.nodes[at]
                        .agent
                        .handle(Event::CleanedUp(Box::new(report)), self.now);
                }
                Action::Exit => self.end_agent(at, End::Code(0)),
                Action::Die => self.end_agent(at, End::Code(125)),
                Action::DropOutput => {
                    for pe in &mut self.nodes[at].pes {
                        pe.open = false;
                    }
                }
                Action::ToPmix(bytes) => self.nodes[at].server.hear(&bytes),
                Action::CloseOutput(_) | Action::ToPe(..) | Action::Publish { .. } => {}
                Action::DropChild(index) => {
                    let child = self.nodes[at].children[index];
                    self.drop_child(child);
                }
                Action::Stdin(_) | Action::StdinEnd => {}
                Action::Trace { number, pe, .. } => {
                    let event = Event::Traced(number, pe.rank, "#0 main".into());
                    self.nodes[at].agent.handle(event, self.now);
                }
                Action::Count(number) => {
                    let census = self.nodes[at].census(at as u32);
                    let event = Event::Counted(number, census);
                    self.nodes[at].agent.handle(event, self.now);
                }
                Action::StartChild(index) => {
                    let child = self.nodes[at].children[index];
                    let event = Event::ChildStarted(index, Ok(self.call(child)));
                    self.nodes[at].agent.handle(event, self.now);
                }
            }
        }
        self.flush(at);
    }

    /// The driver of an agent starts a PE again, or cannot.
    fn respawn(&mut self, at: usize, local: u32) {
        let works = !self.rng.one_in(8);
        self.next_pid += 1;
        let pid = self.next_pid;
        let node = &mut self.nodes[at];
        let pe = &mut node.pes[local as usize];
        assert_eq!(pe.life, Life::Reaped);
        assert!(!pe.open && pe.pipe.is_empty());
        let pid = match works {
            true => {
                (pe.life, pe.open) = (Life::Alive, true);
                Ok(pid)
            }
            false => {
                self.seen.respawn_failed = true;
                Err("no".to_owned())
            }
        };
        node.agent.handle(Event::Respawned { local, pid }, self.now);
    }

    fn flush(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let out = node.agent.outgoing(None);
        node.link.up.extend(out.take());
        for (index, child) in node.children.clone().into_iter().enumerate() {
            let bytes = self.nodes[at].agent.outgoing(Some(index)).take();
            self.nodes[child].link.down.extend(bytes);
        }
    }

    fn signal(&mut self, at: usize, signal: u8) {
        let node = &mut self.nodes[at];
        node.stopped = signal == STOP;
        for pe in node.pes.iter_mut().filter(|p| p.life == Life::Alive) {
            if signal == 9 || (signal == 15 && !pe.stubborn) {
                pe.life = Life::Zombie(End::killed(signal));
            }
        }
        if node.template.alive && (signal == 9 || signal == 15) {
            node.template.finishing = true;
            node.template.requests.clear();
        }
    }

    /// The remote shell of a host is started, or started anew. Gives its process.
    fn call(&mut self, at: usize) -> u32 {
        let n = &mut self.nodes[at];
        assert!(
            self.shape.hosts && !n.shell.called && n.link.up.is_empty(),
            "node {at}"
        );
        n.shell.called = true;
        // What was for the one before has gone with it.
        n.link.down.clear();
        2000 + at as u32
    }

    /// The remote shell of a host ends before anything has come from there.
    fn refuse(&mut self, at: usize) {
        const REFUSED: End = End::Code(255);
        let n = &mut self.nodes[at];
        n.shell.refusals -= 1;
        n.shell.called = false;
        match n.parent {
            Some(parent) => {
                let index = n.index;
                self.tell(parent, Event::ChildClosed(index));
                self.tell(parent, Event::ChildReaped(index, REFUSED));
            }
            None => {
                self.tell_root(root::Event::AgentClosed);
                self.tell_root(root::Event::AgentReaped(REFUSED));
            }
        }
    }

    pub(super) fn end_agent(&mut self, at: usize, end: End) {
        self.flush(at);
        let node = &mut self.nodes[at];
        node.alive = false;
        node.link.up_closed = true;
        node.unreaped = Some(end);
        // The guard.
        for pe in &mut node.pes {
            pe.life = Life::Reaped;
        }
        for child in node.children.clone() {
            self.close_down(child);
        }
    }

    /// One of the things that can happen now; false if nothing can.
    pub(super) fn step(&mut self) -> bool {
        let mut choices: Vec<(usize, u8)> = Vec::new();
        for (at, n) in self.nodes.iter().enumerate() {
            let root_at_work = self.launcher.alive && self.launcher.stopped.is_none();
            let at_work = |p: usize| self.nodes[p].alive && !self.nodes[p].frozen;
            let parent_at_work = n.parent.map_or(root_at_work, at_work);
            if parent_at_work && !n.link.dropped && !n.link.cut[0] {
                let told = n.parent.is_none() && self.launcher.told_closed;
                if !n.link.up.is_empty() && n.shell.greeting.is_none() {
                    choices.push((at, 0));
                } else if n.link.up_closed && !told {
                    choices.push((at, 1));
                }
                if n.unreaped.is_some() {
                    choices.push((at, 2));
                }
            }
            if !n.alive {
                continue;
            }
            let lossy = self.seen.server_died || self.scripted;
            if lossy && !n.stopped && n.dies_of_a_loss() {
                choices.push((at, 14));
            }
            if n.server.works() {
                choices.push((at, 15));
            }
            if n.frozen {
                // Its PEs go on.
                if !n.stopped && !self.scripted && n.pes.iter().any(|p| p.life == Life::Alive) {
                    choices.push((at, 8));
                }
                continue;
            }
            if n.server.has_news() {
                choices.push((at, 16));
            }
            if let Some(greeting) = &n.shell.greeting {
                // Until then nothing runs on the host.
                if n.link.down_closed {
                    choices.push((at, 4));
                } else if n.shell.called && n.shell.refusals > 0 {
                    if parent_at_work && !n.link.dropped {
                        choices.push((at, 13));
                    }
                } else if n.shell.called
                    && !greeting.is_empty()
                    && n.parent.is_none_or(|p| self.nodes[p].alive)
                {
                    choices.push((at, 12));
                }
                continue;
            }
            if n.link.cut[1] {
                // Nothing comes.
            } else if !n.link.down.is_empty() {
                choices.push((at, 3));
            } else if n.link.down_closed {
                choices.push((at, 4));
            }
            if !n.template.prepared {
                choices.push((at, 5));
            }
            if n.stopped {
                // Neither template nor PEs do anything.
            } else if !n.template.requests.is_empty() {
                choices.push((at, 6));
            } else if n.template.finishing && n.template.alive {
                choices.push((at, 7));
            }
            if !n.stopped && !self.scripted && n.pes.iter().any(|p| p.life == Life::Alive) {
                choices.push((at, 8));
            }
            if !n.template.alive && n.pes.iter().any(|p| matches!(p.life, Life::Zombie(_))) {
                choices.push((at, 9));
            }
            if n.readable() {
                choices.push((at, 10));
            }
        }
        let root_at_work = self.launcher.alive && self.launcher.stopped.is_none();
        if root_at_work && self.blocked_for == 0 {
            choices.push((0, 11));
        }
        if self.stop_or_go_on(choices.is_empty()) {
            return true;
        }
        self.blocked_for = self.blocked_for.saturating_sub(1);
        if self.deaths_left > 0 && self.rng.one_in(150) {
            self.deaths_left -= 1;
            match self.rng.one_in(3) {
                true => self.silence(),
                false => self.death(),
            }
            return true;
        }
        let only_terminal = choices.iter().all(|c| c.1 == 11);
        if only_terminal && !choices.is_empty() && self.write_text() {
            return true;
        }
        if only_terminal || self.rng.one_in(50) {
            return self.pass_time(only_terminal) || self.launcher.alive && self.blocked_for > 0;
        }
        let (at, what) = choices[self.rng.below(choices.len())];
        self.happen(at, what);
        true
    }

    fn happen(&mut self, at: usize, what: u8) {
        let (parent, index) = (self.nodes[at].parent, self.nodes[at].index);
        match what {
            0 => {
                let max = self.nodes[at].link.up.len();
                let most = if self.rng.one_in(2) { 7 } else { 200_000 };
                let n = 1 + self.rng.below(max.min(most));
                self.deliver(at, n);
            }
            1 => {
                match parent {
                    Some(p) => {
                        // Reported once: nothing more can come from the link.
                        self.nodes[at].link.up_closed = false;
                        self.tell(p, Event::ChildClosed(index));
                    }
                    None => {
                        self.launcher.told_closed = true;
                        self.tell_root(root::Event::AgentClosed);
                    }
                }
            }
            2 => {
                let end = self.nodes[at].unreaped.take().unwrap();
                match parent {
                    Some(p) => self.tell(p, Event::ChildReaped(index, end)),
                    None => {
                        self.launcher.reaped = true;
                        self.tell_root(root::Event::AgentReaped(end));
                    }
                }
            }
            3 => {
                let max = self.nodes[at].link.down.len();
                let n = 1 + self.rng.below(max.min(64));
                let bytes: Vec<u8> = self.nodes[at].link.down.drain(..n).collect();
                self.tell(at, Event::FromParent(&bytes));
            }
            4 => self.tell(at, Event::ParentClosed),
            5 => {
                self.nodes[at].template.prepared = true;
                self.tell(at, Event::Prepared);
            }
            6 => {
                let (first, count) = self.nodes[at].template.requests.pop_front().unwrap();
                let pids: Vec<i32> = (self.next_pid..self.next_pid + count as i32).collect();
                self.next_pid += count as i32;
                for pe in &mut self.nodes[at].pes[first as usize..(first + count) as usize] {
                    pe.life = Life::Alive;
                }
                self.tell(
                    at,
                    Event::PesStarted {
                        pids: &pids,
                        error: None,
                    },
                );
            }
            7 => {
                self.nodes[at].template.alive = false;
                self.tell(at, Event::TemplateClosed);
            }
            8 => {
                let first_rank = self.nodes[at].first_rank;
                let alive: Vec<usize> = (0..self.nodes[at].pes.len())
                    .filter(|&l| self.nodes[at].pes[l].life == Life::Alive)
                    .collect();
                let local = alive[self.rng.below(alive.len())];
                let pe = &mut self.nodes[at].pes[local];
                if pe.pipe.len() > 64 << 10 {
                    return;
                }
                if pe.lines_left == 0 {
                    pe.life = Life::Zombie(End::Code(0));
                    return;
                }
                pe.lines_left -= 1;
                let line = pe.line(first_rank + local as u32, pe.written) + "\n";
                pe.written += 1;
                pe.bytes += line.len() - 1;
                pe.pipe.extend_from_slice(line.as_bytes());
            }
            9 => {
                let zombies: Vec<(u32, End)> = (0u32..)
                    .zip(&self.nodes[at].pes)
                    .filter_map(|(l, p)| match p.life {
                        Life::Zombie(end) => Some((l, end)),
                        _ => None,
                    })
                    .collect();
                let (local, end) = zombies[self.rng.below(zombies.len())];
                self.nodes[at].pes[local as usize].life = Life::Reaped;
                let waited_for = !self.scripted
                    && self.shape.keep_going
                    && end != End::Code(0)
                    && self.rng.one_in(4);
                self.tell(
                    at,
                    Event::Reaped {
                        local,
                        end,
                        missed: match waited_for {
                            true => StillNeeded::Finalize,
                            false => StillNeeded::Nothing,
                        },
                        attached: false,
                    },
                );
            }
            10 => self.read_output(at),
            12 => {
                let said = self.nodes[at].shell.greeting.take().unwrap();
                for byte in said.into_iter().rev() {
                    self.nodes[at].link.up.push_front(byte);
                }
            }
            13 => self.refuse(at),
            14 => self.die_of_a_loss(at),
            15 => self.nodes[at].server.work(),
            16 => self.server_news(at),
            _ => {
                self.write_text();
            }
        }
    }

    fn read_output(&mut self, at: usize) {
        let template = self.nodes[at].template.alive;
        let reading = self.nodes[at].agent.reading();
        // All of them come to their turn, as they do with epoll.
        let n = self.nodes[at].pes.len();
        let first = self.rng.below(n);
        for local in (first..n).chain(0..first) {
            let pe = &mut self.nodes[at].pes[local];
            if !pe.open || !may_read(reading, local as u32) {
                continue;
            }
            if !pe.pipe.is_empty() {
                let n = 1 + self.rng.below(pe.pipe.len().min(64 << 10));
                let data: Vec<u8> = self.nodes[at].pes[local].pipe.drain(..n).collect();
                return self.tell(at, Event::Output(local as u32, Stream::Out, &data));
            }
            let ended = matches!(pe.life, Life::Reaped | Life::Zombie(_))
                || (pe.life == Life::Waiting && !template);
            if ended {
                pe.open = false;
                self.tell(at, Event::OutputClosed(local as u32, Stream::Err));
                return self.tell(at, Event::OutputClosed(local as u32, Stream::Out));
            }
        }
    }

    pub(super) fn tell_root(&mut self, event: root::Event<'_>) {
        self.root.handle(event, self.now);
        while let Some(action) = self.root.poll_action() {
            match action {
                root::Action::StartAgent => {
                    let event = root::Event::AgentStarted(Ok(self.call(0)));
                    self.root.handle(event, self.now);
                }
                other => unreachable!("{other:?}"),
            }
        }
        let bytes = self.root.outgoing().take();
        self.nodes[0].link.down.extend(bytes);
        if self.root.is_over() {
            self.end_first();
        }
    }

    /// True if there was something to write.
    fn write_text(&mut self) -> bool {
        let mut news = false;
        for stream in Stream::ALL {
            let text = self.root.take_text(stream);
            news |= !text.is_empty();
            self.texts[stream as usize].extend_from_slice(&text);
            self.tell_root(root::Event::Written(stream, text.len()));
        }
        if self.root.finished().is_some() {
            self.launcher.alive = false;
            self.end_first();
            news = true;
        }
        news
    }

    /// Jumps to the next timer if nothing else can happen, else some milliseconds ahead; false if
    /// there is nothing to wait for.
    fn pass_time(&mut self, idle: bool) -> bool {
        if idle {
            let timers = self
                .nodes
                .iter()
                .filter(|n| n.alive && !n.frozen && n.shell.greeting.is_none())
                .filter_map(|n| n.agent.next_timeout());
            let at_work = self.launcher.alive && self.launcher.stopped.is_none();
            let root = self.root.next_timeout().filter(|_| at_work);
            let healing = self.next_healing();
            let Some(next) = timers.chain(root).chain(healing).min() else {
                return false;
            };
            self.now = self.now.max(next);
        } else {
            self.now += self.rng.below(MOMENT) as u64;
        }
        self.heal();
        self.timers();
        if self.launcher.alive && self.launcher.stopped.is_none() {
            self.tell_root(root::Event::Timer);
        }
        true
    }

    fn timers(&mut self) {
        for at in 0..self.nodes.len() {
            // There is none yet.
            if self.nodes[at].shell.greeting.is_some() {
                continue;
            }
            let due = |n: &Node| n.agent.next_timeout().is_some_and(|t| t <= self.now);
            if !due(&self.nodes[at]) {
                continue;
            }
            // A driver reads before it looks at the clock.
            self.read_all(at);
            self.tell(at, Event::Timer);
        }
    }

    /// An agent reads all that there is, from above, from below and from its PEs.
    fn read_all(&mut self, at: usize) {
        if !self.nodes[at].alive || self.nodes[at].frozen {
            return;
        }
        if !self.nodes[at].link.cut[1] && !self.nodes[at].link.down.is_empty() {
            let bytes: Vec<u8> = self.nodes[at].link.down.drain(..).collect();
            self.tell(at, Event::FromParent(&bytes));
        }
        for child in self.nodes[at].children.clone() {
            let n = &self.nodes[child];
            if n.shell.greeting.is_none()
                && !n.link.dropped
                && !n.link.cut[0]
                && !n.link.up.is_empty()
            {
                let all = n.link.up.len();
                self.deliver(child, all);
            }
        }
        while self.nodes[at].readable() {
            self.read_output(at);
        }
    }

    /// The next `n` bytes of an agent reach its parent.
    fn deliver(&mut self, at: usize, n: usize) {
        let (parent, index) = (self.nodes[at].parent, self.nodes[at].index);
        let bytes: Vec<u8> = self.nodes[at].link.up.drain(..n).collect();
        self.nodes[at].link.delivered += n;
        match parent {
            Some(p) => self.tell(p, Event::FromChild(index, &bytes)),
            None => self.tell_root(root::Event::FromAgent(&bytes)),
        }
    }

    /// Somebody stops the launcher, or has it go on. True if so.
    fn stop_or_go_on(&mut self, idle: bool) -> bool {
        if self.scripted || !self.launcher.alive || self.root.is_over() {
            return false;
        }
        // Hosts answer in their own time, so they have done it.
        let ready = self.root.moments().ready > 0;
        match self.launcher.stopped {
            None if ready && self.rng.one_in(4000) => {
                self.tell_root(root::Event::Signal(STOP));
                self.launcher.stopped = Some(self.now);
                self.launcher.was_stopped = true;
            }
            Some(since) if idle || self.rng.one_in(30) => {
                // The others are not stopped: in minutes they would do all that they can.
                let most = if idle { MINUTES } else { MOMENT };
                self.now += self.rng.below(most) as u64;
                self.heal();
                self.timers();
                self.launcher.stopped = None;
                self.tell_root(root::Event::Continued(self.now - since));
            }
            _ => return false,
        }
        true
    }

    /// Somebody asks what the PEs wait for.
    pub(super) fn ask(&mut self) {
        if self.launcher.alive && self.launcher.stopped.is_none() && !self.root.is_over() {
            self.seen.asked += 1;
            self.tell_root(root::Event::Signal(USR1));
        }
    }

    fn death(&mut self) {
        if self.shape.pmix && self.rng.one_in(4) {
            let at = self.rng.below(self.nodes.len());
            return self.kill_server(at);
        }
        match self.rng.below(5) {
            // A signal after the end only drops what is unwritten; while it is stopped, none is seen.
            3 | 4 if self.root.is_over() || self.launcher.stopped.is_some() => {}
            0 | 1 => {
                let at = self.rng.below(self.nodes.len());
                let local = self.rng.below(self.nodes[at].pes.len());
                let pe = &mut self.nodes[at].pes[local];
                if pe.life == Life::Alive {
                    let end = if self.rng.one_in(2) {
                        End::killed(9)
                    } else {
                        End::Code(1 + self.rng.below(100) as u8)
                    };
                    self.seen.statuses.push(end.status());
                    pe.failed = true;
                    self.nodes[at].pes[local].life = Life::Zombie(end);
                }
            }
            2 => {
                let at = self.rng.below(self.nodes.len());
                // Where nothing was started there is nobody to kill.
                if self.nodes[at].alive && self.nodes[at].shell.called {
                    self.seen.agent_killed = true;
                    self.lose(at);
                    self.end_agent(at, End::killed(9));
                }
            }
            3 => {
                self.seen.statuses.push(143);
                self.tell_root(root::Event::Signal(15));
            }
            _ => {
                self.seen.statuses.push(130);
                self.tell_root(root::Event::Signal(2));
            }
        }
    }
}
