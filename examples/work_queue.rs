//! Work stealing: each PE has a queue of tasks, and whoever has none takes half of another's.
//!
//! A queue is a ring of tasks and one word, how many were taken and how many were put. Who takes reads
//! tasks and then moves the word from what it was; if somebody else was faster that fails, and what was read
//! means nothing. Both numbers only grow, so a word that is what it was says that nothing has happened.

use shmem::{Error, SymSlice};

/// Tasks that a queue has room for: a power of two.
const ROOM: u32 = 1 << 10;

/// A queue on every PE. The number of tasks that are not done, everybody's together, is on PE 0.
#[derive(Clone, Copy, Debug)]
struct Queue {
    tasks: SymSlice<u64>,
    /// [`Ends`] as a word.
    ends: SymSlice<u64>,
    undone: SymSlice<u64>,
}

/// How many tasks were taken from a queue, and how many were put into it; both wrap.
#[derive(Clone, Copy)]
struct Ends {
    taken: u32,
    put: u32,
}

impl Ends {
    fn of(word: u64) -> Self {
        let (taken, put) = ((word >> 32) as u32, word as u32);
        Self { taken, put }
    }

    fn word(self) -> u64 {
        u64::from(self.taken) << 32 | u64::from(self.put)
    }

    fn len(self) -> u32 {
        self.put.wrapping_sub(self.taken)
    }
}

impl Queue {
    /// Collective.
    fn new() -> Result<Self, Error> {
        Ok(Self {
            tasks: shmem::alloc(ROOM as usize)?,
            ends: shmem::alloc(1)?,
            undone: shmem::alloc(1)?,
        })
    }

    /// Says that so many tasks come into being, before the first of them is put.
    fn announce(&self, tasks: u64) {
        shmem::atomic_fetch_add(self.undone, tasks, 0);
    }

    /// Puts a task into this PE's queue; gives it back if there is no room.
    fn put(&self, task: u64) -> Result<(), u64> {
        let me = shmem::my_pe();
        let mut ends = Ends::of(shmem::atomic_fetch(self.ends, me));
        if ends.len() == ROOM {
            return Err(task);
        }
        // The cell is free until the word says otherwise: only this PE puts.
        let cell = self.tasks.elem((ends.put % ROOM) as usize);
        shmem::atomic_set(cell, task, me);
        loop {
            let next = Ends {
                put: ends.put.wrapping_add(1),
                ..ends
            };
            match shmem::atomic_compare_exchange(self.ends, ends.word(), next.word(), me) {
                Ok(_) => return Ok(()),
                Err(now) => ends = Ends::of(now),
            }
        }
    }

    /// Takes tasks from a queue, so many as `share` says of its length. None if there are none, or somebody
    /// else was faster.
    fn take(&self, pe: usize, share: impl Fn(u32) -> u32) -> Vec<u64> {
        let ends = Ends::of(shmem::atomic_fetch(self.ends, pe));
        let count = share(ends.len());
        let first = (ends.taken % ROOM) as usize;
        let count = count.min(ROOM - first as u32);
        if count == 0 {
            return Vec::new();
        }
        let tasks = shmem::get_vec(self.tasks.at(first..first + count as usize), pe);
        let next = Ends {
            taken: ends.taken.wrapping_add(count),
            ..ends
        };
        match shmem::atomic_compare_exchange(self.ends, ends.word(), next.word(), pe) {
            Ok(_) => tasks,
            Err(_) => Vec::new(),
        }
    }

    /// Runs tasks, of this PE and then of others, until there are none anywhere. `run` says which tasks one
    /// brings about.
    fn work(&self, mut run: impl FnMut(u64) -> Vec<u64>) {
        let (me, n) = (shmem::my_pe(), shmem::n_pes());
        let mut here = Vec::new();
        let mut victim = me;
        loop {
            here.extend(self.take(me, |len| len.min(1)));
            if here.is_empty() && n > 1 {
                // What was taken from another can be taken by others again.
                victim = (victim + 1) % n;
                let half = self.take(victim, |len| len.div_ceil(2));
                here.extend(half.into_iter().filter_map(|task| self.put(task).err()));
            }
            let Some(task) = here.pop() else {
                if shmem::atomic_fetch(self.undone, 0) == 0 {
                    return;
                }
                std::thread::yield_now();
                continue;
            };
            let more = run(task);
            // This one is done; wrapping, so that none more is one less.
            self.announce((more.len() as u64).wrapping_sub(1));
            here.extend(more.into_iter().filter_map(|task| self.put(task).err()));
        }
    }

    /// Collective.
    fn free(self) -> Result<(), Error> {
        shmem::free(self.undone)?;
        shmem::free(self.ends)?;
        shmem::free(self.tasks)
    }
}

/// A board of queens, row by row, as a task: columns, and both diagonals where they cross the next row.
struct Board {
    columns: u16,
    left: u16,
    right: u16,
}

const SIZE: u32 = 9;

const EMPTY: Board = Board {
    columns: 0,
    left: 0,
    right: 0,
};

/// How many boards come from one, itself included: for comparison.
fn alone(board: &Board) -> u64 {
    1 + board.next().map(|next| alone(&next)).sum::<u64>()
}

impl Board {
    fn of(task: u64) -> Self {
        Self {
            columns: task as u16,
            left: (task >> 16) as u16,
            right: (task >> 32) as u16,
        }
    }

    fn task(&self) -> u64 {
        u64::from(self.columns) | u64::from(self.left) << 16 | u64::from(self.right) << 32
    }

    /// With one queen more, in all ways.
    fn next(&self) -> impl Iterator<Item = Self> {
        let taken = self.columns | self.left | self.right;
        let free = (0..SIZE)
            .map(|i| 1u16 << i)
            .filter(move |bit| taken & bit == 0);
        free.map(|bit| Self {
            columns: self.columns | bit,
            left: (self.left | bit) << 1 & ((1 << SIZE) - 1),
            right: (self.right | bit) >> 1,
        })
    }
}

fn main() {
    shmem::run(|world| {
        let queue = Queue::new()?;
        if world.my_pe() == 0 {
            queue.announce(1);
            queue.put(EMPTY.task()).expect("the queue is empty");
        }
        // Nobody looks before there is something to do.
        world.barrier();
        let (mut boards, mut tasks) = (0, 0);
        queue.work(|task| {
            let board = Board::of(task);
            tasks += 1;
            if board.columns.count_ones() == SIZE {
                boards += 1;
            }
            board.next().map(|next| next.task()).collect()
        });
        let (boards, all) = (world.sum(boards), world.sum(tasks));
        assert_eq!((boards, all), (352, alone(&EMPTY)));
        world.barrier();
        queue.free()?;
        if world.my_pe() == 0 {
            println!("{SIZE} queens stand in {boards} ways; {all} boards were looked at");
        }
        Ok(())
    });
}
