//! Numbers as the reference programs print them.

/// `value` with one digit before and `digits` after the point and an exponent of two digits or
/// more, as `%E` prints it: `-3.2478E+03`.
#[must_use]
pub fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$E}");
    match text.split_once('E') {
        Some((fraction, exponent)) => {
            let (sign, size) = match exponent.strip_prefix('-') {
                Some(size) => ('-', size),
                None => ('+', exponent),
            };
            format!("{fraction}E{sign}{size:0>2}")
        }
        None => text,
    }
}

/// `value` with `digits` after the point and none but 0 before, as Fortran's `E` format prints it:
/// `-0.3248E+04`.
#[must_use]
pub fn fortran(value: f64, digits: usize) -> String {
    // One digit less after the point, so that shifting the point rounds nothing.
    let text = scientific(value, digits.saturating_sub(1));
    let Some((fraction, exponent)) = text.split_once('E') else {
        return text;
    };
    let (sign, fraction) = match fraction.strip_prefix('-') {
        Some(fraction) => ("-", fraction),
        None => ("", fraction),
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let exponent = if value == 0.0 { 0 } else { exponent + 1 };
    format!("{sign}0.{}E{exponent:+03}", fraction.replace('.', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scientific_as_printf_does() {
        assert_eq!(scientific(-3247.83465203474, 15), "-3.247834652034740E+03");
        assert_eq!(scientific(1e-8, 0), "1E-08");
        assert_eq!(scientific(0.0, 2), "0.00E+00");
        assert_eq!(scientific(9.996, 2), "1.00E+01");
        assert_eq!(scientific(1e-123, 1), "1.0E-123");
        assert_eq!(scientific(f64::NAN, 3), "NaN");
    }

    #[test]
    fn fortran_has_its_point_in_front() {
        assert_eq!(fortran(-3247.83465203474, 13), "-0.3247834652035E+04");
        assert_eq!(fortran(0.1703428370954, 13), "0.1703428370954E+00");
        assert_eq!(fortran(1e-8, 13), "0.1000000000000E-07");
        assert_eq!(fortran(0.0, 4), "0.0000E+00");
        assert_eq!(fortran(0.99996, 4), "0.1000E+01");
        assert_eq!(fortran(f64::NAN, 4), "NaN");
    }
}
