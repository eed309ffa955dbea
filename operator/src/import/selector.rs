//! Label selectors as Kubernetes writes them in one text: `tier in (web, api), team=shop, !hidden`.

use std::collections::BTreeMap;

use crds::config::{LabelRequirement, LabelSelector, SelectorOperator};

/// Reads one, or nothing where it is not one.
pub(super) fn selector(text: &str) -> Option<LabelSelector> {
    let parts = split(text)?;
    let mut selector =
        LabelSelector { match_labels: BTreeMap::new(), match_expressions: Vec::new() };
    for part in parts {
        let (key, operator, values) = requirement(part.trim())?;
        match (operator, &values[..]) {
            (SelectorOperator::In, [value]) if !selector.match_labels.contains_key(key) => {
                selector.match_labels.insert(key.to_owned(), value.clone());
            }
            (operator, _) => {
                let key = key.to_owned();
                selector.match_expressions.push(LabelRequirement { key, operator, values });
            }
        }
    }
    Some(selector)
}

/// At the commas that are not between parentheses.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut began, mut is_inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' if is_inside => return None,
            '(' => is_inside = true,
            ')' if !is_inside => return None,
            ')' => is_inside = false,
            ',' if !is_inside => {
                parts.push(&text[began..at]);
                began = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[began..]);
    (!is_inside).then_some(parts)
}

fn requirement(part: &str) -> Option<(&str, SelectorOperator, Vec<String>)> {
    use SelectorOperator::{DoesNotExist, Exists, In, NotIn};
    for (operator, sign) in [(NotIn, "!="), (In, "=="), (In, "=")] {
        if let Some((key, value)) = part.split_once(sign) {
            return Some((word(key)?, operator, vec![value.trim().to_owned()]));
        }
    }
    if let Some((left, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let (key, operator) = left.trim().split_once(char::is_whitespace)?;
        let operator = match operator.trim() {
            "in" => In,
            "notin" => NotIn,
            _ => return None,
        };
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return Some((word(key)?, operator, values));
    }
    match part.strip_prefix('!') {
        Some(key) => Some((word(key)?, DoesNotExist, Vec::new())),
        None => Some((word(part)?, Exists, Vec::new())),
    }
}

fn word(text: &str) -> Option<&str> {
    let text = text.trim();
    (!text.is_empty() && !text.contains(char::is_whitespace)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::selector;

    #[test]
    fn selectors_are_read_as_kubernetes_writes_them() {
        let read = |text| selector(text).map(|it| serde_json::to_string(&it).unwrap_or_default());
        for (text, expected) in [
            ("team=shop", r#"{"matchLabels":{"team":"shop"}}"#),
            (
                "a==b,c",
                r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"c","operator":"Exists"}]}"#,
            ),
            (
                "tier in (web, api), !hidden",
                r#"{"matchExpressions":[{"key":"tier","operator":"In","values":["web","api"]},{"key":"hidden","operator":"DoesNotExist"}]}"#,
            ),
            ("a!=b", r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]}"#),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["a in b", "a (b)", "", "a b", "in (a", "a)"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
