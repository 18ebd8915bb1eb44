//! JSON as the other side writes it: keys sorted, everything but printable ASCII escaped; compact
//! where it is hashed, indented by two blanks where it is a file.
//!
//! Invariant: for every value the bytes are those of CPython's `json.dumps` with `sort_keys` and,
//! in turn, `separators=(",", ":")` or `indent=2`; a test compares them.
//!
//! Never: an unescaped character outside U+0020 to U+007E.

use packhouse_base::digest::Digest;
use serde_json::{Number, Value};
use std::fmt::Write as _;

/// Renders a value in the compact form that is hashed; no newline at the end.
pub fn canon(value: &Value) -> Vec<u8> {
    let mut text = String::new();
    render(&mut text, value, None);
    text.into_bytes()
}

/// SHA-256 of the compact form.
pub fn canon_sha256(value: &Value) -> Digest {
    Digest::of(&canon(value))
}

/// Renders a value as a file: indented, with a newline at the end.
pub fn pretty(value: &Value) -> Vec<u8> {
    let mut text = String::new();
    render(&mut text, value, Some(0));
    text.push('\n');
    text.into_bytes()
}

/// Renders a value; `depth` is that of an indented form.
fn render(text: &mut String, value: &Value, depth: Option<usize>) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => render_number(text, number),
        Value::String(string) => render_text(text, string),
        Value::Array(items) => {
            let inner = depth.map(|depth| depth + 1);
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(text, index, inner);
                render(text, item, inner);
            }
            close(text, items.is_empty(), depth);
            text.push(']');
        }
        Value::Object(fields) => {
            let inner = depth.map(|depth| depth + 1);
            // UTF-8 sorts like code points, which is how the other side sorts.
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_bytes());
            text.push('{');
            for (index, (name, item)) in sorted.into_iter().enumerate() {
                separate(text, index, inner);
                render_text(text, name);
                text.push_str(if depth.is_some() { ": " } else { ":" });
                render(text, item, inner);
            }
            close(text, fields.is_empty(), depth);
            text.push('}');
        }
    }
}

fn separate(text: &mut String, index: usize, inner: Option<usize>) {
    if index > 0 {
        text.push(',');
    }
    if let Some(depth) = inner {
        break_line(text, depth);
    }
}

fn close(text: &mut String, is_empty: bool, depth: Option<usize>) {
    if let (false, Some(depth)) = (is_empty, depth) {
        break_line(text, depth);
    }
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

fn render_text(text: &mut String, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    write!(text, "\\u{unit:04x}").expect("because a String takes all");
                }
            }
        }
    }
    text.push('"');
}

fn render_number(text: &mut String, number: &Number) {
    match number.as_f64() {
        Some(float) if number.is_f64() => render_float(text, float),
        Some(_) | None => text.push_str(&number.to_string()),
    }
}

/// The shortest digits that read back equal, placed as CPython's `repr` places them: positional
/// for exponents from -4 to 15, else scientific with a signed exponent of two digits at least.
/// Where two such texts are equally near, as for 1679403994848351.25, it takes the even one.
fn render_float(text: &mut String, float: f64) {
    let shortest = format!("{float:e}");
    let mantissa = shortest.split('e').next().unwrap_or_default();
    let count = mantissa.chars().filter(char::is_ascii_digit).count();
    // With a precision, ties go to the even digit.
    let even = format!("{float:.*e}", count.saturating_sub(1));
    let is_same = even.parse() == Ok(float);
    let scientific = if is_same { even } else { shortest };
    let (digits, exponent) = scientific
        .split_once('e')
        .expect("because {:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("because it is a small integer");
    if (-4..16).contains(&exponent) {
        let places = usize::try_from(count as i32 - 1 - exponent).unwrap_or(0);
        let positional = if is_same && places > 0 {
            format!("{float:.places$}")
        } else {
            format!("{float}")
        };
        text.push_str(&positional);
        if !positional.contains('.') {
            text.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(text, "{digits}e{sign}{:02}", exponent.unsigned_abs())
            .expect("because a String takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_are_those_of_the_other_side() {
        // Two shortest texts are equally near to this one.
        let tied = f64::from_bits(0x4317_DDA2_DA30_717D);
        let value = json!({
            "b": [1, -2, true, null, 0.0, 1e16, 1.5e-5, 0.0001, tied, 2.0_f64.powi(-25)],
            "a\u{e9}": {
                "empty": {},
                "none": [],
                "quote\"\\\n\t\r\u{8}\u{c}\u{1}\u{7f}": "\u{1f600}",
            },
        });
        let compact = concat!(
            r#"{"a\u00e9":{"empty":{},"none":[],"#,
            r#""quote\"\\\n\t\r\b\f\u0001\u007f":"\ud83d\ude00"},"#,
            r#""b":[1,-2,true,null,0.0,1e+16,1.5e-05,0.0001,1679403994848351.2,"#,
            r#"2.9802322387695312e-08]}"#
        );
        assert_eq!(String::from_utf8(canon(&value)).as_deref(), Ok(compact));
        let indented = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": []\n  }\n}\n";
        let value = json!({"b": {"c": []}, "a": [1, {}]});
        assert_eq!(String::from_utf8(pretty(&value)).as_deref(), Ok(indented));
    }
}
