//! Whether sizes and reference results are those that were published: of the larger classes no test here computes them, and
//! a wrong digit would only show on a machine that is large enough.
//!
//! `published.txt` holds what other sources than that of our constants say.

use crate::class::Class;
use crate::kernels::KERNELS;
use crate::{adi, bt, cg, ep, ft, is, lu, mg, sp};

const TEXT: &str = include_str!("published.txt");

/// What a source has wrong: its name, kernel, class, quantity.
const MISTAKES: [(&str, &str, Class, &str); 1] = [
    // It has the value of the serial NPB 3.3. The releases 3.3, 3.4 and 3.4.1 for MPI and OpenMP have ours.
    ("NPB-CPP", "MG", Class::E, "norm"),
];

/// A name, and its values. All are compared as `f64`, which holds each integer among them.
type Quantity = (String, Vec<f64>);

/// What a source says of a kernel and a class, or what we do, in the order of the file.
#[derive(Debug)]
struct Entry {
    source: String,
    kernel: String,
    class: Class,
    quantities: Vec<Quantity>,
}

fn parse(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut source = None;
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            source = name.strip_suffix(']').map(str::to_owned);
            continue;
        }
        let source = source.clone().expect("a source before its lines");
        let mut words = line.split(' ');
        let [kernel, class, name] =
            [(); 3].map(|()| words.next().expect("kernel, class, quantity"));
        let class = class.parse().expect("a class");
        let same = |e: &Entry| e.source == source && e.kernel == kernel && e.class == class;
        if !entries.last().is_some_and(same) {
            entries.push(Entry {
                source,
                kernel: kernel.to_owned(),
                class,
                quantities: Vec::new(),
            });
        }
        let quantity = (name.to_owned(), words.map(value).collect());
        entries
            .last_mut()
            .expect("an entry")
            .quantities
            .push(quantity);
    }
    entries
}

/// A number, or a quotient.
fn value(word: &str) -> f64 {
    let number = |word: &str| -> f64 { word.parse().expect(word) };
    match word.split_once('/') {
        Some((above, below)) => number(above) / number(below),
        None => number(word),
    }
}

/// Our constants.
fn ours(kernel: &str, class: Class) -> Vec<Quantity> {
    let mut all = Vec::new();
    let mut add = |name: &str, values: &[f64]| all.push((name.to_owned(), values.to_vec()));
    let mut flow = |params: adi::scheme::Params| {
        add("n", &[params.n as f64]);
        add("iterations", &[f64::from(params.iterations)]);
        add("dt", &[params.dt]);
        add("residual", &params.residual);
        add("error", &params.error);
    };
    match kernel {
        "BT" => flow(bt::params::of(class)),
        "SP" => flow(sp::params::of(class)),
        "LU" => {
            let params = lu::params::Params::of(class);
            flow(params.flow);
            add("surface", &[params.surface]);
        }
        "CG" => {
            let params = cg::params::Params::of(class);
            add("n", &[params.n as f64]);
            add("nonzeros", &[params.nonzeros as f64]);
            add("iterations", &[f64::from(params.iterations)]);
            add("shift", &[params.shift]);
            add("condition", &[cg::params::CONDITION]);
            add("zeta", &[params.zeta]);
        }
        "EP" => {
            let params = ep::params::Params::of(class);
            add("m", &[f64::from(params.m)]);
            add("sums", &[params.sx, params.sy]);
        }
        "FT" => {
            let params = ft::params::Params::of(class);
            add("n", &params.n.map(|n| n as f64));
            add("iterations", &[f64::from(params.iterations())]);
            for sum in params.checksums {
                add("checksum", sum);
            }
        }
        "IS" => {
            use is::params::{ITERATIONS, Params, TESTS};
            let params = Params::of(class).expect("a class of IS");
            let logs = [params.log_keys, params.log_limit, params.log_buckets];
            add("logs", &logs.map(f64::from));
            add("places", &params.tested().map(|place| place as f64));
            for iteration in 1..=ITERATIONS {
                let ranks: [_; TESTS] =
                    std::array::from_fn(|test| params.rank(test, iteration) as f64);
                add("ranks", &ranks);
            }
        }
        "MG" => {
            let params = mg::params::Params::of(class);
            let weights = params.smoother;
            add("n", &[params.cells() as f64]);
            add("iterations", &[f64::from(params.iterations)]);
            add(
                "smoother",
                &[weights.centre, weights.face, weights.edge, weights.corner],
            );
            add("norm", &[params.norm]);
        }
        other => panic!("{other} is not compared"),
    }
    all
}

/// What differs from our constants, to the last bit, and is not among the [`MISTAKES`]. A mistake that is none is told as well.
fn differences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut mistakes = Vec::from(MISTAKES);
    for entry in parse(text) {
        let Entry {
            source,
            kernel,
            class,
            quantities,
        } = &entry;
        let mine = ours(kernel, *class);
        let names = |of: &[Quantity]| of.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if names(&mine) != names(quantities) {
            found.push(format!("{kernel} {class}: {source} has other quantities"));
        }
        for ((name, mine), (_, theirs)) in mine.iter().zip(quantities) {
            let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            if bits(mine) == bits(theirs) {
                continue;
            }
            let this = (&**source, &**kernel, *class, &**name);
            match mistakes.iter().position(|mistake| *mistake == this) {
                Some(at) => drop(mistakes.remove(at)),
                None => found.push(format!(
                    "{kernel} {class} {name}: ours {mine:?}, {source} {theirs:?}"
                )),
            }
        }
    }
    found.extend(
        mistakes
            .iter()
            .map(|mistake| format!("not found: {mistake:?}")),
    );
    found
}

#[test]
fn constants_are_those_that_others_published() {
    let differences = differences(TEXT);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// By a source without a mistake about them.
#[test]
fn every_class_of_every_kernel_is_compared() {
    let entries = parse(TEXT);
    let mistaken = |e: &Entry| {
        MISTAKES
            .iter()
            .any(|m| (m.0, m.1, m.2) == (&e.source, &e.kernel, e.class))
    };
    let found: Vec<_> = entries
        .iter()
        .filter(|entry| !mistaken(entry))
        .map(|entry| (&*entry.kernel, entry.class))
        .collect();
    let mut expected: Vec<_> = KERNELS
        .iter()
        .flat_map(|kernel| {
            let classes = Class::ALL.into_iter().filter(|c| *c <= kernel.largest);
            classes.map(|class| (kernel.name, class))
        })
        .collect();
    let mut sorted = found.clone();
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
}

/// Another digit in whatever line is found. (A mistake may be any number but ours.)
#[test]
fn nothing_is_compared_in_vain() {
    let lines: Vec<_> = TEXT.lines().collect();
    let mut source = "";
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = line.strip_prefix('[') {
            source = name.trim_end_matches(']');
        }
        let mistake = |m: &(&str, &str, Class, &str)| {
            m.0 == source && line.starts_with(&format!("{} {} {} ", m.1, m.2, m.3))
        };
        if line.is_empty() || line.starts_with(['#', '[']) || MISTAKES.iter().any(mistake) {
            continue;
        }
        let last = line.rfind(' ').expect("a value");
        let digit = last
            + line[last..]
                .find(|c: char| c.is_ascii_digit())
                .expect("one");
        let mut wrong = line.as_bytes().to_vec();
        wrong[digit] = b'0' + (wrong[digit] - b'0' + 1) % 10;
        let wrong = String::from_utf8(wrong).expect("text");
        let mut text = lines.clone();
        text[at] = &wrong;
        let found = differences(&text.join("\n"));
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
    }
}
