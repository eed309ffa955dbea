//! Cuts an expression of Prometheus into words, texts, numbers and signs.

/// Signs, the longer ones first.
const SIGNS: [&str; 20] = [
    "==", "!=", ">=", "<=", "=~", "!~", "=", ">", "<", "+", "-", "*", "/", "%", "(", ")", "{", "}",
    "[", "]",
];
/// Signs between two expressions.
const OPERATORS: [&str; 11] = ["==", "!=", ">=", "<=", ">", "<", "+", "-", "*", "/", "%"];
/// Words between two expressions.
const SETS: [&str; 3] = ["or", "and", "unless"];

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name.
    Word(String),
    /// What was between quotes.
    Text(String),
    /// A number, a duration, or the two durations of a subquery, of which none needs to know how much.
    Number,
    Sign(&'static str),
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        match self {
            Token::Word(word) => word == text,
            Token::Sign(sign) => *sign == text,
            Token::Text(_) | Token::Number => false,
        }
    }

    /// What stands between two expressions.
    pub(super) fn operator(&self) -> Option<String> {
        match self {
            Token::Sign(sign) if OPERATORS.contains(sign) => Some((*sign).to_owned()),
            Token::Word(word) if SETS.contains(&word.as_str()) => Some(word.clone()),
            _ => None,
        }
    }
}

/// All of an expression.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // No text of ours has a quote in it.
        let (token, length) = if let Some(end) = ['"', '\''].contains(&first).then(|| &rest[1..]) {
            let length = end.find(first).ok_or_else(|| format!("{text}: a quote has no end"))?;
            (Token::Text(end[..length].to_owned()), length + 2)
        } else if first.is_ascii_digit() {
            (Token::Number, while_in(rest, |c| c.is_ascii_alphanumeric() || c == '.' || c == ':'))
        } else if is_of_word(first) || first == '$' {
            // Grafana replaces a variable by a duration.
            let length = 1 + while_in(&rest[1..], is_of_word);
            let word = &rest[..length];
            let is_variable = first == '$';
            (if is_variable { Token::Number } else { Token::Word(word.to_owned()) }, length)
        } else if first == ',' {
            (Token::Sign(","), 1)
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| format!("{text}: {first:?} is not understood"))?;
            (Token::Sign(sign), sign.len())
        };
        all.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(all)
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn while_in(text: &str, is_in: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_in(c)).unwrap_or(text.len())
}
