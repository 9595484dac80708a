//! Cores, and tasks that take turns on them: who is ready waits in one line, runs for a turn at most, and goes to its end
//! again if there is more to do. That is what a kernel's fair scheduling comes to where many processes have little to do
//! each. A cluster's cores are many machines, each with a line of its own.

use std::collections::VecDeque;

use crate::agenda::Agenda;

/// A number of a task.
pub(super) type TaskId = u32;

/// Something that a task has to do, and what it takes.
#[derive(Debug)]
struct Burst<W> {
    left: f64,
    what: W,
}

#[derive(Debug)]
struct Task<W> {
    machine: u32,
    bursts: VecDeque<Burst<W>>,
    /// It is in a line, or on a core.
    awake: bool,
    /// Of its turn.
    used: f64,
}

#[derive(Debug, Clone)]
struct Line {
    idle: u32,
    ready: VecDeque<TaskId>,
}

/// A task had a core for so long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    task: TaskId,
    time: f64,
}

/// Machines and tasks. What is done is of type `W`.
#[derive(Debug)]
pub(super) struct Cores<W> {
    turn: f64,
    lines: Vec<Line>,
    tasks: Vec<Task<W>>,
    /// All that tasks had of cores.
    pub(super) busy: f64,
}

/// Shorter times are errors of rounding.
const NOTHING: f64 = 1e-3;

impl<W> Cores<W> {
    pub(super) fn new(machines: usize, cores: usize, turn: f64) -> Self {
        let line = Line {
            idle: cores as u32,
            ready: VecDeque::new(),
        };
        Self {
            turn: turn.max(1.0),
            lines: vec![line; machines],
            tasks: Vec::new(),
            busy: 0.0,
        }
    }

    /// Turns are so long at least.
    pub(super) fn lengthen_turns(&mut self, least: f64) {
        self.turn = self.turn.max(least);
    }

    /// A task on a machine, with nothing to do.
    pub(super) fn task(&mut self, machine: u32) -> TaskId {
        self.tasks.push(Task {
            machine,
            bursts: VecDeque::new(),
            awake: false,
            used: 0.0,
        });
        self.tasks.len() as TaskId - 1
    }

    /// The task has more to do, after all else; it wakes up for it.
    pub(super) fn push<E: From<Ran>>(
        &mut self,
        now: f64,
        task: TaskId,
        work: f64,
        what: W,
        agenda: &mut Agenda<E>,
    ) {
        let burst = Burst { left: work, what };
        self.tasks[task as usize].bursts.push_back(burst);
        self.wake(now, task, agenda);
    }

    /// The same before all else.
    pub(super) fn push_first<E: From<Ran>>(
        &mut self,
        now: f64,
        task: TaskId,
        work: f64,
        what: W,
        agenda: &mut Agenda<E>,
    ) {
        let burst = Burst { left: work, what };
        self.tasks[task as usize].bursts.push_front(burst);
        self.wake(now, task, agenda);
    }

    /// Whether the task has something to do.
    pub(super) fn has_more(&self, task: TaskId) -> bool {
        !self.tasks[task as usize].bursts.is_empty()
    }

    /// The task lets others have their turn.
    pub(super) fn give_way(&mut self, task: TaskId) {
        self.tasks[task as usize].used = self.turn;
    }

    fn wake<E: From<Ran>>(&mut self, now: f64, task: TaskId, agenda: &mut Agenda<E>) {
        let it = &mut self.tasks[task as usize];
        if !std::mem::replace(&mut it.awake, true) {
            it.used = 0.0;
            let line = it.machine;
            self.lines[line as usize].ready.push_back(task);
            self.dispatch(now, line, agenda);
        }
    }

    fn dispatch<E: From<Ran>>(&mut self, now: f64, line: u32, agenda: &mut Agenda<E>) {
        let line = &mut self.lines[line as usize];
        while line.idle > 0
            && let Some(task) = line.ready.pop_front()
        {
            line.idle -= 1;
            let it = &self.tasks[task as usize];
            let left = it.bursts.front().map_or(0.0, |burst| burst.left);
            // Whoever comes has another core.
            let turn = match line.idle > 0 {
                true => f64::INFINITY,
                false => self.turn - it.used,
            };
            let time = left.min(turn);
            agenda.add(now + time, Ran { task, time }.into());
        }
    }

    /// A task has run. Gives what it has done, if that is complete: whoever is told may give more to do to it and
    /// others, and then has to call [`Cores::go_on`].
    pub(super) fn ran(&mut self, ran: Ran) -> (TaskId, Option<W>) {
        self.busy += ran.time;
        let task = &mut self.tasks[ran.task as usize];
        task.used += ran.time;
        let front = task.bursts.front_mut().expect("it had something to do");
        front.left -= ran.time;
        let done = front.left <= NOTHING;
        let done = done.then(|| task.bursts.pop_front()).flatten();
        (ran.task, done.map(|burst| burst.what))
    }

    /// A task that has run goes on, waits for its next turn, or sleeps.
    pub(super) fn go_on<E: From<Ran>>(&mut self, now: f64, task: TaskId, agenda: &mut Agenda<E>) {
        let it = &mut self.tasks[task as usize];
        let line = it.machine;
        self.lines[line as usize].idle += 1;
        let over = it.used >= self.turn - NOTHING;
        if over {
            it.used = 0.0;
        }
        it.awake = !it.bursts.is_empty();
        let ready = &mut self.lines[line as usize].ready;
        match (it.awake, over) {
            (false, _) => {}
            (true, true) => ready.push_back(task),
            // It still has its core.
            (true, false) => ready.push_front(task),
        }
        self.dispatch(now, line, agenda);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs tasks with one burst each on one machine; gives when each was done.
    fn ends(cores: usize, turn: f64, work: &[f64]) -> Vec<(u32, f64)> {
        let mut all: Cores<u32> = Cores::new(1, cores, turn);
        let mut agenda: Agenda<Ran> = Agenda::default();
        for &work in work {
            let task = all.task(0);
            all.push(0.0, task, work, task, &mut agenda);
        }
        let mut ends = Vec::new();
        while let Some((now, ran)) = agenda.next() {
            let (task, done) = all.ran(ran);
            ends.extend(done.map(|what| (what, now)));
            all.go_on(now, task, &mut agenda);
        }
        assert!((all.busy - work.iter().sum::<f64>()).abs() < 1e-6);
        ends
    }

    #[test]
    fn cores_are_never_idle_while_somebody_waits() {
        assert_eq!(
            ends(2, 10.0, &[3.0; 4]),
            [(0, 3.0), (1, 3.0), (2, 6.0), (3, 6.0)]
        );
        assert_eq!(ends(1, 10.0, &[3.0, 1.0]), [(0, 3.0), (1, 4.0)]);
    }

    #[test]
    fn who_has_much_to_do_lets_others_have_their_turn() {
        assert_eq!(ends(1, 1.0, &[3.0, 1.0]), [(1, 2.0), (0, 4.0)]);
    }
}
