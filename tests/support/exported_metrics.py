"""Scrapes of the real registries of operator and sidecar, with a sample of every metric.

A metric with labels has no sample before its first update, so that a scrape does not show its labels. Run as a program, this
module adds one sample to each such metric and prints the scrape; `exported` runs it in another process, because the registry
of the operator is one per process, and returns the labels by the names of the samples.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from raytide.api.meta import Key
from raytide.autoscaler.reporting.metrics import SidecarMetrics
from raytide.metrics import REGISTRY, ObjectGauge


@cache
def exported() -> Mapping[str, frozenset[str]]:
    """The labels of each sample of operator and sidecar, by its name."""
    printed = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True).stdout
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(printed):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return {name: frozenset(found) for name, found in labels.items()}


def _scrapes() -> Iterator[str]:
    for registry in (REGISTRY, SidecarMetrics().registry):
        _fill(registry)
        yield generate_latest(registry).decode()


def _fill(registry: CollectorRegistry) -> None:
    for collector in {id(each): each for each in registry._names_to_collectors.values()}.values():
        if isinstance(collector, ObjectGauge):
            (family,) = collector.describe()
            own = family._labelnames[2:]
            collector.replace(Key("namespace", "name"), {tuple(own): 1})
        elif isinstance(collector, MetricWrapperBase) and collector._labelnames:
            collector.labels(*collector._labelnames)


if __name__ == "__main__":
    sys.stdout.writelines(_scrapes())
