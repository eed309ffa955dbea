//! One page of metrics while it is written: a row of the page is a name, a help text and rows of labels with values. It is
//! written as text by prometheus-client, or as messages of Protocol Buffers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelValue, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::format::{self, Form};
use super::messages::{self, Family, Kind, Label, Metric, Number};
use crate::histogram::Distribution;

/// Metrics that are read when they are asked for.
pub trait Part: fmt::Debug + Send + Sync + 'static {
    /// Writes them, without the prefix of their section.
    ///
    /// # Errors
    /// Those of the page.
    fn write(&self, page: &mut Page<'_>) -> fmt::Result;
}

/// Metrics whose names begin alike, in each form that they may be asked for.
#[derive(Debug)]
pub struct Section {
    text: Registry,
    prefix: &'static str,
    part: Arc<dyn Part>,
}

#[derive(Debug)]
struct AsText(Arc<dyn Part>);

impl Collector for AsText {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Page(To::Text(encoder)))
    }
}

impl Section {
    /// With this prefix, whose underscore is written here; empty where names are whole.
    pub fn of(prefix: &'static str, part: impl Part) -> Section {
        let part: Arc<dyn Part> = Arc::new(part);
        let mut text = match prefix {
            "" => Registry::default(),
            prefix => Registry::with_prefix(prefix),
        };
        text.register_collector(Box::new(AsText(Arc::clone(&part))));
        Section { text, prefix, part }
    }

    /// A page of these sections.
    ///
    /// # Panics
    /// Never in fact: writing to memory cannot fail.
    pub fn page(sections: &[&Section], form: Form) -> Vec<u8> {
        if form == Form::Messages {
            let mut families = Vec::new();
            for Section { prefix, part, .. } in sections {
                let to = To::Messages { prefix, families: &mut families };
                part.write(&mut Page(to)).expect("nothing is written that can fail");
            }
            return messages::octets(&families);
        }
        let mut text = String::new();
        for section in sections {
            encode_registry(&mut text, &section.text).expect("writing to a String cannot fail");
        }
        encode_eof(&mut text).expect("writing to a String cannot fail");
        let text = if form == Form::Text { format::older(&text) } else { text };
        text.into_bytes()
    }
}

/// One page of metrics being written.
pub struct Page<'a>(To<'a>);

enum To<'a> {
    Text(DescriptorEncoder<'a>),
    Messages { prefix: &'static str, families: &'a mut Vec<Family> },
}

/// What one series has.
enum Value<'v> {
    Count(u64),
    Sum(f64),
    Gauge(f64),
    Histogram(&'v Distribution),
}

impl Value<'_> {
    fn text(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Value::Count(value) => ConstCounter::new(*value).encode(encoder),
            Value::Sum(value) => ConstCounter::new(*value).encode(encoder),
            Value::Gauge(value) => ConstGauge::new(*value).encode(encoder),
            Value::Histogram(distribution) => {
                let none: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
                let mut buckets = distribution.buckets.clone();
                buckets.push((f64::INFINITY, distribution.above));
                encoder.encode_histogram(distribution.sum, distribution.count(), &buckets, none)
            }
        }
    }

    fn message<V: AsRef<str>>(&self, labels: &[(&str, V)]) -> Metric {
        let labels = labels.iter().map(|(name, value)| Label {
            name: Some((*name).to_owned()),
            value: Some(value.as_ref().to_owned()),
        });
        let mut metric = Metric { labels: labels.collect(), ..Metric::default() };
        match self {
            Value::Count(value) => metric.counter = Some(Number { value: Some(*value as f64) }),
            Value::Sum(value) => metric.counter = Some(Number { value: Some(*value) }),
            Value::Gauge(value) => metric.gauge = Some(Number { value: Some(*value) }),
            Value::Histogram(distribution) => metric.histogram = Some((*distribution).into()),
        }
        metric
    }
}

impl Kind {
    const fn of_text(self) -> MetricType {
        match self {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        }
    }
}

impl To<'_> {
    /// A family as a message; nothing without a series.
    fn message(&mut self, name: &str, help: &str, kind: Kind, metrics: Vec<Metric>) {
        if let To::Messages { prefix, families } = self
            && !metrics.is_empty()
        {
            let underscore = if prefix.is_empty() { "" } else { "_" };
            let suffix = if kind == Kind::Counter { "_total" } else { "" };
            families.push(Family {
                name: Some(format!("{prefix}{underscore}{name}{suffix}")),
                help: Some(help.to_owned()),
                kind: Some(kind.into()),
                metrics,
            });
        }
    }
}

impl Page<'_> {
    /// A counter without labels.
    ///
    /// # Errors
    /// Never in memory.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.single(name, help, Kind::Counter, &Value::Count(value))
    }

    /// A counter without labels that is no whole number.
    ///
    /// # Errors
    /// Never in memory.
    pub fn counter_f64(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.single(name, help, Kind::Counter, &Value::Sum(value))
    }

    /// A gauge without labels.
    ///
    /// # Errors
    /// Never in memory.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.single(name, help, Kind::Gauge, &Value::Gauge(value))
    }

    /// A histogram without labels.
    ///
    /// # Errors
    /// Never in memory.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        distribution: &Distribution,
    ) -> fmt::Result {
        self.single(name, help, Kind::Histogram, &Value::Histogram(distribution))
    }

    /// A counter with a row for each of these labels.
    ///
    /// # Errors
    /// Never in memory.
    pub fn counters<'l, V: EncodeLabelValue + AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'l str, V); N], u64)>,
    ) -> fmt::Result {
        self.family(name, help, Kind::Counter, rows, |value| Value::Count(*value))
    }

    /// A gauge with a row for each of these labels.
    ///
    /// # Errors
    /// Never in memory.
    pub fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'l str, &'l str); N], f64)>,
    ) -> fmt::Result {
        self.family(name, help, Kind::Gauge, rows, |value| Value::Gauge(*value))
    }

    /// A histogram with rows for each of these labels.
    ///
    /// # Errors
    /// Never in memory.
    pub fn histograms<'l, V: EncodeLabelValue + AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'l str, V); N], Distribution)>,
    ) -> fmt::Result {
        self.family(name, help, Kind::Histogram, rows, |value| Value::Histogram(value))
    }

    fn single(&mut self, name: &str, help: &str, kind: Kind, value: &Value<'_>) -> fmt::Result {
        match &mut self.0 {
            To::Text(encoder) => {
                value.text(encoder.encode_descriptor(name, help, None, kind.of_text())?)
            }
            to @ To::Messages { .. } => {
                to.message(name, help, kind, vec![value.message::<&str>(&[])]);
                Ok(())
            }
        }
    }

    fn family<'l, T, V: EncodeLabelValue + AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: Kind,
        rows: impl IntoIterator<Item = ([(&'l str, V); N], T)>,
        value: impl Fn(&T) -> Value<'_>,
    ) -> fmt::Result {
        match &mut self.0 {
            To::Text(encoder) => {
                let mut family = encoder.encode_descriptor(name, help, None, kind.of_text())?;
                rows.into_iter()
                    .try_for_each(|(labels, row)| value(&row).text(family.encode_family(&labels)?))
            }
            to @ To::Messages { .. } => {
                let metrics = rows.into_iter().map(|(labels, row)| value(&row).message(&labels));
                let metrics = metrics.collect();
                to.message(name, help, kind, metrics);
                Ok(())
            }
        }
    }
}
