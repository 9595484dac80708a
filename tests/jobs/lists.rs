//! Lists that are kept by hand have everything, and pages name nothing that has gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use xtask::build::workspace;

fn read(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Names in a folder, sorted.
fn entries(folder: &str) -> BTreeSet<String> {
    fs::read_dir(workspace().join(folder))
        .unwrap_or_else(|e| panic!("{folder}: {e}"))
        .map(|entry| entry.expect("a name").file_name())
        .map(|name| name.into_string().expect("a name in UTF-8"))
        .collect()
}

/// What stands in `text` between `before` and the next `after`, everywhere.
fn between<'a>(text: &'a str, before: &'a str, after: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = text.split(before).skip(1);
    parts.filter_map(move |part| Some(part.split_once(after)?.0))
}

/// All files below a folder whose name ends in `ending`, with their text.
fn sources(folder: &Path, ending: &str, out: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a name").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() && name != "target" && name != ".git" {
            sources(&path, ending, out);
        } else if name.ends_with(ending) && path.is_file() {
            let text = fs::read_to_string(&path).expect("text");
            out.push((path.display().to_string(), text));
        }
    }
}

#[test]
fn every_program_of_the_tests_is_built() {
    for tests in ["tests", "tests/apps"] {
        let manifest = read(&format!("{tests}/Cargo.toml"));
        let built: BTreeSet<_> = between(&manifest, "path = \"programs/", "\"")
            .map(|path| path.trim_end_matches("/main.rs").to_owned())
            .collect();
        assert_eq!(entries(&format!("{tests}/programs")), built);
    }
}

/// The page on tests has a row for each file of these, and for each script.
#[test]
fn the_page_on_tests_names_all() {
    let page = read("docs/testing.md");
    let no_tests = ["main.rs", "programs.rs", "lists.rs"];
    for name in entries("tests/jobs")
        .into_iter()
        .chain(entries("tests/apps/jobs"))
    {
        let named = page.contains(&format!("jobs/{name}")) || page.contains(&format!("`{name}`"));
        assert!(named || no_tests.contains(&&name[..]), "no {name}");
    }
    for name in entries("ci").iter().filter(|name| name.ends_with(".sh")) {
        let named = page.contains(&format!("ci/{name}"));
        assert!(
            named || name == "common.sh" || name == "machine.sh",
            "no {name}"
        );
    }
}

/// A path in backquotes or in a link is there, if it begins at the root of the repository.
#[test]
fn pages_name_nothing_that_has_gone() {
    let top = entries(".");
    let mut pages = Vec::new();
    sources(workspace(), ".md", &mut pages);
    // What has changed may have gone since.
    pages.retain(|(page, _)| !page.ends_with("CHANGELOG.md"));
    let (mut gone, mut seen) = (Vec::new(), 0);
    for (page, text) in &pages {
        // Of the parts between backquotes every other one is quoted, also where three open or close a block.
        let quoted = text.split('`').skip(1).step_by(2);
        let folder = Path::new(page).parent().expect("a folder");
        for link in between(text, "](", ")") {
            let path = link.split('#').next().unwrap_or_default();
            let here = !path.is_empty() && !path.contains("://");
            seen += usize::from(here);
            gone.extend((here && !folder.join(path).exists()).then(|| format!("{page}: {link}")));
        }
        for path in quoted {
            let first = path.split('/').next().unwrap_or_default();
            let plain = !path.contains(['*', '{', ' ', '<', '$']);
            // What is built or found is not of the repository.
            let made = first == "target" || path.contains("artifacts") || path.contains("crashes");
            if plain && path.contains('/') && top.contains(first) && !made {
                seen += 1;
                let there = workspace().join(path).exists();
                gone.extend((!there).then(|| format!("{page}: {path}")));
            }
        }
    }
    assert!(gone.is_empty(), "{gone:#?}");
    assert!(seen > 100, "only {seen} paths in {} pages", pages.len());
}

/// Each dependency is named in the sources of its package. Others say in the manifest whose they are (`# of ...`), or that they
/// are there for the build alone.
#[test]
fn every_dependency_is_used() {
    let mut manifests = Vec::new();
    sources(workspace(), "Cargo.toml", &mut manifests);
    let (mut idle, mut seen) = (Vec::new(), 0);
    for (path, manifest) in &manifests {
        let folder = Path::new(path).parent().expect("a folder");
        let mut files = Vec::new();
        sources(folder, ".rs", &mut files);
        let named = |name: &str| {
            let of_word = |c: char| c.is_alphanumeric() || c == '_';
            let any = |text: &str| text.split(|c| !of_word(c)).any(|word| word == name);
            files.iter().any(|(_, text)| any(text))
        };
        let (mut in_section, mut comment) = (false, String::new());
        for line in manifest.lines() {
            if line.starts_with('[') {
                in_section = line.ends_with("dependencies]") && !line.starts_with("[workspace");
                continue;
            }
            if line.starts_with('#') {
                comment += line;
                continue;
            }
            let above = std::mem::take(&mut comment);
            let Some((name, _)) = line.split_once([' ', '.']).filter(|_| in_section) else {
                continue;
            };
            let for_build = [&above, line].iter().any(|text| text.contains("one way"));
            let elsewhere = line.contains("# of ");
            let crate_name = match name {
                "shmem-core" | "shmem-capi" => "shmem".to_owned(),
                name => name.replace('-', "_"),
            };
            seen += 1;
            let used = for_build || elsewhere || named(&crate_name);
            idle.extend((!used).then(|| format!("{path}: {name}")));
        }
    }
    assert!(idle.is_empty(), "{idle:#?}");
    assert!(seen > 100, "only {seen} dependencies");
}

/// What the page on troubles quotes of messages is what programs say; `...` stands for a value there.
#[test]
fn quoted_messages_are_those_of_programs() {
    let mut files = Vec::new();
    sources(workspace(), ".rs", &mut files);
    files.retain(|(path, _)| !path.contains("/tests/") && !path.ends_with("tests.rs"));
    let said: Vec<_> = files.iter().map(|(_, text)| as_quoted(text)).collect();
    let page = read("docs/troubleshooting.md");
    let (mut unknown, mut seen) = (Vec::new(), 0);
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let words = line.split(" | ").next().unwrap_or_default();
        for quoted in words.split('`').skip(1).step_by(2) {
            if !quoted.contains(' ') {
                continue;
            }
            seen += 1;
            let parts: Vec<_> = quoted.split("...").map(str::trim).collect();
            let says = |text: &&String| parts.iter().all(|part| text.contains(part));
            unknown.extend(said.iter().find(says).is_none().then_some(quoted));
        }
    }
    assert!(unknown.is_empty(), "nobody says {unknown:#?}");
    assert!(seen > 30, "only {seen} messages");
}

/// A source text whose literals go over no line end.
fn as_quoted(source: &str) -> String {
    let mut pieces = source.split("\\\n");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text += piece.trim_start();
    }
    text
}

/// The tour has a row for each package, or for the folder that it is in.
#[test]
fn the_tour_passes_all_packages() {
    let (manifest, page) = (read("Cargo.toml"), read("ARCHITECTURE.md"));
    let (_, members) = manifest.split_once("members = [").expect("members");
    let (members, _) = members.split_once("\n]").expect("their end");
    for member in members.lines().filter_map(|line| line.split('"').nth(1)) {
        let folder = member.split('/').next().expect("a first part");
        assert!(page.contains(&format!("`{folder}/")), "no {member}");
    }
}

#[test]
fn every_package_of_the_workspace_is_used() {
    let manifest = read("Cargo.toml");
    let (_, packages) = manifest
        .split_once("[workspace.dependencies]")
        .expect("a list");
    let (packages, _) = packages.split_once("\n[").expect("its end");
    let mut manifests = Vec::new();
    sources(workspace(), "Cargo.toml", &mut manifests);
    for line in packages.lines().filter(|line| line.contains(" = ")) {
        let name = line.split(" = ").next().expect("a name");
        let used = |text: &str| text.contains(&format!("\n{name} = {{ workspace = true"));
        assert!(
            manifests.iter().any(|(_, text)| used(text)),
            "nobody uses {name}"
        );
    }
}

/// A need that nothing asks for could not be missed.
#[test]
fn every_need_is_somebodys() {
    let mut all = Vec::new();
    sources(workspace(), ".rs", &mut all);
    sources(&workspace().join("ci"), ".sh", &mut all);
    let needs = read("tests/kit/needs");
    for need in needs.lines().filter(|line| !line.starts_with('#')) {
        let need = need.split_whitespace().next().expect("a name");
        let words = [
            format!("\"{need}\""),
            format!("skipped {need} "),
            format!("cannot {need} "),
            format!("nothing_is_missing {need}"),
        ];
        let asked = |text: &str| words.iter().any(|word| text.contains(word));
        assert!(
            all.iter().any(|(_, text)| asked(text)),
            "nobody needs {need}"
        );
    }
}

#[test]
fn every_job_of_the_virtual_machine_says_what_it_is() {
    for name in entries("ci/vm/jobs") {
        if name == "common.sh" || name == "run.sh" {
            continue;
        }
        let text = read(&format!("ci/vm/jobs/{name}"));
        for what in ["vm", "shows"] {
            assert!(text.contains(&format!("# {what}: ")), "{name}: no {what}");
        }
    }
}

/// The page of the benchmarks' library has a line for each program.
#[test]
fn every_benchmark_is_described() {
    let page = read("benches/src/lib.rs");
    for name in entries("benches/src/bin") {
        let name = name.trim_end_matches(".rs");
        assert!(page.contains(&format!("//! * `{name}`: ")), "no {name}");
    }
}
