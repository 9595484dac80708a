//! A picture of the plate, which no PE ever has as a whole: PE 0 writes it band by band while the next band comes.
//!
//! A point is a byte, a colour's number in the palette, made by the PE that has the point.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use shmem::{SymSlice, World};

use crate::blocks::Block;
use crate::field::Field;
use crate::options::Shape;

/// Bytes of a band, unless one row has more.
const BAND: usize = 1 << 20;

/// Colours from cold to hot, and how many of them there are.
const STOPS: [[u8; 3]; 6] = [
    [0, 0, 32],
    [40, 10, 110],
    [150, 20, 110],
    [230, 70, 40],
    [250, 180, 40],
    [255, 255, 220],
];
const COLOURS: usize = 256;

/// Rows of the plate on PE 0, twice: one is written while the other comes.
#[derive(Clone, Copy)]
pub(crate) struct Band {
    size: Shape,
    rows: usize,
    bytes: SymSlice<u8>,
}

impl Band {
    fn rows(size: Shape) -> usize {
        (BAND / size.cols).clamp(1, size.rows)
    }

    /// Elements of `bytes`.
    pub(crate) fn bytes(size: Shape) -> usize {
        2 * Self::rows(size) * size.cols
    }

    pub(crate) fn new(size: Shape, bytes: SymSlice<u8>) -> Self {
        Self {
            size,
            rows: Self::rows(size),
            bytes,
        }
    }

    /// Writes the picture of all blocks on PE 0, which has the file. Temperatures lie between the two bounds.
    /// Collective, also where PE 0 has an error: the others come to the end.
    pub(crate) fn write(
        &self,
        world: &World,
        part: Option<(&Block, &Field)>,
        bounds: [f64; 2],
        file: Option<File>,
    ) -> io::Result<()> {
        let held = if file.is_some() {
            self.rows * self.size.cols
        } else {
            0
        };
        let mut held = vec![0; held];
        let mut writer = file.map(|file| Writer::new(file, self.size));
        let mut failed = None;
        let mut line = Vec::new();
        for (number, first) in (0..self.size.rows).step_by(self.rows).enumerate() {
            let rows = first..self.size.rows.min(first + self.rows);
            let half = self.bytes.at(number % 2 * (self.bytes.len() / 2)..);
            if let Some((block, field)) = part {
                for row in rows.start.max(block.rows.start)..rows.end.min(block.rows.end) {
                    line.clear();
                    line.extend((1..=field.cols).map(|col| {
                        let value = field.at(row - block.rows.start + 1, col);
                        colour(value, bounds)
                    }));
                    let at = (row - first) * self.size.cols + block.cols.start;
                    shmem::put(half.at(at..), &line, 0);
                }
            }
            // Now the band is there. The one before was read, since PE 0 has come here: the next may be put in its place.
            world.barrier();
            if let Some(Ok(writer)) = &mut writer {
                let band = &mut held[..rows.len() * self.size.cols];
                half.read_to(band);
                failed = failed.or(writer.0.write_all(band).err());
            }
        }
        match (writer, failed) {
            (None, _) => Ok(()),
            (_, Some(error)) => Err(error),
            (Some(writer), None) => writer?.finish(),
        }
    }
}

/// Opens the file of a picture. What it holds stays until a picture is written.
pub(crate) fn open(path: &Path) -> Result<File, String> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| format!("--picture {}: cannot be written: {error}", path.display()))
}

/// Takes the colours of one row after the other, and writes to the file what they make when it is a few dozen KiB.
struct Writer(png::StreamWriter<'static, File>);

impl Writer {
    fn new(file: File, size: Shape) -> io::Result<Self> {
        // A pipe or a terminal has no length.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        // The command line has no larger size.
        let [width, height] = [size.cols, size.rows].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let mut encoder = png::Encoder::new(file, width, height);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette());
        Ok(Self(encoder.write_header()?.into_stream_writer()?))
    }

    fn finish(self) -> io::Result<()> {
        Ok(self.0.finish()?)
    }
}

/// Red, green and blue of all colours.
fn palette() -> Vec<u8> {
    let of = |number: usize| {
        let place = number * (STOPS.len() - 1);
        let (stop, rest) = (place / (COLOURS - 1), place % (COLOURS - 1));
        let (from, to) = (STOPS[stop], STOPS[(stop + 1).min(STOPS.len() - 1)]);
        std::array::from_fn::<u8, 3, _>(|i| {
            let (from, to, whole) = (usize::from(from[i]), usize::from(to[i]), COLOURS - 1);
            ((from * (whole - rest) + to * rest) / whole) as u8
        })
    };
    (0..COLOURS).flat_map(of).collect()
}

/// The number of a temperature's colour.
fn colour(value: f64, [low, high]: [f64; 2]) -> u8 {
    // A conversion to an integer ends at its bounds.
    ((value - low) / (high - low) * (COLOURS - 1) as f64).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hotter_is_lighter() {
        let palette = palette();
        assert_eq!(palette.len(), 3 * COLOURS);
        let light: Vec<u32> = palette
            .chunks(3)
            .map(|c| 299 * u32::from(c[0]) + 587 * u32::from(c[1]) + 114 * u32::from(c[2]))
            .collect();
        assert!(
            light.windows(2).all(|pair| pair[0] <= pair[1] + 1000),
            "{light:?}"
        );
        assert_eq!(
            (&palette[..3], &palette[3 * COLOURS - 3..]),
            (&STOPS[0][..], &STOPS[5][..])
        );
    }

    #[test]
    fn colours_span_the_bounds() {
        let bounds = [-550.0, 550.0];
        let of = |value| colour(value, bounds);
        assert_eq!([of(-550.0), of(0.0), of(550.0)], [0, 128, 255]);
        assert_eq!([of(-600.0), of(1e9), of(f64::NAN)], [0, 255, 0]);
    }

    #[test]
    fn bands_are_small_and_hold_a_row() {
        for (rows, cols, want) in [(10, 10, 10), (5000, 2048, 512), (3, 1 << 30, 1)] {
            assert_eq!(Band::rows(Shape { rows, cols }), want);
        }
    }
}
