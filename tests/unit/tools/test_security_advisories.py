"""Comparison of locks with advisories in the format of pypa/advisory-database."""

import json
from datetime import UTC, datetime

import pytest
import yaml

import security
import security_advisories as advisories
from security_findings import Finding

pytestmark = pytest.mark.rule("SE:C14")

LOCK = """\
aiohttp==3.9.1 \\
    --hash=sha256:00
ruamel.yaml==0.18.0 ; python_version < '3.14' \\
    --hash=sha256:01
"""


def record(name="aiohttp", *events, **more):
    affected = {
        "package": {"name": name, "ecosystem": "PyPI"},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    return {"id": "PYSEC-1", "modified": "2024-10-10T10:00:00Z", "aliases": ["CVE-1"], "affected": [affected], **more}


@pytest.fixture
def compare(tmp_path):
    (tmp_path / "image.txt").write_text(LOCK)

    def compare(*records, suffix=".yaml"):
        folder = tmp_path / "database" / "vulns" / "p"
        folder.mkdir(parents=True)
        for number, each in enumerate(records):
            text = json.dumps(each) if suffix == ".json" else yaml.safe_dump(each)
            (folder / f"PYSEC-{number}{suffix}").write_text(text)
        return advisories.compare(tmp_path / "database", [tmp_path / "image.txt"])

    return compare


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_an_advisory_names_package_version_and_lock(compare, suffix):
    compared = compare(record("aiohttp", {"introduced": "0"}, {"fixed": "3.9.2"}), suffix=suffix)
    assert compared.findings == [Finding("advisories", "PYSEC-1", "requirements/image.txt", "aiohttp 3.9.1: CVE-1")]
    assert (compared.packages, compared.records) == (2, 1)


@pytest.mark.parametrize(
    ("events", "is_found"),
    [
        pytest.param([{"introduced": "0"}, {"fixed": "3.9.1"}], False, id="fixed in this version"),
        pytest.param([{"introduced": "0"}, {"fixed": "3.9.2"}], True, id="fixed in the next one"),
        pytest.param([{"introduced": "0"}, {"fixed": "3.10"}], True, id="3.10 is newer than 3.9"),
        pytest.param([{"introduced": "3.9.1"}], True, id="introduced in this version and never fixed"),
        pytest.param([{"introduced": "3.9.2"}], False, id="introduced later"),
        pytest.param([{"introduced": "0"}, {"last_affected": "3.9.1"}], True, id="the last affected one"),
        pytest.param([{"introduced": "0"}, {"last_affected": "3.9.0"}], False, id="after the last affected one"),
        pytest.param(
            [{"introduced": "0"}, {"fixed": "3.8"}, {"introduced": "3.9"}, {"fixed": "4"}], True, id="in a second range"
        ),
        pytest.param([{"introduced": "0"}, {"fixed": "3.8"}, {"introduced": "3.9.5"}], False, id="between two ranges"),
    ],
)
def test_a_version_is_in_a_range(compare, events, is_found):
    assert bool(compare(record("aiohttp", *events)).findings) == is_found


def test_a_listed_version_is_affected_without_a_range(compare):
    affected = {"package": {"name": "aiohttp"}, "versions": ["3.9.1"]}
    assert compare(record(affected=[affected])).findings


@pytest.mark.parametrize("name", ["ruamel-yaml", "Ruamel_YAML"])
def test_names_are_compared_as_the_index_does(compare, name):
    assert compare(record(name, {"introduced": "0"})).findings


def test_another_package_and_a_withdrawn_advisory_are_not_found(compare):
    withdrawn = record("aiohttp", {"introduced": "0"}, withdrawn="2024-01-01T00:00:00Z")
    compared = compare(record("other", {"introduced": "0"}), withdrawn)
    assert (compared.findings, compared.records) == ([], 1)


def test_the_newest_record_tells_the_age(compare):
    compared = compare(record(), record(modified="2023-01-01T00:00:00Z"))
    assert compared.newest == datetime(2024, 10, 10, 10, tzinfo=UTC)


def test_a_database_without_records_is_an_error_and_not_success(compare):
    with pytest.raises(advisories.DatabaseMissingError, match="has no record"):
        compare()


def test_without_a_database_the_figures_say_that_nothing_was_compared(tmp_path, monkeypatch):
    monkeypatch.setenv("ADVISORIES", str(tmp_path))
    scanned = security.advisories(None)
    assert scanned.figures.startswith("not compared: no advisory database in ")
    assert "make advisories" in scanned.figures
    assert not scanned.is_complete


def test_every_lock_is_compared():
    folder = security.ROOT / "requirements"
    assert sorted(security.LOCKS) == sorted(path.name for path in folder.glob("*.txt"))
