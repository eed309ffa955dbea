//! One page of metrics while it is written: a row of the page is a name, a help text and rows of labels with values.

use std::collections::HashMap;
use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelValue, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::histogram::Distribution;

/// One page of metrics being written.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

impl Page<'_> {
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    pub(super) fn counter_f64(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        distribution: &Distribution,
    ) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        write(encoder, distribution)
    }

    pub(super) fn histograms<'l, V: EncodeLabelValue, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'l str, V); N], Distribution)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        rows.into_iter().try_for_each(|(labels, distribution)| {
            write(family.encode_family(&labels)?, &distribution)
        })
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    pub(super) fn counters<'l, V: EncodeLabelValue, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'l str, V); N], u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        rows.into_iter().try_for_each(|(labels, value)| {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)
        })
    }

    pub(super) fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = ([(&'l str, &'l str); N], f64)>,
    ) -> fmt::Result {
        let mut family: MetricEncoder<'_> =
            self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        rows.into_iter().try_for_each(|(labels, value)| {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)
        })
    }
}

fn write(mut encoder: MetricEncoder<'_>, distribution: &Distribution) -> fmt::Result {
    let none: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
    let mut buckets = distribution.buckets.clone();
    buckets.push((f64::INFINITY, distribution.above));
    encoder.encode_histogram(distribution.sum, distribution.count(), &buckets, none)
}
