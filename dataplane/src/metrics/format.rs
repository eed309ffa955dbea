//! The two forms of the page. Ours is written as OpenMetrics; scrapers that do not ask for it get the text format 0.0.4,
//! which names a counter with its suffix in the lines of type and help.

/// What a scraper can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4.
    Text,
}

impl Form {
    /// The form to use for a request with this `Accept` header. Curl and agents that send none or `*/*` get the older
    /// form, which everything can read.
    pub fn accepted(header: Option<&str>) -> Form {
        match header.is_some_and(|header| header.contains("application/openmetrics-text")) {
            true => Form::OpenMetrics,
            false => Form::Text,
        }
    }

    /// The Content-Type of the page.
    pub const fn media_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Turns a page of OpenMetrics into the older form.
pub(super) fn older(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    // The help of a family comes before its type, and the type decides the name.
    let mut help: Option<(&str, &str)> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, text_of_help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", text_of_help, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if line != "# EOF" && !line.starts_with("# UNIT ") {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_form_names_counters_with_their_suffix() {
        let page = "# HELP a_b Some help\n# TYPE a_b counter\na_b_total{c=\"d e\"} 5\n\
                    # HELP g Other help\n# TYPE g gauge\ng 1.5\n# EOF\n";
        let expected = "# HELP a_b_total Some help\n# TYPE a_b_total counter\na_b_total{c=\"d e\"} 5\n\
                        # HELP g Other help\n# TYPE g gauge\ng 1.5\n";
        assert_eq!(older(page), expected);
    }

    #[test]
    fn only_who_asks_for_openmetrics_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Form::accepted(Some(prometheus)), Form::OpenMetrics);
        for header in [None, Some("*/*"), Some("text/plain")] {
            assert_eq!(Form::accepted(header), Form::Text, "{header:?}");
        }
    }
}
