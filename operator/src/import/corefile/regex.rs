//! Regular expressions that match only one name, or all names below one name: people write these in `rewrite` and `template`.

/// The names that an expression matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Exactly this name.
    Exact(String),
    /// All names below this one.
    Below(String),
}

/// Beginnings that match any text in front of a suffix.
const ANYTHING: [&str; 6] = ["(.*)", "(.+)", "(.*?)", "(.+?)", ".*", ".+"];

/// The name that it matches, if it matches one name only.
pub(super) fn shape(expression: &str) -> Option<Shape> {
    let text = expression.strip_prefix('^').unwrap_or(expression);
    let text = text.strip_suffix('$').unwrap_or(text);
    let anything = ANYTHING.iter().find_map(|beginning| text.strip_prefix(beginning));
    match anything {
        None => literal(text).map(Shape::Exact),
        Some(rest) => {
            let ends = ["\\.", "[.]", "."];
            let rest = ends.iter().find_map(|dot| rest.strip_prefix(dot))?;
            literal(rest).map(Shape::Below)
        }
    }
}

/// Does it begin where the name begins?
pub(super) fn is_anchored(expression: &str) -> bool {
    expression.starts_with('^')
}

/// A name without special characters. An unescaped dot matches any character, but its author meant a dot.
fn literal(text: &str) -> Option<String> {
    let text = text.replace("[.]", ".").replace("\\.", ".").replace("\\-", "-");
    let text = text.strip_suffix(".?").or(text.strip_suffix('.')).unwrap_or(&text);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!text.is_empty() && text.chars().all(is_plain)).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{Shape, shape};

    #[test]
    fn expressions_that_are_names_are_known() {
        let exact = |name: &str| Some(Shape::Exact(name.to_owned()));
        let below = |name: &str| Some(Shape::Below(name.to_owned()));
        for (text, expected) in [
            (r"^db\.corp\.example\.$", exact("db.corp.example")),
            ("db[.]corp[.]example", exact("db.corp.example")),
            (r"(.*)\.apps\.example\.?$", below("apps.example")),
            (r"^.*\.apps\.example\.$", below("apps.example")),
            (r"^(?:[^.]+\.){4,}internal\.example\.$", None),
            (r"(a|b)\.example", None),
            ("", None),
            (".*", None),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
    }
}
