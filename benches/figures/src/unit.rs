//! What values of a figure are, and how they are written.

/// What is measured. Values are in the base unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Things.
    Count,
    /// Parts of a whole.
    Part,
}

impl Unit {
    /// With three digits that count.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Seconds => scaled(value, 1e3, &["ns", "µs", "ms", "s"], 1e-9),
            Self::Bytes => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB"], 1.0),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => digits(value),
            Self::Part => format!("{} %", digits(value * 100.0)),
        }
    }
}

fn scaled(value: f64, step: f64, names: &[&str], mut unit: f64) -> String {
    let mut name = names[0];
    for larger in &names[1..] {
        if value.abs() < unit * step * 0.9995 {
            break;
        }
        (unit, name) = (unit * step, larger);
    }
    format!("{} {name}", digits(value / unit))
}

/// Three digits that count, without zeros behind them.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.09995 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn three_digits_count() {
        for (unit, value, text) in [
            (Unit::Seconds, 0.0, "0 ns"),
            (Unit::Seconds, 43e-9, "43 ns"),
            (Unit::Seconds, 0.001_234_5, "1.23 ms"),
            (Unit::Seconds, 0.000_999_96, "1 ms"),
            (Unit::Seconds, 35.6, "35.6 s"),
            (Unit::Seconds, 1234.0, "1234 s"),
            (Unit::Bytes, 65_536.0, "64 KiB"),
            (Unit::Bytes, 3.0 * 1048576.0, "3 MiB"),
            (Unit::Count, 8192.0, "8192"),
            (Unit::Count, 8.755, "8.76"),
            (Unit::Part, 0.0285, "2.85 %"),
            (Unit::Part, -0.5, "-50 %"),
        ] {
            assert_eq!(unit.show(value), text);
        }
    }
}
