//! A picture of lines, boxes and words as SVG.
//!
//! Written by hand because of one thing that libraries for plots do not do: colours by class, so that one file is
//! readable on light and on dark pages (`prefers-color-scheme`). The words are kept as boxes, too, so that a test can
//! tell whether any overlap.

use std::fmt::Write as _;

/// A picture under construction.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    shapes: String,
    words: Vec<Words>,
}

/// Where words begin, are centred, or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// They begin there.
    Start,
    /// Their middle is there.
    Middle,
    /// They end there.
    End,
}

/// Words and where they stand.
#[derive(Debug, Clone, PartialEq)]
struct Words {
    x: f64,
    baseline: f64,
    size: f64,
    anchor: Anchor,
    text: String,
}

/// Size of most words.
pub const SIZE: f64 = 12.0;

/// Colours of series, on light and on dark ground. Beside colour, marks and order tell them apart.
const COLOURS: [(&str, &str); 8] = [
    ("#1f66c7", "#6ea8fe"),
    ("#c8600a", "#f5a35c"),
    ("#24804f", "#62c28e"),
    ("#7d4fd1", "#b998f5"),
    ("#bd2c48", "#f07b8c"),
    ("#0b7f8b", "#56c7d1"),
    ("#7f6430", "#cdac6d"),
    ("#616a78", "#a3abb8"),
];

/// About how wide a text is. Of a usual font no text is wider.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.6
}

#[cfg(test)]
impl Words {
    /// Left, top, right, bottom.
    fn bounds(&self) -> [f64; 4] {
        let width = width(&self.text, self.size);
        let left = match self.anchor {
            Anchor::Start => self.x,
            Anchor::Middle => self.x - width / 2.0,
            Anchor::End => self.x - width,
        };
        [
            left,
            self.baseline - self.size * 0.8,
            left + width,
            self.baseline + self.size * 0.25,
        ]
    }
}

impl Picture {
    /// Adds words of a size.
    pub fn words(&mut self, x: f64, baseline: f64, size: f64, anchor: Anchor, text: &str) {
        self.words.push(Words {
            x,
            baseline,
            size,
            anchor,
            text: text.to_owned(),
        });
    }

    /// Adds a line of a class.
    pub fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let _ = writeln!(
            self.shapes,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    /// Adds a line through points in the colour of a series.
    pub fn through(&mut self, series: usize, points: &[[f64; 2]]) {
        let points: Vec<String> = points
            .iter()
            .map(|[x, y]| format!("{x:.1},{y:.1}"))
            .collect();
        let class = series % COLOURS.len();
        let _ = writeln!(
            self.shapes,
            r#"<polyline class="l{class}" points="{}"/>"#,
            points.join(" ")
        );
    }

    /// Adds a box in the colour of a series.
    pub fn filled(&mut self, series: usize, [x, y]: [f64; 2], [width, height]: [f64; 2]) {
        let class = series % COLOURS.len();
        let _ = writeln!(
            self.shapes,
            r#"<rect class="f{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
    }

    /// Adds the mark of a series.
    pub fn mark(&mut self, series: usize, [x, y]: [f64; 2]) {
        let class = series % COLOURS.len();
        let corners: &[[f64; 2]] = match series % 4 {
            0 => {
                let _ = writeln!(
                    self.shapes,
                    r#"<circle class="f{class}" cx="{x:.1}" cy="{y:.1}" r="4"/>"#
                );
                return;
            }
            1 => &[[-3.5, -3.5], [3.5, -3.5], [3.5, 3.5], [-3.5, 3.5]],
            2 => &[[0.0, -4.5], [4.5, 3.5], [-4.5, 3.5]],
            _ => &[[0.0, -5.0], [5.0, 0.0], [0.0, 5.0], [-5.0, 0.0]],
        };
        let points: Vec<String> = corners
            .iter()
            .map(|[a, b]| format!("{:.1},{:.1}", x + a, y + b))
            .collect();
        let _ = writeln!(
            self.shapes,
            r#"<polygon class="f{class}" points="{}"/>"#,
            points.join(" ")
        );
    }

    /// The whole file.
    pub fn finish(&self, title: &str, [width, height]: [f64; 2]) -> String {
        let mut light = String::from(
            ".paper{fill:#fff}text{fill:#1b1f24}.grid{stroke:#d8dce2}.axis{stroke:#57606a}.spread{stroke:#57606a}",
        );
        let mut dark = String::from(
            ".paper{fill:#14181d}text{fill:#e6e9ed}.grid{stroke:#343b45}.axis{stroke:#99a2ae}.spread{stroke:#b4bcc7}",
        );
        for (class, (on_light, on_dark)) in COLOURS.iter().enumerate() {
            for (style, colour) in [(&mut light, on_light), (&mut dark, on_dark)] {
                let _ = write!(
                    style,
                    ".f{class}{{fill:{colour}}}.l{class}{{stroke:{colour}}}"
                );
            }
        }
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
             <title>{}</title>\n\
             <style>line,polyline{{fill:none;stroke-width:1}}polyline{{stroke-width:2}}{light}\n\
             @media (prefers-color-scheme: dark){{{dark}}}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{}",
            escaped(title),
            self.shapes,
        );
        for words in &self.words {
            let anchor = match words.anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                words.x,
                words.baseline,
                words.size,
                escaped(&words.text)
            );
        }
        out + "</svg>\n"
    }

    /// Words that overlap others, or leave a picture of this size.
    #[cfg(test)]
    pub fn faults(&self, [width, height]: [f64; 2]) -> Vec<String> {
        let mut faults = Vec::new();
        for (i, words) in self.words.iter().enumerate() {
            let [left, top, right, bottom] = words.bounds();
            if left < 0.0 || top < 0.0 || right > width || bottom > height {
                faults.push(format!("outside: {words:?}"));
            }
            for other in &self.words[..i] {
                let [l, t, r, b] = other.bounds();
                if left < r && l < right && top < b && t < bottom {
                    faults.push(format!("{words:?} over {other:?}"));
                }
            }
        }
        faults
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whether every element is closed in order, and every attribute quoted.
    pub(crate) fn is_well_formed(svg: &str) -> Result<(), String> {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = svg;
        while let Some((text, after)) = rest.split_once('<') {
            if text.contains('>') && open.last() != Some(&"style") {
                return Err(format!("a bare > in {text:?}"));
            }
            let (tag, after) = after.split_once('>').ok_or("an unfinished tag")?;
            rest = after;
            let bare = tag.trim_end_matches('/');
            let name = bare.split_whitespace().next().unwrap_or_default();
            if let Some(closed) = name.strip_prefix('/') {
                if open.pop() != Some(closed) {
                    return Err(format!("</{closed}> closes nothing"));
                }
                continue;
            }
            if bare.matches('"').count() % 2 != 0 {
                return Err(format!("an odd quote in <{tag}>"));
            }
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        match (open.is_empty(), rest.trim().is_empty()) {
            (true, true) => Ok(()),
            _ => Err(format!("left open: {open:?}, {rest:?}")),
        }
    }

    #[test]
    fn pictures_are_well_formed_and_have_both_grounds() {
        let mut picture = Picture::default();
        picture.words(10.0, 20.0, SIZE, Anchor::Start, "a < b & c > d");
        picture.line("grid", [0.0, 0.0], [5.0, 5.0]);
        picture.through(0, &[[1.0, 2.0], [3.0, 4.0]]);
        for series in 0..9 {
            picture.mark(series, [10.0, 10.0]);
            picture.filled(series, [0.0, 0.0], [1.0, 1.0]);
        }
        let svg = picture.finish("t", [100.0, 50.0]);
        assert_eq!(is_well_formed(&svg), Ok(()));
        assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
        assert!(svg.contains("a &lt; b &amp; c &gt; d"), "{svg}");
        assert!(!svg.contains("class=\"f8\""), "there are eight colours");
    }

    #[test]
    fn what_is_no_svg_is_told() {
        for bad in ["<a><b></a>", "<a", "<a x=\"1>", "<a></a>x", "<a>"] {
            assert!(is_well_formed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_that_overlap_or_leave_are_told() {
        let mut picture = Picture::default();
        picture.words(50.0, 20.0, SIZE, Anchor::Middle, "one");
        picture.words(50.0, 40.0, SIZE, Anchor::Middle, "two");
        assert_eq!(picture.faults([100.0, 50.0]), [""; 0]);
        picture.words(55.0, 44.0, SIZE, Anchor::Start, "three");
        picture.words(99.0, 10.0, SIZE, Anchor::Start, "four");
        assert_eq!(picture.faults([100.0, 50.0]).len(), 2);
    }
}
