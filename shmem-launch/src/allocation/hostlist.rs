//! Lists of hosts as Slurm and Flux write them, `n[1-3,7],rack[0-1]n[00-15]`, and counts for each of them,
//! `2(x3),1`.
//!
//! A name may have several brackets, each with numbers and ranges; the last varies fastest. Numbers are as
//! wide as the first of their range is written. What a list may not do is to grow without bound, since it
//! comes from outside.

use std::fmt::Write;

use shmem_node::contract::MAX_PES;

/// Most hosts of a list: each needs a PE.
const MOST: usize = MAX_PES as usize;

/// Most brackets of a name.
const BRACKETS: usize = 16;

/// The names of a list, in its order.
///
/// # Errors
/// What in it cannot be understood.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for entry in split(list)? {
        if entry.matches('[').count() > BRACKETS {
            return Err(format!("a name has more than {BRACKETS} brackets"));
        }
        expand_entry(entry, "", &mut hosts)?;
    }
    match hosts.is_empty() {
        true => Err("no host is named".into()),
        false => Ok(hosts),
    }
}

/// The entries between the commas that are in no brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut entries, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if inside => return Err(format!("'{}' has brackets in brackets", &list[from..])),
            ']' if !inside => return Err(format!("'{}' has a ] too many", &list[from..])),
            '[' | ']' => inside = c == '[',
            ',' if !inside => {
                entries.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("'{}' lacks a ]", &list[from..]));
    }
    entries.push(&list[from..]);
    let entries = entries.into_iter().map(str::trim);
    Ok(entries.filter(|entry| !entry.is_empty()).collect())
}

/// Adds the names that an entry stands for, each behind what the brackets before have given.
fn expand_entry(entry: &str, before: &str, hosts: &mut Vec<String>) -> Result<(), String> {
    let Some((prefix, (ranges, rest))) = entry
        .split_once('[')
        .and_then(|(prefix, rest)| Some((prefix, rest.split_once(']')?)))
    else {
        if hosts.len() == MOST {
            return Err(format!("more than {MOST} hosts are named"));
        }
        hosts.push(format!("{before}{entry}"));
        return Ok(());
    };
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (Some(first), Some(last)) = (number(low), number(high)) else {
            return Err(format!("'{range}' in '{entry}' is no range of numbers"));
        };
        if first > last {
            return Err(format!("the range '{range}' in '{entry}' goes backwards"));
        }
        for n in first..=last {
            let before = format!("{before}{prefix}{n:0width$}", width = low.len());
            expand_entry(rest, &before, hosts)?;
        }
    }
    Ok(())
}

/// A number of digits alone, not too long for the names that it makes.
fn number(text: &str) -> Option<u64> {
    let digits = (1..=18).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// A count for each host, of `2(x3),1`.
///
/// # Errors
/// What in it cannot be understood.
pub fn counts(text: &str) -> Result<Vec<u32>, String> {
    let mut all: Vec<u32> = Vec::new();
    for entry in text.split(',') {
        let bad = || format!("'{entry}' is no count, as 2 or 2(x3) is");
        let (count, times) = match entry.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(bad)?),
            None => (entry, "1"),
        };
        let count: u32 = count.trim().parse().map_err(|_| bad())?;
        let times: usize = times.parse().map_err(|_| bad())?;
        if times > MOST - all.len() {
            return Err(format!("'{entry}' counts more than {MOST} hosts"));
        }
        all.extend(std::iter::repeat_n(count, times));
    }
    Ok(all)
}

/// Writes names as a list, for people: numbers that follow each other as ranges.
pub fn fold<'a>(hosts: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    for host in hosts {
        let digits = host.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (name, digits) = host.split_at(host.len() - digits.min(18));
        match groups.last_mut() {
            Some((last, ranges))
                if *last == name && !digits.is_empty() && !ranges[0].0.is_empty() =>
            {
                let next = ranges.last_mut().filter(|(_, high)| follows(high, digits));
                match next {
                    Some((_, high)) => *high = digits,
                    None => ranges.push((digits, digits)),
                }
            }
            _ => groups.push((name, vec![(digits, digits)])),
        }
    }
    let mut out = String::new();
    for (name, ranges) in groups {
        let comma = if out.is_empty() { "" } else { "," };
        let text: Vec<String> = ranges
            .iter()
            .map(|(low, high)| match low == high {
                true => (*low).to_owned(),
                false => format!("{low}-{high}"),
            })
            .collect();
        let text = text.join(",");
        let _ = match text.bytes().all(|b| b.is_ascii_digit()) {
            true => write!(out, "{comma}{name}{text}"),
            false => write!(out, "{comma}{name}[{text}]"),
        };
    }
    out
}

/// Whether a number is the next one, written in the same way.
fn follows(number: &str, next: &str) -> bool {
    let values = (number.parse::<u64>(), next.parse::<u64>());
    let same_width =
        number.len() == next.len() || !next.starts_with('0') && !number.starts_with('0');
    matches!(values, (Ok(a), Ok(b)) if a + 1 == b) && same_width
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_expanded() {
        for (list, want) in [
            ("n1", "n1"),
            ("n1,b", "n1 b"),
            ("n[1-3,7],m", "n1 n2 n3 n7 m"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2"),
            ("c[1,3]-ib", "c1-ib c3-ib"),
            (
                "x[1-2]y[3]z[04-05]w,q",
                "x1y3z04w x1y3z05w x2y3z04w x2y3z05w q",
            ),
            ("vm,vm,vm", "vm vm vm"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), want, "{list}");
        }
        for (list, part) in [
            ("", "no host"),
            ("n[1-2", "lacks a ]"),
            ("n1-2]", "a ] too many"),
            ("n[1-[2]]", "brackets in brackets"),
            ("n[a-b]", "'a-b' in 'n[a-b]' is no range"),
            ("n[]", "is no range"),
            ("n[1-]", "is no range"),
            ("n[3-1]", "goes backwards"),
            ("n[0-99999999999]", "more than"),
            ("n[0-9999][0-9999]", "more than"),
            ("n[1-99999999999999999999]", "is no range"),
        ] {
            let e = expand(list).unwrap_err();
            assert!(e.contains(part), "{list}: {e}");
        }
        let e = expand(&"[0]".repeat(100_000)).unwrap_err();
        assert!(e.contains("more than 16 brackets"), "{e}");
    }

    #[test]
    fn counts_are_expanded() {
        assert_eq!(counts("2(x3),1"), Ok(vec![2, 2, 2, 1]));
        assert_eq!(counts("16"), Ok(vec![16]));
        assert_eq!(counts("1,4(x1)"), Ok(vec![1, 4]));
        for wrong in ["", "x", "2(x", "2(x3", "2(3)", "2(x99999999)", "-1"] {
            assert!(counts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_folded() {
        for (names, want) in [
            ("n1 n2 n3 n7", "n[1-3,7]"),
            ("n08 n09 n10 n11", "n[08-11]"),
            ("n9 n10", "n[9-10]"),
            ("n9 n010", "n[9,010]"),
            ("a b c", "a,b,c"),
            ("n1", "n1"),
            ("a1 b1 b2 c", "a1,b[1-2],c"),
            ("vm vm", "vm,vm"),
        ] {
            assert_eq!(fold(names.split(' ')), want);
        }
    }

    proptest! {
        #[test]
        fn what_is_folded_is_expanded(names in proptest::collection::vec("[a-c]{1,2}[0-9]{0,3}", 1..40)) {
            let folded = fold(names.iter().map(String::as_str));
            prop_assert_eq!(expand(&folded), Ok(names));
        }

        #[test]
        fn no_text_panics(text in "[n0-9,\\[\\]()x-]{0,24}|.*") {
            let _ = (expand(&text), counts(&text));
        }
    }
}
