//! Heat in a plate, in blocks of rows and columns: halos in four directions, put with a signal behind each while
//! the inside is computed, and a sum of changes that comes back long after it was asked for. There is no barrier in
//! the time loop.
//!
//! `shmrun -n 4 heat2d` computes a small plate and compares it with a plain loop nest; `shmrun heat2d --help` tells
//! what else it can do. This file leads from the command line to the report; [`solve`] has the loop, [`sweep`] a step.

mod blocks;
mod field;
mod halo;
mod options;
mod picture;
mod plain;
mod plate;
mod report;
mod room;
mod solve;
mod sums;
mod sweep;
mod verify;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use shmem::World;

use crate::blocks::{Block, Blocks};
use crate::field::Field;
use crate::options::Options;
use crate::plain::Plain;
use crate::plate::Plate;
use crate::report::Report;
use crate::room::Room;

fn main() -> ExitCode {
    let parsed = Options::parse_all(std::env::args_os());
    let world = match shmem::init() {
        Ok(world) => world,
        Err(error) => {
            // Help needs no job.
            if let Err(wrong) = parsed {
                wrong.exit();
            }
            eprintln!("heat2d: {error}");
            return ExitCode::FAILURE;
        }
    };
    let status = match parsed {
        Ok(options) => match run(&world, &options) {
            Ok(()) => 0,
            Err(Refused) => 1,
        },
        // All PEs have the same command line.
        Err(wrong) => {
            if world.my_pe() == 0 {
                // Nobody may read it any longer.
                let _ = wrong.print();
            }
            u8::try_from(wrong.exit_code()).unwrap_or(2)
        }
    };
    world.finalize();
    ExitCode::from(status)
}

/// The job cannot be done, and why has been told, by one PE.
struct Refused;

/// The value if all PEs have one. Otherwise the first that has not says why. Collective.
fn agreed<T>(world: &World, mine: Result<T, String>) -> Result<T, Refused> {
    let me = world.my_pe();
    let first = world.min(if mine.is_err() { me } else { usize::MAX });
    match mine {
        Ok(value) if first == usize::MAX => Ok(value),
        mine => {
            if let (Err(why), true) = (mine, first == me) {
                eprintln!("heat2d: {why}");
            }
            Err(Refused)
        }
    }
}

fn run(world: &World, options: &Options) -> Result<(), Refused> {
    let (me, n_pes, size) = (world.my_pe(), world.n_pes(), options.size);
    let enough = if n_pes <= size.points() {
        Ok(())
    } else {
        let points = size.points();
        Err(format!(
            "a plate of {size} has {points} points, fewer than the {n_pes} PEs: use a larger one, or at most \
             {points} PEs"
        ))
    };
    agreed(world, enough)?;
    let blocks = Blocks::new(size, n_pes);
    agreed(world, room::fits(world, options, &blocks))?;
    let room = agreed(world, Room::take(options, &blocks))?;
    let file = match &options.picture {
        Some(path) if me == 0 => picture::open(path).map(Some),
        _ => Ok(None),
    };
    let file = agreed(world, file)?;

    let plate = Plate {
        size,
        mode: options.mode,
    };
    let block = blocks.block(me);
    let solution = solve::solve(world, &plate, options, block.as_ref(), &room);
    let part = block.as_ref().zip(solution.field.as_ref());
    let verified = verify::verify(&plate, options, part, &solution, n_pes);
    let drawn = draw(world, &plate, options, part, &room, file);
    let plain_seconds = options.plain.then(|| {
        let plain = |block| Plain::new(&plate, block, options.method);
        let mut plain = block.as_ref().map(plain);
        world.barrier();
        let seconds = plain.as_mut().map(|plain| plain.run(solution.steps));
        world.max(seconds.unwrap_or(0.0))
    });
    let peers = block.iter().flat_map(|block| block.neighbours);
    let peers = peers.flatten().count();
    let report = Report {
        options,
        blocks,
        n_pes,
        steps: solution.steps,
        seen: solution.seen,
        change: solution.change,
        converged: solution.converged(options.tolerance),
        heat: world.sum(part.map_or(0.0, |(_, field)| field.heat(size))),
        seconds: solution.seconds,
        bytes: solution.bytes,
        peers: [
            world.sum(peers) as f64 / n_pes as f64,
            world.max(peers) as f64,
        ],
        plain_seconds,
        verified,
    };
    let printed = if me == 0 { print(&report) } else { Ok(()) };
    agreed(world, printed)?;
    drawn
}

/// Prints the report. It is no error if nobody reads it any longer.
fn print(report: &Report<'_>) -> Result<(), String> {
    let text = match report.options.json {
        true => report.json() + "\n",
        false => report.to_string(),
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot print the report: {error}"))
        }
        _ => Ok(()),
    }
}

/// Writes the picture, if there is to be one. Collective.
fn draw(
    world: &World,
    plate: &Plate,
    options: &Options,
    part: Option<(&Block, &Field)>,
    room: &Room,
    file: Option<File>,
) -> Result<(), Refused> {
    let (Some(path), Some(band)) = (&options.picture, room.band) else {
        return Ok(());
    };
    let written = band.write(world, part, plate.bounds(), file);
    let told = |error| format!("--picture {}: cannot be written: {error}", path.display());
    agreed(world, written.map_err(told))
}
