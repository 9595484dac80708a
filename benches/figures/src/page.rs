//! Pages about figures: what a work says beside what was measured, the charts, how and where it was measured. And one
//! page about all figures there are.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use shmem_testkit::samples::about;

use super::chart::cell;
use super::sitting::Sitting;
use super::{FIGURES, Figure, Shown, plot, works};

/// What is different from the works in all figures.
const DIFFERS: &str = "Where it is not of virtual time, nodes are emulated on one machine, whose cores all PEs, launch agents and nodes \
    share; the network is the software HCA over the loopback device, and not InfiniBand.";

/// Writes the pictures of a figure and its page.
///
/// # Errors
/// If that fails.
pub fn write(figure: &Figure, sitting: &Sitting<'_>, shown: &Shown, out: &Path) -> io::Result<()> {
    for chart in shown.charts.iter().filter(|c| !c.is_empty()) {
        fs::write(out.join(picture(figure, chart.name)), plot::svg(chart))?;
    }
    let how = How {
        quick: sitting.options.quick,
        rounds: sitting.rounds,
        notes: &sitting.notes,
    };
    fs::write(
        out.join(format!("{}.md", figure.name)),
        page(figure, &how, shown, &about()),
    )?;
    fs::write(out.join("README.md"), overview(out))
}

fn picture(figure: &Figure, chart: &str) -> String {
    format!("{}-{chart}.svg", figure.name)
}

struct How<'a> {
    quick: bool,
    rounds: usize,
    notes: &'a [String],
}

fn page(figure: &Figure, how: &How<'_>, shown: &Shown, about: &str) -> String {
    let mut out = format!("# {}\n\n", figure.title);
    if how.quick {
        out.push_str(
            "**A quick run**: small sizes, few rounds. It shows that it works, and no more.\n\n",
        );
    }
    for (work, which) in figure.of {
        let _ = writeln!(out, "* {which} of *{}* ({})", work.title, work.by);
    }
    let quick = if how.quick { " --quick" } else { "" };
    let _ = writeln!(
        out,
        "{}`cargo xtask figures {}{quick}`: medians of rounds in which all take their turn ({} at most), and in \
         brackets quartiles. [Samples]({}.jsonl).\n\n{DIFFERS}\n",
        if figure.of.is_empty() { "" } else { "\n" },
        figure.name,
        how.rounds,
        figure.name
    );
    if !shown.claims.is_empty() {
        out.push_str("| | the paper | here | what differs |\n|---|---|---|---|\n");
        for claim in &shown.claims {
            let cells =
                [&claim.place, &claim.paper, &claim.ours, &claim.differs].map(|text| cell(text));
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        out.push('\n');
    }
    for chart in shown.charts.iter().filter(|c| !c.is_empty()) {
        let file = picture(figure, chart.name);
        let _ = writeln!(
            out,
            "## {}\n\n![{}]({file})\n\n{}",
            chart.title,
            chart.title,
            chart.table()
        );
    }
    if !how.notes.is_empty() {
        out.push_str("## Left out\n\n");
        for note in how.notes {
            let _ = writeln!(out, "* {note}");
        }
        out.push('\n');
    }
    out.push_str("## Measured on\n\n| | |\n|---|---|\n");
    for (name, value) in about.lines().filter_map(|line| line.split_once(": ")) {
        let _ = writeln!(out, "| {} | {} |", cell(name), cell(value));
    }
    out
}

/// The page about all figures, with links to the pages that are in `dir`.
pub fn overview(dir: &Path) -> String {
    let mut out = String::from(OVERVIEW);
    out.push_str("\n## Figures\n\n| figure | what | repeats | `--vs` |\n|---|---|---|---|\n");
    for figure in FIGURES {
        let name = match dir.join(format!("{}.md", figure.name)).exists() {
            true => format!("[`{0}`]({0}.md)", figure.name),
            false => format!("`{}`", figure.name),
        };
        let of: Vec<String> = figure
            .of
            .iter()
            .map(|(work, which)| format!("{which} of [{}]", works::number(work)))
            .collect();
        let of = if of.is_empty() {
            "–".to_owned()
        } else {
            of.join("; ")
        };
        let rivals = figure.rivals.unwrap_or("–");
        let _ = writeln!(
            out,
            "| {name} | {} | {of} | {} |",
            figure.title,
            cell(rivals)
        );
    }
    out.push('\n');
    for work in works::WORKS {
        let _ = writeln!(
            out,
            "{}. *{}*. {}.",
            works::number(work),
            work.title,
            work.by
        );
    }
    out.push_str(
        "\n## Not measured\n\nNo figure stands in for these:\n\n| work | what | why not |\n|---|---|---|\n",
    );
    for (work, what, why) in works::NOT_MEASURED {
        let _ = writeln!(out, "| {} | {what} | {why} |", works::number(work));
    }
    out
}

const OVERVIEW: &str = include_str!("overview.md");

#[cfg(test)]
mod tests {
    use super::super::chart::Kind;
    use super::super::chart::tests::sample;
    use super::super::{Claim, Figure};
    use super::*;

    fn how(quick: bool, notes: &[String]) -> String {
        let figure: &Figure = &FIGURES[0];
        let shown = Shown {
            charts: vec![sample(Kind::Lines)],
            claims: vec![Claim::new("Fig. 1", "30 times", None, "a | b")],
        };
        let how = How {
            quick,
            rounds: 3,
            notes,
        };
        page(figure, &how, &shown, "commit: abc\nload: 1\n")
    }

    #[test]
    fn pages_have_what_the_work_says_and_where_it_was_measured() {
        let page = how(false, &[]);
        for part in [
            "| Fig. 1 | 30 times | – | a \\| b |",
            "](init-sample.svg)",
            "| 32 | 80 ms",
            "| commit | abc |",
            "[Samples](init.jsonl)",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(
            !page.contains("quick") && !page.contains("Left out"),
            "{page}"
        );
        let page = how(true, &["`x` is left out".into()]);
        assert!(
            page.contains("**A quick run**") && page.contains("\n* `x` is left out\n"),
            "{page}"
        );
    }

    #[test]
    fn the_page_of_the_repository_is_current() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        shmem_testkit::generated::is_current(dir.join("README.md"), &overview(&dir));
    }
}
