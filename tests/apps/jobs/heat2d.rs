//! Heat in a plate: the same to the last bit on every layout, pictures that show it, and refusals that help.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use shmem_testkit::Job;

use crate::programs::{HEAT2D, shmrun};

fn heat(options: &str, args: &str) -> Job {
    let program: Vec<_> = [HEAT2D]
        .into_iter()
        .chain(args.split_whitespace())
        .collect();
    shmrun(options, &program)
}

const LAYOUTS: [&str; 11] = [
    "-n 1",
    "-n 2",
    "-n 3",
    "-n 4",
    "-n 6",
    "-n 7",
    "-n 16",
    "-n 4 --nodes 4",
    "-n 6 --nodes 3",
    "-n 7 --nodes 4",
    "-n 16 --nodes 4",
];

/// The value of a field of a JSON object, as it is written.
fn field<'a>(json: &'a str, name: &str) -> &'a str {
    let after = json.split_once(&format!("\"{name}\":")).expect(name).1;
    after.split([',', '}']).next().expect(name)
}

/// What must not depend on the layout.
fn result(json: &str) -> [&str; 5] {
    let names = [
        "iterations",
        "change",
        "change_of_step",
        "heat",
        "verified_by",
    ];
    names.map(|name| field(json, name))
}

fn same_everywhere(args: &str, jobs: impl IntoIterator<Item = Job>) {
    let alone = heat("-n 1", args).succeed();
    for job in jobs {
        let json = job.succeed();
        assert_eq!(json.lines().count(), 1, "{json}");
        assert_eq!(result(&json), result(&alone), "{args}: {json}");
    }
}

#[test]
fn results_are_the_same_on_every_layout() {
    for args in ["25x30 -e 8 --json", "23x30 -e 8 -m jacobi --json"] {
        for connect in ["ondemand", "static"] {
            let jobs = LAYOUTS.map(|options| heat(options, args).env("SHMEM_CONNECT", connect));
            same_everywhere(args, jobs);
        }
    }
}

#[test]
fn results_are_the_same_on_a_bad_network() {
    let faults = "drop=1%,duplicate=1%,reorder=2%,seed=5";
    for args in ["25x30 -s 100 --json", "23x30 -s 100 -m jacobi --json"] {
        let job = |options| heat(options, args).env("SHMEM_SOFT_FAULTS", faults);
        same_everywhere(args, ["-n 6 --nodes 3", "-n 16 --nodes 4"].map(job));
    }
}

/// Blocks of a point, and PEs without a block.
#[test]
fn hardly_more_points_than_pes() {
    for (options, size) in [
        ("-n 13 --nodes 3", "5x5"),
        ("-n 12", "3x4"),
        ("-n 7 --nodes 2", "1x7"),
        ("-n 7", "7x1"),
        ("-n 5", "2x3"),
    ] {
        for method in ["jacobi", "red-black"] {
            let args = format!("{size} -s 100 -e 1e-3 -m {method} --json");
            same_everywhere(&args, [heat(options, &args)]);
        }
    }
}

/// Halos that are too long to be copied while they are sent.
#[test]
fn long_halos() {
    let args = "12x9000 -s 40 -e 0 --json";
    same_everywhere(
        args,
        ["-n 2 --nodes 2", "-n 4 --nodes 2"].map(|options| heat(options, args)),
    );
}

/// Without arguments it compares its result with a plain loop nest.
#[test]
fn it_verifies_what_it_computes() {
    for options in LAYOUTS {
        let out = heat(options, "").succeed();
        assert!(out.contains("verified"), "{options}: {out}");
    }
}

#[test]
fn modes_decay_as_they_should() {
    for args in [
        "31x44 --mode 2x3 -s 200",
        "31x44 --mode 30x44 -s 200 -m jacobi",
    ] {
        let out = heat("-n 6 --nodes 2", args).succeed();
        assert!(
            out.contains("verified  the same as of a plain loop nest"),
            "{out}"
        );
    }
    // Too much to be computed by every PE.
    for method in ["jacobi", "red-black"] {
        let args = format!("200x210 --mode 2x3 -s 1700 -e 0 -m {method}");
        let out = heat("-n 4", &args).succeed();
        assert!(
            out.contains("verified  the mode has decayed as it should"),
            "{out}"
        );
    }
}

#[test]
fn what_is_said_while_it_runs_and_at_the_end() {
    let outcome = heat("-n 4 --nodes 2", "--plain").run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "");
    for line in [
        "A plate of 32x48 points, red-black, on 4 PEs in 4 x 1 blocks\n",
        "steps     255\n",
        "million points/s of a PE, a plain loop nest without other PEs\n",
        "bytes, by a PE to 1.50 others, 2 at most\n",
        "verified  the same as of a plain loop nest, to the last bit\n",
    ] {
        assert!(outcome.stdout.contains(line), "{}", outcome.stdout);
    }
    let json = heat("-n 3", "--plain --json").succeed();
    let speed: f64 = field(&json, "plain_points_per_second_per_process")
        .parse()
        .unwrap();
    assert!(speed > 0.0, "{json}");
    assert_eq!(field(&json, "verified"), "true");
}

/// A file that goes at the end of the test.
struct Picture(PathBuf);

impl Picture {
    fn new(name: &str) -> Self {
        let name = format!("heat2d-{name}-{}.png", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// Width, height, the points' numbers, and the light of each number's colour.
    fn read(&self) -> (usize, usize, Vec<u8>, Vec<u32>) {
        let mut decoder = png::Decoder::new(BufReader::new(File::open(&self.0).unwrap()));
        decoder.set_transformations(png::Transformations::IDENTITY);
        let mut reader = decoder.read_info().unwrap();
        let light = |c: &[u8]| c.iter().map(|&part| u32::from(part)).sum();
        let palette = reader
            .info()
            .palette
            .as_deref()
            .unwrap()
            .chunks(3)
            .map(light)
            .collect();
        let mut points = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut points).unwrap();
        assert_eq!(info.color_type, png::ColorType::Indexed);
        (info.width as usize, info.height as usize, points, palette)
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn pictures_show_the_plate() {
    let (alone, picture) = (Picture::new("alone"), Picture::new("many"));
    let draw = |options: &str, picture: &Picture| {
        let path = picture.0.to_str().unwrap();
        heat(options, &format!("40x51 -s 500 -e 0 -p {path}")).succeed();
        picture.read()
    };
    // A longer file that was there before is replaced.
    std::fs::write(&picture.0, vec![b'x'; 1 << 16]).unwrap();
    let (width, height, points, light) = draw("-n 1", &alone);
    assert_eq!(
        (width, height, points.len(), light.len()),
        (51, 40, 51 * 40, 256)
    );
    assert!(light[0] < light[128] && light[128] < light[255]);
    for options in ["-n 4", "-n 7 --nodes 3", "-n 16 --nodes 4"] {
        assert_eq!(draw(options, &picture).2, points, "{options}");
    }
    let at = |row: usize, col: usize| points[row * width + col];
    for row in 0..height {
        // An odd width: mirrored points are of the same colour of the checkerboard.
        assert!(
            (0..width).all(|col| at(row, col) == at(row, width - 1 - col)),
            "row {row}"
        );
    }
    // From the hot edge down it gets colder; the corners are cold.
    assert!((1..height).all(|row| at(row, width / 2) <= at(row - 1, width / 2)));
    assert!(at(0, width / 2) > 220 && at(0, 0) < 20 && at(height - 1, 0) == 0);
    assert!(at(0, width / 3 + 1) > 100 && at(0, width / 3 - 2) < 100);
}

/// More than two bands, which are used in turn.
#[test]
fn pictures_of_many_bands() {
    let (alone, picture) = (Picture::new("one-by-one"), Picture::new("bands"));
    let draw = |options: &str, picture: &Picture| {
        let path = picture.0.to_str().unwrap();
        heat(options, &format!("7x600000 -s 2 --mode 1x9 -p {path}")).succeed();
        picture.read()
    };
    let (width, height, points, _) = draw("-n 1", &alone);
    assert_eq!((width, height), (600_000, 7));
    assert!(points.iter().any(|&p| p > 220) && points.iter().any(|&p| p < 35));
    assert!(draw("-n 4 --nodes 2", &picture).2 == points);
}

#[test]
fn what_cannot_be_is_refused_once_with_what_to_do() {
    for (options, args, status, said) in [
        ("-n 3", "0x4", 2, "the height is 0, and must be 1 or more"),
        ("-n 3", "16777217x16777217", 2, "more than 2^48 points"),
        (
            "-n 3",
            "-e hot",
            2,
            "invalid value 'hot' for '--tolerance <EPSILON>'",
        ),
        (
            "-n 3",
            "4x4 --mode 5x1",
            2,
            "--mode 5x1: a plate of 4x4 points has at most as many half waves",
        ),
        (
            "-n 5 --nodes 2",
            "2x2",
            1,
            "has 4 points, fewer than the 5 PEs: use a larger one, or at most 4 PEs",
        ),
        (
            "-n 4 --nodes 2",
            "10000000x10000000",
            1,
            "on a node with 2 PEs, which has",
        ),
        (
            "-n 3",
            "-p /nowhere/a.png",
            1,
            "--picture /nowhere/a.png: cannot be written: No such file",
        ),
        (
            "-n 3",
            "-p /dev/full",
            1,
            "--picture /dev/full: cannot be written: No space left",
        ),
        ("-n 4", "2x100000", 1, "set SHMEM_SYMMETRIC_SIZE=2M or more"),
    ] {
        let job = heat(options, args).env("SHMEM_SYMMETRIC_SIZE", "128K");
        let outcome = job.run();
        assert_eq!(outcome.code(), status, "{args}: {}", outcome.stderr);
        assert_eq!(
            outcome.stderr.matches(said).count(),
            1,
            "{args}: {}",
            outcome.stderr
        );
    }
    // What was told suffices.
    heat("-n 4", "2x100000 -s 2")
        .env("SHMEM_SYMMETRIC_SIZE", "2M")
        .succeed();
    let help = heat("-n 3", "--help").succeed();
    assert_eq!(help.matches("Usage: heat2d").count(), 1, "{help}");
}
