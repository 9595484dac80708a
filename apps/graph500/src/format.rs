//! Numbers as C's `printf` prints them with `%g`, which scripts that read the reference's output know, and as JSON.

/// `%.{digits}g`: so many significant digits, without zeros at the end, with an exponent where that is shorter.
#[must_use]
pub fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() && !value.is_nan() {
            "-"
        } else {
            ""
        };
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    // Rounded to so many digits, a number may have an exponent that is larger by one.
    let rounded = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

/// A number of JSON, which has no NaN.
#[must_use]
pub fn json(value: f64) -> String {
    if value.is_finite() {
        format!("{value:?}")
    } else {
        "null".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_printf() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (0.000123456789, "0.000123457"),
            (0.0000123456789, "1.23457e-05"),
            (123456.0, "123456"),
            (1234567.0, "1.23457e+06"),
            (999999.5, "1e+06"),
            (99999.96, "100000"),
            (2.5e8, "2.5e+08"),
            (-1.5, "-1.5"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(general(value, 6), text);
        }
        assert_eq!(general(16_776_448.0, 11), "16776448");
        assert_eq!(general(4193472.25, 11), "4193472.25");
    }
}
