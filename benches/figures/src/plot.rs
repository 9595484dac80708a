//! A chart as a picture: where its axes, marks and words go.

use super::axis::Axis;
use super::chart::{Chart, Kind};
use super::svg::{Anchor, Picture, SIZE, width};
use shmem_benches::stats::Spread;

const WIDTH: f64 = 760.0;
const MARGIN: f64 = 16.0;
/// Between two lines of words.
const LINE: f64 = 18.0;
/// Height of the area of lines.
const AREA: f64 = 300.0;
/// Height of a bar.
const BAR: f64 = 13.0;
/// Room for the values behind bars.
const BEHIND: f64 = 90.0;

/// The chart as SVG.
pub fn svg(chart: &Chart) -> String {
    let (picture, size) = drawn(chart);
    picture.finish(&chart.title, size)
}

/// The picture, and how large it is.
fn drawn(chart: &Chart) -> (Picture, [f64; 2]) {
    let mut picture = Picture::default();
    let mut y = MARGIN + 8.0;
    for line in wrapped(&chart.title, WIDTH - 2.0 * MARGIN, 15.0) {
        picture.words(MARGIN, y, 15.0, Anchor::Start, &line);
        y += 20.0;
    }
    y = legend(&mut picture, chart, y + 2.0);
    let end = match chart.kind {
        Kind::Lines => lines(&mut picture, chart, y),
        Kind::Bars | Kind::Stacks => bars(&mut picture, chart, y),
    };
    (picture, [WIDTH, end + MARGIN])
}

/// Words in lines that are not too wide.
fn wrapped(text: &str, most: f64, size: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && width(&format!("{line} {word}"), size) > most {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// Words that are not too wide: the end of those that are is left out.
fn shortened(text: &str, most: f64) -> String {
    if width(text, SIZE) <= most {
        return text.to_owned();
    }
    let keep = (most / width("x", SIZE)) as usize;
    text.chars()
        .take(keep.saturating_sub(1))
        .collect::<String>()
        + "…"
}

/// The names of the series, in rows. Returns where what follows begins.
fn legend(picture: &mut Picture, chart: &Chart, top: f64) -> f64 {
    let (mut x, mut y) = (MARGIN, top);
    for (i, series) in chart.series.iter().enumerate() {
        let name = shortened(&series.name, WIDTH - 2.0 * MARGIN - 20.0);
        let wide = width(&name, SIZE) + 38.0;
        if x > MARGIN && x + wide > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + LINE);
        }
        match chart.kind {
            Kind::Lines => picture.mark(i, [x + 6.0, y - 4.0]),
            _ => picture.filled(i, [x + 1.0, y - 9.0], [10.0, 10.0]),
        }
        picture.words(x + 18.0, y, SIZE, Anchor::Start, &name);
        x += wide;
    }
    y + LINE
}

fn lines(picture: &mut Picture, chart: &Chart, top: f64) -> f64 {
    let numbers: Vec<f64> = (0..chart.at.len()).map(|at| chart.number(at)).collect();
    let across = Axis::powers(&numbers);
    let values = chart.series.iter().flat_map(|s| s.values.iter().flatten());
    let up = Axis::over(values.flat_map(|v| [v.low, v.median, v.high]), true);
    let ticks: Vec<(f64, String)> = up
        .ticks(6)
        .iter()
        .map(|&v| (v, chart.unit.show(v)))
        .collect();
    let widest = ticks
        .iter()
        .map(|(_, text)| width(text, SIZE))
        .fold(0.0, f64::max);
    let (left, right) = (MARGIN + widest + 8.0, WIDTH - MARGIN - 24.0);
    let bottom = top + AREA;
    let x = |at: usize| left + 12.0 + (right - left - 24.0) * across.place(numbers[at]);
    let y = |value: f64| bottom - AREA * up.place(value);

    for (value, text) in &ticks {
        picture.line("grid", [left, y(*value)], [right, y(*value)]);
        picture.words(left - 8.0, y(*value) + 4.0, SIZE, Anchor::End, text);
    }
    picture.line("axis", [left, bottom], [right, bottom]);
    let mut free = f64::NEG_INFINITY;
    for at in 0..numbers.len() {
        let text = chart.place(at);
        let half = width(&text, SIZE) / 2.0;
        picture.line("axis", [x(at), bottom], [x(at), bottom + 4.0]);
        // What would run into its neighbour is left out; the table has it.
        if x(at) - half > free + 4.0 {
            picture.words(x(at), bottom + 17.0, SIZE, Anchor::Middle, &text);
            free = x(at) + half;
        }
    }
    picture.words(
        f64::midpoint(left, right),
        bottom + 36.0,
        SIZE,
        Anchor::Middle,
        chart.places,
    );

    for (i, series) in chart.series.iter().enumerate() {
        let there = || (0..numbers.len()).filter_map(|at| Some((at, series.values[at]?)));
        for (at, value) in there() {
            picture.line("spread", [x(at), y(value.low)], [x(at), y(value.high)]);
        }
        let points: Vec<[f64; 2]> = there().map(|(at, v)| [x(at), y(v.median)]).collect();
        picture.through(i, &points);
        for point in points {
            picture.mark(i, point);
        }
    }
    bottom + 40.0
}

/// Where values lie along bars.
struct Along<'a> {
    chart: &'a Chart,
    axis: Axis,
    left: f64,
    right: f64,
}

impl Along<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * self.axis.place(value)
    }

    /// One value on another; the sum stands behind.
    fn stack(&self, picture: &mut Picture, y: f64, values: &[(usize, Spread)]) {
        let mut so_far = 0.0;
        for &(i, value) in values {
            let (from, to) = (self.x(so_far), self.x(so_far + value.median));
            picture.filled(i, [from, y], [to - from, BAR]);
            so_far += value.median;
        }
        self.behind(picture, [self.x(so_far), y], so_far);
    }

    fn bar(&self, picture: &mut Picture, y: f64, (i, value): (usize, Spread)) {
        // Where it is too small to be seen it is there all the same.
        let long = (self.x(value.median) - self.left).max(1.0);
        picture.filled(i, [self.left, y], [long, BAR]);
        let middle = y + BAR / 2.0;
        let (low, high) = (self.x(value.low), self.x(value.high));
        picture.line("spread", [low, middle], [high, middle]);
        let end = self.x(value.median.max(value.high)).max(self.left + 1.0);
        self.behind(picture, [end, y], value.median);
    }

    fn behind(&self, picture: &mut Picture, [end, y]: [f64; 2], value: f64) {
        let text = self.chart.unit.show(value);
        picture.words(end + 8.0, y + BAR - 2.0, SIZE, Anchor::Start, &text);
    }
}

fn bars(picture: &mut Picture, chart: &Chart, top: f64) -> f64 {
    let stacked = chart.kind == Kind::Stacks;
    let total = |at: usize| -> f64 {
        let all = chart.series.iter().filter_map(|s| s.values[at]);
        all.map(|v| v.median).sum()
    };
    let axis = match stacked {
        true => Axis::over((0..chart.at.len()).map(total), false),
        false => {
            let values = chart.series.iter().flat_map(|s| s.values.iter().flatten());
            Axis::over(values.flat_map(|v| [v.median, v.high]), true)
        }
    };
    let places: Vec<String> = (0..chart.at.len())
        .map(|at| shortened(&chart.place(at), WIDTH / 3.0))
        .collect();
    let widest = places.iter().map(|p| width(p, SIZE)).fold(0.0, f64::max);
    let (left, right) = (MARGIN + widest + 8.0, WIDTH - MARGIN - BEHIND);
    let along = Along {
        chart,
        axis,
        left,
        right,
    };

    let mut y = top;
    for (at, place) in places.iter().enumerate() {
        let all = chart.series.iter().enumerate();
        let values: Vec<_> = all.filter_map(|(i, s)| Some((i, s.values[at]?))).collect();
        let rows = if stacked { 1 } else { values.len().max(1) };
        let height = rows as f64 * (BAR + 2.0);
        picture.words(left - 8.0, y + height / 2.0 + 3.0, SIZE, Anchor::End, place);
        if stacked {
            along.stack(picture, y, &values);
        } else {
            for (row, &value) in values.iter().enumerate() {
                along.bar(picture, y + row as f64 * (BAR + 2.0), value);
            }
        }
        y += height + 9.0;
    }
    picture.line("axis", [left, top - 4.0], [left, y - 5.0]);
    if axis.is_logarithmic() {
        let text = "logarithmic: equal lengths are equal ratios";
        picture.words(left, y + 9.0, SIZE, Anchor::Start, text);
        y += 14.0;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::super::chart::tests::sample;
    use super::super::svg::tests::is_well_formed;
    use super::super::unit::Unit;
    use super::*;

    #[test]
    fn every_kind_is_a_picture_whose_words_do_not_overlap() {
        for kind in [Kind::Lines, Kind::Bars, Kind::Stacks] {
            let chart = sample(kind);
            let (picture, size) = drawn(&chart);
            assert_eq!(picture.faults(size), [""; 0], "{kind:?}");
            assert_eq!(is_well_formed(&svg(&chart)), Ok(()), "{kind:?}");
        }
    }

    /// Many places, long names, values that are far apart, nothing at all.
    #[test]
    fn words_do_not_overlap_whatever_there_is_to_draw() {
        for kind in [Kind::Lines, Kind::Bars, Kind::Stacks] {
            for unit in [Unit::Seconds, Unit::Bytes, Unit::Count, Unit::Part] {
                for (places, step, factor) in [
                    (1, 2, 1.0),
                    (24, 1, 1.4),
                    (14, 2, 9.0),
                    (3, 64, 1e5),
                    (0, 1, 1.0),
                ] {
                    let mut chart = sample(kind);
                    chart.unit = unit;
                    chart.title =
                        "How many words can a title have before it does not fit ".repeat(3);
                    chart.at = (1..=places)
                        .map(|i| (1u64 << (i * step).min(50)).to_string())
                        .collect();
                    for i in 0..9usize {
                        let mut series = chart.series[i % 2].clone();
                        series.name = format!("series {i} {}", "with a long name ".repeat(i));
                        chart.series.push(series);
                    }
                    for (i, series) in chart.series.iter_mut().enumerate() {
                        let value =
                            |at: usize| 1e-7 * f64::powi(factor, at as i32) * (i + 1) as f64;
                        series.values = (0..places as usize)
                            .map(|at| Spread::of(&[value(at), 2.0 * value(at)]))
                            .collect();
                    }
                    let (picture, size) = drawn(&chart);
                    assert_eq!(picture.faults(size), [""; 0], "{kind:?} {unit:?} {places}");
                    assert_eq!(is_well_formed(&svg(&chart)), Ok(()));
                }
            }
        }
    }
}
