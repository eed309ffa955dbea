//! Reads expressions of Prometheus, so that tests can compare the labels that alerts and dashboards name with those that
//! pages of metrics have. It reads what our expressions use, and refuses the rest.

mod tokens;

use std::collections::BTreeSet;
use std::fmt;

use tokens::{Token, tokens};

/// Operators that put several series together.
const AGGREGATIONS: [&str; 9] =
    ["sum", "max", "min", "count", "avg", "topk", "bottomk", "group", "quantile"];

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A number, or a text that a function gets.
    Literal,
    /// Series of one metric.
    Selector(Selector),
    /// A function of these.
    Call {
        /// Its name.
        function: String,
        /// What it gets.
        arguments: Vec<Expression>,
    },
    /// `sum by (a) (b)` and the like.
    Aggregation {
        /// The labels that stay, or those that go.
        labels: Grouping,
        /// What is put together.
        arguments: Vec<Expression>,
    },
    /// Two expressions with an operator between them.
    Pair {
        /// `or`, `/`, `>` and so on.
        operator: String,
        /// The first expression.
        left: Box<Expression>,
        /// The second expression.
        right: Box<Expression>,
    },
}

/// Series of one metric: its name, and what their labels must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// Of the metric, with the suffix of a histogram.
    pub name: String,
    /// The conditions on labels.
    pub matchers: Vec<Matcher>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matcher {
    /// The name of the label.
    pub label: String,
    /// `=`, `!=`, `=~` or `!~`.
    pub operator: String,
    /// What it is compared with.
    pub value: String,
}

/// Which labels an aggregation keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// These.
    By(BTreeSet<String>),
    /// All but these.
    Without(BTreeSet<String>),
}

impl fmt::Display for Selector {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selector { name, matchers } = self;
        let matchers = matchers
            .iter()
            .map(|Matcher { label, operator, value }| format!("{label}{operator}\"{value}\""));
        write!(to, "{name}{{{}}}", matchers.collect::<Vec<_>>().join(","))
    }
}

impl Matcher {
    /// Whether a label with this value passes. Of regular expressions only alternatives of plain texts and `.*` are read.
    pub fn passes(&self, value: &str) -> bool {
        let is_one = || self.value.split('|').any(|one| one == ".*" || one == value);
        match self.operator.as_str() {
            "=" => self.value == value,
            "!=" => self.value != value,
            "=~" => is_one(),
            _ => !is_one(),
        }
    }
}

impl Expression {
    /// Reads one.
    ///
    /// # Errors
    /// What is not understood, and what is left of the text there.
    pub fn parse(text: &str) -> Result<Expression, String> {
        let tokens = tokens(text)?;
        let mut reader = Reader { tokens: &tokens };
        let expression = reader.expression().map_err(|error| format!("{text}: {error}"))?;
        match reader.tokens {
            [] => Ok(expression),
            rest => Err(format!("{text}: {rest:?} is left")),
        }
    }

    /// All selectors in it.
    pub fn selectors(&self) -> Vec<&Selector> {
        match self {
            Expression::Literal => Vec::new(),
            Expression::Selector(selector) => vec![selector],
            Expression::Call { arguments, .. } | Expression::Aggregation { arguments, .. } => {
                arguments.iter().flat_map(Expression::selectors).collect()
            }
            Expression::Pair { left, right, .. } => [left.selectors(), right.selectors()].concat(),
        }
    }

    /// The labels that the series of its result have, where `of` says those of a selector. Labels that are kept `by` an
    /// aggregation and are not there are given to `missing`.
    pub fn labels(
        &self,
        of: &impl Fn(&Selector) -> BTreeSet<String>,
        missing: &mut impl FnMut(&str),
    ) -> BTreeSet<String> {
        match self {
            Expression::Literal => BTreeSet::new(),
            Expression::Selector(selector) => of(selector),
            Expression::Call { function, arguments } => {
                let labels: BTreeSet<String> =
                    arguments.iter().flat_map(|it| it.labels(of, missing)).collect();
                match function.as_str() {
                    // What it knows of series that are not there.
                    "absent" => self.fixed(),
                    "histogram_quantile" => {
                        if !labels.contains("le") {
                            missing("le");
                        }
                        labels.into_iter().filter(|label| label != "le").collect()
                    }
                    "vector" | "scalar" | "time" => BTreeSet::new(),
                    _ => labels,
                }
            }
            Expression::Aggregation { labels, arguments } => {
                let there: BTreeSet<String> =
                    arguments.iter().flat_map(|it| it.labels(of, missing)).collect();
                match labels {
                    Grouping::By(kept) => {
                        kept.difference(&there).for_each(|label| missing(label));
                        kept.clone()
                    }
                    Grouping::Without(gone) => there.difference(gone).cloned().collect(),
                }
            }
            Expression::Pair { operator, left, right } => {
                let (left, right) = (left.labels(of, missing), right.labels(of, missing));
                match operator.as_str() {
                    // Of either: only what both have can be relied on.
                    "or" => left.intersection(&right).cloned().collect(),
                    _ if left.is_empty() => right,
                    _ => left,
                }
            }
        }
    }

    /// Labels with one value by the matchers.
    fn fixed(&self) -> BTreeSet<String> {
        let selectors = self.selectors();
        let matchers = selectors.iter().flat_map(|selector| &selector.matchers);
        let fixed = matchers.filter(|matcher| matcher.operator == "=");
        fixed.map(|matcher| matcher.label.clone()).collect()
    }
}

/// What is left to read.
struct Reader<'t> {
    tokens: &'t [Token],
}

impl Reader<'_> {
    fn next(&mut self) -> Option<Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first.clone())
    }

    /// Takes this sign or word, if it is the next.
    fn takes(&mut self, text: &str) -> bool {
        let is_next = self.tokens.first().is_some_and(|token| token.is(text));
        if is_next {
            self.tokens = &self.tokens[1..];
        }
        is_next
    }

    fn needs(&mut self, text: &str) -> Result<(), String> {
        match self.takes(text) {
            true => Ok(()),
            false => Err(format!("no {text} before {:?}", self.tokens)),
        }
    }

    /// Operands with operators between them. Which of them binds more does not matter for labels.
    fn expression(&mut self) -> Result<Expression, String> {
        let mut left = self.operand()?;
        while let Some(operator) = self.tokens.first().and_then(Token::operator) {
            self.next();
            self.takes("bool");
            // By which labels series are matched does not change which the result has.
            if self.takes("on") {
                self.needs("(")?;
                self.arguments()?;
            }
            let right = Box::new(self.operand()?);
            left = Expression::Pair { operator, left: Box::new(left), right };
        }
        Ok(left)
    }

    /// With its range, if it has one: that of a selector or of a subquery.
    fn operand(&mut self) -> Result<Expression, String> {
        let operand = self.plain_operand()?;
        if self.takes("[") {
            self.next();
            self.needs("]")?;
        }
        Ok(operand)
    }

    fn plain_operand(&mut self) -> Result<Expression, String> {
        match self.next() {
            Some(Token::Number | Token::Text(_)) => Ok(Expression::Literal),
            Some(Token::Sign("(")) => {
                let inner = self.expression()?;
                self.needs(")")?;
                Ok(inner)
            }
            Some(Token::Word(word)) if AGGREGATIONS.contains(&word.as_str()) => self.aggregation(),
            Some(Token::Word(word)) if self.takes("(") => {
                let arguments = self.arguments()?;
                Ok(Expression::Call { function: word, arguments })
            }
            Some(Token::Word(name)) => self.selector(name).map(Expression::Selector),
            other => Err(format!("{other:?} before {:?}", self.tokens)),
        }
    }

    /// Up to the parenthesis, the first of which was read.
    fn arguments(&mut self) -> Result<Vec<Expression>, String> {
        let mut all = Vec::new();
        while !self.takes(")") {
            all.push(self.expression()?);
            self.takes(",");
        }
        Ok(all)
    }

    /// The labels are before the arguments or behind them.
    fn aggregation(&mut self) -> Result<Expression, String> {
        let before = self.grouping()?;
        self.needs("(")?;
        let arguments = self.arguments()?;
        let labels = match before {
            Some(labels) => Some(labels),
            None => self.grouping()?,
        };
        let labels = labels.unwrap_or(Grouping::By(BTreeSet::new()));
        Ok(Expression::Aggregation { labels, arguments })
    }

    fn grouping(&mut self) -> Result<Option<Grouping>, String> {
        let is_by = self.takes("by");
        if !is_by && !self.takes("without") {
            return Ok(None);
        }
        self.needs("(")?;
        let mut labels = BTreeSet::new();
        while !self.takes(")") {
            match self.next() {
                Some(Token::Word(label)) => labels.insert(label),
                other => return Err(format!("{other:?} is no label")),
            };
            self.takes(",");
        }
        Ok(Some(if is_by { Grouping::By(labels) } else { Grouping::Without(labels) }))
    }

    /// Matchers, if there are any.
    fn selector(&mut self, name: String) -> Result<Selector, String> {
        let mut matchers = Vec::new();
        if self.takes("{") {
            while !self.takes("}") {
                let (label, operator, value) = (self.next(), self.next(), self.next());
                let (
                    Some(Token::Word(label)),
                    Some(Token::Sign(operator)),
                    Some(Token::Text(value)),
                ) = (label, operator, value)
                else {
                    return Err(format!("no matcher before {:?}", self.tokens));
                };
                matchers.push(Matcher { label, operator: operator.to_owned(), value });
                self.takes(",");
            }
        }
        Ok(Selector { name, matchers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> (Vec<String>, Vec<String>) {
        let page = |selector: &Selector| {
            let labels: &[&str] = match selector.name.as_str() {
                "a_bucket" => &["pod", "origin", "le"],
                "b" => &["pod", "name"],
                _ => &[],
            };
            labels.iter().map(|label| (*label).to_owned()).collect()
        };
        let mut missing = Vec::new();
        let expression = Expression::parse(text).expect(text);
        let labels = expression.labels(&page, &mut |label| missing.push(label.to_owned()));
        (labels.into_iter().collect(), missing)
    }

    #[test]
    fn the_labels_of_a_result_are_those_that_prometheus_gives() {
        for (text, expected, missing) in [
            ("b", &["name", "pod"][..], &[][..]),
            ("sum(b)", &[], &[]),
            ("sum by (pod) (rate(b{name=\"x\"}[5m])) > 1", &["pod"], &[]),
            ("max(b) by (pod, zone)", &["pod", "zone"], &["zone"]),
            ("sum without (pod) (b) / 2", &["name"], &[]),
            (
                "histogram_quantile(0.99, sum by (pod, le) (rate(a_bucket[5m]))) > 0.01",
                &["pod"],
                &[],
            ),
            ("histogram_quantile(0.99, sum by (pod) (rate(a_bucket[5m])))", &["pod"], &["le"]),
            ("max by (pod) (b) > 0 or max by (pod, name) (b) > 0", &["pod"], &[]),
            ("absent(b{name=\"x\", pod=~\"y\"} == 1)", &["name"], &[]),
            ("1 - (sum by (pod) (b) > bool 2)", &["pod"], &[]),
            ("last_over_time(max by (name) (b)[7m:30s]) unless on () (b[3m:1m])", &["name"], &[]),
            ("max by (pod) (b and on (pod) a_bucket[1h])", &["pod"], &[]),
        ] {
            assert_eq!(
                labels(text),
                (
                    expected.iter().map(|it| (*it).to_owned()).collect(),
                    missing.iter().map(|it| (*it).to_owned()).collect()
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn selectors_have_their_matchers() {
        let text = "sum(rate(a{x=\"1,}\",y!=\"2\",z=~'p|q'}[$__rate_interval])) / sum(b)";
        let expression = Expression::parse(text).unwrap();
        let selectors = expression.selectors();
        let names: Vec<&str> = selectors.iter().map(|selector| selector.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let matchers = &selectors[0].matchers;
        let shown: Vec<String> = matchers
            .iter()
            .map(|matcher| format!("{}{}{}", matcher.label, matcher.operator, matcher.value))
            .collect();
        assert_eq!(shown, ["x=1,}", "y!=2", "z=~p|q"]);
        assert!(matchers[1].passes("1") && !matchers[1].passes("2"));
        assert!(matchers[2].passes("q") && !matchers[2].passes("pq"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in ["", "sum(a", "a{b}", "a b", "sum by a (b)", "a{b=\"c}", "a # b"] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }
}
