//! The page of a job: one file that needs nothing else, neither a network nor a server.
//!
//! It holds the [analysis](super::analysis) as JSON, for programs (`<script type="application/json" id="job">`), and
//! scripts that draw it. What is text in it becomes text of the page there, never markup.

use shmem_node::json::Json;

use super::Job;
use super::analysis::analyse;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 4] = [
    include_str!("page/elements.js"),
    include_str!("page/charts.js"),
    include_str!("page/matrix.js"),
    include_str!("page/page.js"),
];

/// Renders the page.
#[must_use]
pub fn page(job: &Job<'_>) -> String {
    // Nothing in a JSON text but strings has this character, and there it may be written so. Then no
    // text ends the element that it is in.
    let data = Json::from(analyse(job)).compact().replace('<', "\\u003c");
    // The data come last, since they may hold any text.
    PAGE.replace("/* style */", STYLE)
        .replace("/* scripts */", &SCRIPTS.concat())
        .replace("\"data\"", &data)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{any_recordings, call, recording};
    use super::*;
    use crate::report::{Launcher, Reduced};
    use proptest::prelude::*;
    use shmem_node::recording::{Routine, Traffic};
    use tinyjson::JsonValue;

    /// The data of a page, as a browser finds them.
    fn data(page: &str) -> JsonValue {
        let (_, rest) = page.split_once("id=\"job\">").expect("data");
        let (json, _) = rest.split_once("</script>").expect("an end");
        json.parse().expect("JSON")
    }

    fn render(program: &str, recordings: &[shmem_node::recording::Recording]) -> String {
        let launcher = Launcher {
            program: program.into(),
            n_pes: recordings.len() as u32,
            ..Launcher::default()
        };
        page(&Job {
            launcher: &launcher,
            reduced: &Reduced::default(),
            recordings,
        })
    }

    #[test]
    fn no_text_ends_the_data() {
        let program = "</script><script>alert(1)</script><!-- \"data\" /* style */ \u{2028}\\";
        let page = render(program, &[]);
        let plain = render("", &[]);
        let scripts = |page: &str| page.matches("<script").count();
        assert_eq!(scripts(&page), scripts(&plain));
        let head = data(&page)["head"]["program"].clone();
        assert_eq!(head, JsonValue::String(program.into()));
        for loads in [" src=", " href=", "url(", "@import", "fetch(", "import("] {
            assert!(!plain.contains(loads), "the page loads something: {loads}");
        }
    }

    #[test]
    fn empty_and_odd_jobs_have_a_page() {
        for recordings in [
            vec![],
            vec![recording(0, 0, vec![])],
            vec![recording(
                u32::MAX,
                u32::MAX,
                vec![
                    call(Routine::Connect, 5, 3),
                    call(Routine::WaitUntil, 0, u64::MAX),
                ],
            )],
        ] {
            let page = render("x", &recordings);
            assert!(matches!(data(&page), JsonValue::Object(_)));
        }
    }

    /// A page of so many PEs is not larger than `most` bytes, even if each talked with each.
    fn stays_small(n: u32, most: usize) {
        let pes: Vec<_> = (0..n)
            .map(|pe| {
                let mut of = recording(pe, pe / 8, vec![call(Routine::Barrier, 5, 1_000_000_000)]);
                let traffic = |peer| Traffic {
                    pe: peer,
                    operations: 12_345,
                    bytes: 1_234_567_890,
                    connections: 1,
                };
                of.traffic = (0..n).map(traffic).collect();
                of
            })
            .collect();
        let page = render("x", &pes);
        assert!(page.len() < most, "{} bytes", page.len());
    }

    #[test]
    fn pages_of_hundreds_of_pes_stay_small() {
        stays_small(512, 2 << 20);
    }

    /// As many as a page shows one by one.
    #[test]
    #[ignore = "nightly: four million pairs of PEs"]
    fn pages_of_thousands_of_pes_stay_small() {
        stays_small(2048, 2 << 20);
    }

    proptest! {
        #[test]
        fn any_recordings_have_a_page(recordings in any_recordings(), start: u64, exited: u64, n_pes: u32) {
            let mut reduced = Reduced::default();
            recordings.iter().for_each(|of| reduced.add_pe(&of.stats));
            let launcher = Launcher { start, exited, n_pes, ..Launcher::default() };
            let page = page(&Job { launcher: &launcher, reduced: &reduced, recordings: &recordings });
            prop_assert!(matches!(data(&page), JsonValue::Object(_)));
        }
    }
}
