//! The forms of the page, and which of them a scraper gets. Text is written as OpenMetrics; scrapers that do not ask for it
//! get the text format 0.0.4, which names a counter with its suffix in the lines of type and help.

/// What a scraper can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Protocol Buffers of Prometheus, the only form that has native histograms.
    Messages,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4.
    Text,
}

impl Form {
    /// The form to use for a request with this `Accept` header: the one with the highest weight (RFC 9110 §12.4.2), of
    /// several the first. Curl and agents that send none or `*/*` get the older text, which everything can read.
    pub fn accepted(header: Option<&str>) -> Form {
        let ranges = header.unwrap_or_default().split(',').filter_map(weighed);
        let best = ranges.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map_or(Form::Text, |(form, _)| form)
    }

    /// The Content-Type of the page.
    pub const fn media_type(self) -> &'static str {
        match self {
            Form::Messages => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The form that a media range asks for, and its weight; nothing for other forms, and for what is not wanted.
fn weighed(range: &str) -> Option<(Form, f32)> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    let parameters: Vec<&str> = parts.collect();
    let has = |parameter: &str| parameters.iter().any(|it| it.eq_ignore_ascii_case(parameter));
    let form = match media {
        "application/vnd.google.protobuf"
            if has("proto=io.prometheus.client.MetricFamily") && has("encoding=delimited") =>
        {
            Form::Messages
        }
        "application/openmetrics-text" => Form::OpenMetrics,
        "text/plain" | "text/*" | "*/*" => Form::Text,
        _ => return None,
    };
    let weight = parameters.iter().find_map(|it| it.strip_prefix("q="));
    let weight = weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0);
    (weight > 0.0).then_some((form, weight))
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

    const MESSAGES: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[test]
    fn who_asks_for_nothing_gets_the_older_text() {
        for header in
            [None, Some(""), Some("*/*"), Some("text/plain"), Some("text/html, */*;q=0.8")]
        {
            assert_eq!(Form::accepted(header), Form::Text, "{header:?}");
        }
        let text =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Form::accepted(Some(text)), Form::OpenMetrics);
    }

    #[test]
    fn messages_are_for_scrapers_that_want_them_most() {
        for (header, form) in [
            // Prometheus 3 with native histograms.
            (
                format!(
                    "{MESSAGES};q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.4"
                ),
                Form::Messages,
            ),
            (format!("text/plain;q=0.6,{MESSAGES};q=0.5,*/*;q=0.1"), Form::Text),
            (format!("{MESSAGES};q=0, application/openmetrics-text"), Form::OpenMetrics),
            (MESSAGES.replace(";", "; "), Form::Messages),
            // Another schema, or another framing.
            (MESSAGES.replace("MetricFamily", "Other"), Form::Text),
            (MESSAGES.replace("delimited", "text"), Form::Text),
        ] {
            assert_eq!(Form::accepted(Some(&header)), form, "{header}");
        }
    }
}
