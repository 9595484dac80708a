//! Manual pages and completions of shells, made from what makes `--help`: the options of `shmrun`, the help text of
//! `shmem-info`, the head of `oshcc`, and the table of settings.

use std::fmt::Write;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use shmem_launch::cli::Cli;
use shmem_node::settings::TABLE;

use crate::VERSION;

const INFO: &str = include_str!("../../shmem-core/src/bin/shmem-info/help.txt");
const WRAPPER: &str = include_str!("../files/oshcc");

/// A file, below the prefix.
pub type Page = (&'static str, Vec<u8>);

/// All of them.
pub fn all() -> Vec<Page> {
    let mut pages = vec![
        ("share/man/man1/shmrun.1", shmrun()),
        ("share/man/man1/oshrun.1", b".so man1/shmrun.1\n".to_vec()),
        ("share/man/man1/shmem-info.1", shmem_info().into_bytes()),
        ("share/man/man1/oshcc.1", oshcc().into_bytes()),
        ("share/man/man1/oshc++.1", b".so man1/oshcc.1\n".to_vec()),
        ("share/man/man7/shmem.7", shmem().into_bytes()),
    ];
    for (shell, path) in [
        (Shell::Bash, "share/bash-completion/completions/shmrun"),
        (Shell::Zsh, "share/zsh/site-functions/_shmrun"),
        (Shell::Fish, "share/fish/vendor_completions.d/shmrun.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "shmrun", &mut text);
        pages.push((path, text));
    }
    pages
}

fn shmrun() -> Vec<u8> {
    let man = Man::new(Cli::command()).source(format!("shmem {VERSION}"));
    let mut out = Vec::new();
    // Writing to memory does not fail.
    let _ = man.render(&mut out);
    let see = see_also(&["oshcc(1)", "shmem-info(1)", "shmem(7)"]);
    out.extend_from_slice(see.as_bytes());
    out
}

/// The page of a program whose help is text.
fn page(name: &str, section: u32, title: &str) -> String {
    let (upper, title) = (name.to_uppercase(), escaped(title));
    let name = escaped(name);
    format!(".TH {upper} {section} \"\" \"shmem {VERSION}\"\n.SH NAME\n{name} \\- {title}\n")
}

fn see_also(pages: &[&str]) -> String {
    let mut out = String::from(".SH SEE ALSO\n");
    let pages = pages.iter().map(|page| {
        let (name, section) = page.split_once('(').unwrap_or((page, ""));
        format!(".BR {} ({section}", escaped(name))
    });
    out += &pages.collect::<Vec<_>>().join(" ,\n");
    out.push('\n');
    out
}

/// Text that means nothing to roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// Paragraphs of a help text; indented lines with two blanks in them are options.
fn body(out: &mut String, text: &str) {
    for line in text.lines() {
        let option = line
            .strip_prefix("  ")
            .and_then(|l| l.trim().split_once("  "));
        match option {
            Some((option, help)) => {
                let (option, help) = (escaped(option), escaped(help.trim()));
                let _ = writeln!(out, ".TP\n.B {option}\n{help}");
            }
            None if line.trim().is_empty() => out.push_str(".PP\n"),
            None => {
                let _ = writeln!(out, "{}", escaped(line));
            }
        }
    }
}

fn shmem_info() -> String {
    let mut lines = INFO.splitn(2, '\n');
    let title = lines.next().unwrap_or_default();
    let (name, title) = title.split_once(": ").unwrap_or(("shmem-info", title));
    let rest = lines.next().unwrap_or_default();
    let (usage, rest) = rest.trim_start().split_once('\n').unwrap_or((rest, ""));
    let mut out = page(name, 1, title);
    let usage = usage.strip_prefix("usage: ").unwrap_or(usage);
    let _ = writeln!(out, ".SH SYNOPSIS\n{}\n.SH DESCRIPTION", escaped(usage));
    body(&mut out, rest);
    out += &see_also(&["shmrun(1)", "shmem(7)"]);
    out
}

fn oshcc() -> String {
    let mut out = page(
        "oshcc",
        1,
        "compile and link OpenSHMEM programs in C; oshc++ and oshCC in C++",
    );
    out += ".SH SYNOPSIS\n.B oshcc\n[options of the compiler] file...\n.SH DESCRIPTION\n";
    let head = WRAPPER
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix('#'));
    let text: Vec<_> = head
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    body(&mut out, &text.join("\n"));
    out += &see_also(&["shmrun(1)", "shmem(7)"]);
    out
}

fn shmem() -> String {
    let mut out = page("shmem", 7, "OpenSHMEM programs and their settings");
    out += ".SH DESCRIPTION\n";
    body(
        &mut out,
        "OpenSHMEM programs are started by shmrun, or under launchers that speak PMI, such as Slurm's srun; \
         alone they are jobs of one PE. C programs are built with oshcc.",
    );
    out += ".SH ENVIRONMENT\n";
    body(
        &mut out,
        "These are the same for all PEs of a job. shmrun and shmem-info show the values in force with --settings.",
    );
    for row in TABLE {
        let alias = row.alias.map(|a| format!(", or {a}")).unwrap_or_default();
        let _ = writeln!(
            out,
            ".TP\n.B {}\n{}\nValue: {}. Default: {}{}.",
            escaped(row.name),
            escaped(row.help),
            escaped(row.form),
            escaped(row.default),
            escaped(&alias.replace(", or ", "; also read: ")),
        );
    }
    out += &see_also(&["shmrun(1)", "oshcc(1)", "shmem-info(1)"]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> String {
        let (_, bytes) = all().into_iter().find(|(of, _)| *of == path).expect(path);
        String::from_utf8(bytes).unwrap().replace("\\-", "-")
    }

    /// The options that `--help` shows.
    fn options() -> Vec<String> {
        let command = Cli::command();
        let shown = command.get_arguments().filter(|a| !a.is_hide_set());
        shown
            .filter_map(|a| a.get_long())
            .map(|long| format!("--{long}"))
            .collect()
    }

    #[test]
    fn every_option_has_its_place() {
        let options = options();
        assert!(options.len() > 25);
        for path in [
            "share/man/man1/shmrun.1",
            "share/bash-completion/completions/shmrun",
            "share/zsh/site-functions/_shmrun",
        ] {
            let text = text(path);
            for option in &options {
                assert!(text.contains(option), "{option} in {path}");
            }
        }
        let fish = text("share/fish/vendor_completions.d/shmrun.fish");
        for option in &options {
            let long = format!("-l {}", option.trim_start_matches('-'));
            assert!(fish.contains(&long), "{long}");
        }
        assert!(!text("share/man/man1/shmrun.1").contains("--agent"));
    }

    #[test]
    fn every_setting_has_its_place() {
        let page = text("share/man/man7/shmem.7");
        for row in TABLE {
            for part in [&format!(".B {}\n", row.name), row.form] {
                assert!(page.contains(part), "{part}");
            }
        }
        assert!(page.contains("also read: SMA_SYMMETRIC_SIZE"));
    }

    #[test]
    fn pages_say_what_help_says() {
        let info = text("share/man/man1/shmem-info.1");
        for part in [
            ".B --json\n",
            ".B --settings\n",
            "SHMEM_GID_INDEX",
            ".SH SEE ALSO",
        ] {
            assert!(info.contains(part), "{part} in {info}");
        }
        let wrapper = text("share/man/man1/oshcc.1");
        for part in [".B -static-libshmem\n", ".B --showme:link\n", "$OSHCC_CC"] {
            assert!(wrapper.contains(part), "{part} in {wrapper}");
        }
        assert!(!wrapper.contains("readlink"));
    }

    /// A line that begins with a dot is a request: text that does would be lost.
    #[test]
    fn there_is_no_request_by_chance() {
        const KNOWN: [&str; 16] = [
            ".TH", ".SH", ".SS", ".TP", ".B", ".BR", ".PP", ".RS", ".RE", ".so", ".IP", ".ie",
            ".el", ".br", ".nf", ".fi",
        ];
        for (path, bytes) in all() {
            if !path.contains("/man/") {
                continue;
            }
            let text = String::from_utf8(bytes).unwrap();
            for line in text.lines().filter(|l| l.starts_with(['.', '\''])) {
                let request = line.split_whitespace().next().unwrap_or_default();
                assert!(KNOWN.contains(&request), "{path}: {line}");
            }
        }
    }
}
