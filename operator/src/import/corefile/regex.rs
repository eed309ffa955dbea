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
    match beginning(expression) {
        (text, false) => literal(text).map(Shape::Exact),
        (rest, true) => {
            let ends = ["\\.", "[.]", "."];
            let rest = ends.iter().find_map(|dot| rest.strip_prefix(dot))?;
            literal(rest).map(Shape::Below)
        }
    }
}

/// It without `^` and `$`, and without a beginning that matches any text; whether it has such a beginning.
fn beginning(expression: &str) -> (&str, bool) {
    let text = expression.strip_prefix('^').unwrap_or(expression);
    let text = text.strip_suffix('$').unwrap_or(text);
    let rest = ANYTHING.iter().find_map(|beginning| text.strip_prefix(beginning));
    (rest.unwrap_or(text), rest.is_some())
}

/// CoreDNS compares the name as it is on the wire, with the dot of the root.
const NO_DOT: &str = "it matches no name, so CoreDNS never uses it: names end in a dot there, and the text before $ does not";
/// CoreDNS compares the name in lower case.
const UPPER_CASE: &str = "it matches no name, so CoreDNS never uses it: it compares names in lower case, and the text has upper case";

/// Why it matches no name at all, where that is sure. Its author meant names, but no client got its answer, so a record in its
/// place would be new.
pub(super) fn matches_nothing(expression: &str) -> Option<&'static str> {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let text = expression.strip_suffix('$').filter(|text| text.ends_with(is_in_word));
    if text.is_some_and(ends_as_written) {
        return Some(NO_DOT);
    }
    let name = beginning(expression).0;
    let is_upper = shape(expression).is_some() && name.contains(|c: char| c.is_ascii_uppercase());
    is_upper.then_some(UPPER_CASE)
}

/// Must each match have the end of this text as it is written? Not where another alternative may match in its place, nor where
/// letters behind a backslash mean something else, such as a dot.
fn ends_as_written(text: &str) -> bool {
    // A bracket right behind the one that begins a class is a character of it.
    if text.contains("[]") || text.contains("[^]") {
        return false;
    }
    let (mut depth, mut is_in_class) = (0_usize, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, is_in_class) {
            ('\\', _) if characters.next().is_none_or(|it| it.is_ascii_alphanumeric()) => {
                return false;
            }
            ('[', false) => is_in_class = true,
            (']', true) => is_in_class = false,
            ('(', false) => depth += 1,
            (')', false) => depth = depth.saturating_sub(1),
            ('|', false) if depth == 0 => return false,
            _ => {}
        }
    }
    !is_in_class && depth == 0
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
    use super::{Shape, matches_nothing, shape};

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

    #[test]
    fn expressions_that_match_no_name_are_known() {
        for text in [
            r"^db\.corp\.example$",
            "db[.]corp[.]example$",
            r"(.*)\.apps\.example$",
            r"^(a|b)\.corp\.example$",
            r"^[|a]\.corp\.example$",
            r"^DB\.corp\.example\.$",
            r"(.*)\.Apps\.example",
        ] {
            assert!(matches_nothing(text).is_some(), "{text}");
        }
        for text in [
            r"^db\.corp\.example\.$",
            r"^db\.corp\.example\.?$",
            "^db.corp.example.$",
            r"^db\.corp\.example[.]$",
            r"^db\.corp\.example",
            r"^a\.example\.$|^b\.example$",
            r"^db\.corp\.example\x2e$",
            r"^db\.corp\.exampl\S$",
            r"^db\.corp\.example\$",
            r"(?i)^DB\.corp\.example\.$",
            "(.*)",
            "$",
            "",
        ] {
            assert_eq!(matches_nothing(text), None, "{text}");
        }
    }
}
