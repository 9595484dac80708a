//! What jobs record of their calls, as the page and the timeline tell it.

use std::collections::HashMap;
use std::path::PathBuf;

use tinyjson::JsonValue;

use crate::programs::{HELLO, SEEN, shmrun};

/// A directory for one test, removed with all that is in it.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("shmem-job-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The numbers of a page.
struct Page(JsonValue);

impl Page {
    fn read(file: &str) -> Self {
        let page = std::fs::read_to_string(file).expect("the page");
        let (_, data) = page
            .split_once("<script type=\"application/json\" id=\"job\">")
            .expect("its data");
        let (data, _) = data.split_once("</script>").expect("the end of it");
        Self(data.parse().expect("JSON"))
    }

    /// What lies behind names with dots between them.
    fn at(&self, path: &str) -> &JsonValue {
        path.split('.').fold(&self.0, |at, name| &at[name])
    }

    fn number(&self, path: &str) -> f64 {
        *self.at(path).get().expect("a number")
    }

    fn list(&self, path: &str) -> &Vec<JsonValue> {
        self.at(path).get().expect("a list")
    }

    /// Calls and bytes of each routine.
    fn routines(&self) -> HashMap<&str, (f64, f64)> {
        let rows = self.list("routines").iter();
        rows.map(|row| {
            let text: &String = row["name"].get().expect("a name");
            let number = |of: &str| *row[of].get().expect("a number");
            (text.as_str(), (number("calls"), number("bytes")))
        })
        .collect()
    }

    fn advice(&self) -> String {
        let lines = self.list("advice").iter();
        let texts = lines.map(|line| line.get::<String>().expect("a text").as_str());
        texts.collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn calls_are_counted_exactly() {
    let dir = Dir::new("counts");
    let file = dir.file("job.html");
    for (options, connect) in [
        ("-n 1", "ondemand"),
        ("-n 4", "ondemand"),
        ("-n 6 --nodes 3", "ondemand"),
        ("-n 6 --nodes 3", "static"),
    ] {
        let options = format!("{options} --report {file}");
        shmrun(&options, &[SEEN])
            .env("SHMEM_CONNECT", connect)
            .succeed();
        let page = Page::read(&file);
        let n = page.number("head.pes");
        let routines = page.routines();
        for (name, calls, bytes) in [
            ("put_signal", n, 64.0 * n),
            ("get", n, 16.0 * n),
            ("atomic", n, 8.0 * n),
            ("barrier", 10.0 * n, 0.0),
            ("alloc", 3.0 * n, 0.0),
            ("finalize", n, 0.0),
            ("init: node barrier", n, 0.0),
        ] {
            assert_eq!(routines[name], (calls, bytes), "{name}, {options}");
        }
        assert!(
            !routines.contains_key("put"),
            "{options}: it was not to be seen"
        );
        assert!(!routines.contains_key("sync"), "{options}: nor this");
        assert!(routines["quiet"].0 >= n, "{options}");
        assert_eq!(page.number("head.operations"), 3.0 * n, "{options}");
        assert_eq!(page.number("head.lost"), 0.0, "{options}");
        let connects = routines.get("connect").map_or(0.0, |row| row.0);
        match (page.number("head.nodes"), connect) {
            (1.0, _) => assert_eq!(connects, 0.0, "{options}"),
            (_, "static") => assert_eq!(connects, 4.0 * n, "{options}: with all of other nodes"),
            // The next one of three PEs is on another node, and the one before of three; all talk with PE 0.
            _ => assert!(
                (2.0 * 3.0..4.0 * n).contains(&connects),
                "{options}: {connects}"
            ),
        }
    }
}

/// What a routine calls in turn is part of it.
#[test]
fn routines_that_are_made_of_others_have_their_own_names() {
    let dir = Dir::new("composed");
    let file = dir.file("job.html");
    let options = format!("-n 4 --nodes 2 --report {file}");
    shmrun(&options, &[SEEN, "composed"]).succeed();
    let page = Page::read(&file);
    let routines = page.routines();
    for (name, calls) in [
        ("all_gather", 4.0),
        ("all_gather_parts", 4.0),
        ("alltoallv", 4.0),
        ("set_lock", 4.0),
        ("test_lock", 1.0),
        ("clear_lock", 5.0),
        ("alloc", 4.0 * 4.0),
        ("atomic", 4.0),
        ("barrier", 11.0 * 4.0),
    ] {
        assert_eq!(routines[name].0, calls, "{name}: {routines:?}");
    }
    for part in [
        "fcollect",
        "collect",
        "alltoall",
        "sync",
        "put_nbi",
        "atomic, fetching",
    ] {
        assert!(!routines.contains_key(part), "{part}: {routines:?}");
    }
}

#[test]
fn the_one_that_is_waited_for_is_named() {
    let dir = Dir::new("slow");
    let file = dir.file("job.html");
    for layout in ["-n 4", "-n 4 --nodes 2"] {
        shmrun(&format!("{layout} --report {file}"), &[SEEN, "slow"]).succeed();
        let page = Page::read(&file);
        let worst = &page.list("stragglers.worst")[0];
        let number = |of: &str| *worst[of].get::<f64>().expect("a number");
        assert_eq!(number("pe"), 3.0, "{layout}");
        // All ten, but for those to which another came later still, from a machine that had no processor for it.
        assert!(number("last") >= 7.0, "{layout}: {}", number("last"));
        // Three PEs, ten meetings, forty milliseconds each, but for what they come late themselves.
        assert!(number("cost") > 600e6, "{layout}: {} ns", number("cost"));
        assert!(page.advice().contains("PE 3 was that"), "{}", page.advice());
        // PE 1 waits for PE 0, which sleeps before it sends.
        let by_zero = page.list("waits").iter().any(|wait| {
            let number = |of: &str| wait[of].get::<f64>().copied();
            number("pe") == Some(1.0) && number("by") == Some(0.0)
        });
        assert!(by_zero, "{layout}: {:?}", page.at("waits"));
    }
}

/// Whichever of several words was written.
#[test]
fn who_ends_a_wait_for_any_word_is_named() {
    let dir = Dir::new("any");
    let file = dir.file("job.html");
    for layout in ["-n 2", "-n 2 --nodes 2"] {
        shmrun(&format!("{layout} --report {file}"), &[SEEN, "any"]).succeed();
        let page = Page::read(&file);
        let ended = page.list("waits").iter().any(|wait| {
            let number = |of: &str| wait[of].get::<f64>().copied();
            let is_any = format!("{wait:?}").contains("wait_until_any");
            is_any && number("pe") == Some(1.0) && number("by") == Some(0.0)
        });
        assert!(ended, "{layout}: {:?}", page.at("waits"));
    }
}

#[test]
fn active_sets_have_collectives_too() {
    let dir = Dir::new("set");
    let file = dir.file("job.html");
    for layout in ["-n 4", "-n 4 --nodes 2"] {
        shmrun(&format!("{layout} --report {file}"), &[SEEN, "set"]).succeed();
        let page = Page::read(&file);
        let routines = page.routines();
        assert_eq!(routines["broadcast"].0, 15.0, "{layout}");
        assert_eq!(routines["barrier"].0, 40.0 + 15.0, "{layout}");
        // The broadcasts' root comes late to all five of them.
        let worst = &page.list("stragglers.worst")[0];
        let number = |of: &str| *worst[of].get::<f64>().expect("a number");
        assert_eq!(number("pe"), 3.0, "{layout}");
        assert!(number("cost") > 300e6, "{layout}: {} ns", number("cost"));
    }
}

#[test]
fn what_a_killed_pe_recorded_is_there() {
    let dir = Dir::new("killed");
    let file = dir.file("job.html");
    let options = format!("-n 3 --nodes 3 --report {file}");
    let outcome = shmrun(&options, &[SEEN, "killed"]).run();
    assert_eq!(outcome.status.code(), Some(137), "{}", outcome.stderr);
    let page = Page::read(&file);
    assert_eq!(page.number("head.status"), 137.0);
    assert_eq!(page.number("head.recorded"), 3.0);
    assert_eq!(page.routines()["put_signal"], (3.0, 192.0));
}

#[test]
fn calls_beyond_the_room_are_counted() {
    let dir = Dir::new("room");
    let file = dir.file("job.html");
    shmrun(&format!("-n 2 --trace-calls 5 --report {file}"), &[SEEN]).succeed();
    let page = Page::read(&file);
    assert_eq!(page.routines()["barrier"].0, 20.0);
    assert!(
        page.number("head.lost") > 20.0,
        "{}",
        page.number("head.lost")
    );
    assert!(page.advice().contains("--trace-calls"), "{}", page.advice());
}

#[test]
fn a_timeline_is_written_where_it_was_asked_for() {
    let dir = Dir::new("timeline");
    let file = dir.file("job.pftrace");
    shmrun(&format!("-n 4 --nodes 2 --trace {file}"), &[SEEN]).succeed();
    let trace = std::fs::read(&file).expect("the timeline");
    // A packet of the trace; names are in it as they are.
    assert_eq!(trace[0], 0x0a);
    let text = String::from_utf8_lossy(&trace);
    for name in ["PE 3 on node 1", "put_signal", "wait_until", "barrier"] {
        assert!(text.contains(name), "{name}");
    }
    let nowhere = dir.file("no/such/file");
    let outcome = shmrun(&format!("-n 1 --trace {nowhere}"), &[HELLO]).run();
    let said = outcome.stderr;
    assert!(!outcome.status.success());
    assert!(
        said.contains("the trace is lost") && said.contains(&nowhere),
        "{said}"
    );
}

#[test]
fn programs_that_are_none_of_ours_have_pages_too() {
    let dir = Dir::new("foreign");
    let file = dir.file("job.html");
    shmrun(&format!("-n 2 --report {file}"), &["/bin/true"]).succeed();
    let page = Page::read(&file);
    assert_eq!(
        (page.number("head.pes"), page.number("head.recorded")),
        (2.0, 0.0)
    );
}
