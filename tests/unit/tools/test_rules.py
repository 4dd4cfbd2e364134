"""Citations of rules in sample texts, the reference that they must resolve in, and the rules that no test cites."""

import pytest

from rules import citations, key_of, open_rules, reference_of, unresolved

PAGE = """# Sample

<a id="RC-5.4"></a>
## 5.4 Suspend

- <a id="RC-SU-1"></a>**RC:SU-1** stored before **RC:SU-9** is read.
- <a id="RC-SU-2"></a><a id="RC-SU-3"></a>**RC:SU-2..3** both.
- <a id="TJ-3.6"></a>**TJ:3.6** a row.
- <a id="PF-P9B"></a>**PF:P9B** a bar.

| <a id="D6"></a>**D6** | a decision |
"""


@pytest.fixture
def reference():
    return reference_of({"docs/reference/sample.md": PAGE})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(RC:POD-21; D6)", ["RC:POD-21", "D6"], id="a rule and a decision"),
        pytest.param(
            "RC:MH-1..3, RM:F1–F3.", ["RC:MH-1", "RC:MH-2", "RC:MH-3", "RM:F1", "RM:F2", "RM:F3"], id="ranges"
        ),
        pytest.param("FD:AS-A1 to FD:AS-A3", ["FD:AS-A1", "FD:AS-A2", "FD:AS-A3"], id="a prefix at its end"),
        pytest.param("RC:V-16..V-18, V-41", ["RC:V-16", "RC:V-17", "RC:V-18", "RC:V-41"], id="a range, then one more"),
        pytest.param("FD:RC-B1, B4; FD:REL-A, B", ["FD:RC-B1", "FD:RC-B4", "FD:REL-A", "FD:REL-B"], id="lists"),
        pytest.param("SC:S2, 30 s; SC:S3, B-16", ["SC:S2", "SC:S3"], id="a number or another series ends a list"),
        pytest.param("TJ §3 rows 6 and 7, §4 step 4", ["TJ:3", "TJ:3.6", "TJ:3.7", "TJ:4"], id="rows of a section"),
        pytest.param("TJ §7 item 4 and RC §1.5–1.6", ["TJ:7", "TJ:7.4", "RC:1.5", "RC:1.6"], id="an item, sections"),
        pytest.param("RM §2.3 S13, F1–F2; RM F5", ["RM:2.3", "RM:S13", "RM:F1", "RM:F2", "RM:F5"], id="its rules"),
        pytest.param("RC §3.1 (POD-6), §3.6", ["RC:3.1", "RC:POD-6", "RC:3.6"], id="rules in brackets"),
        pytest.param("TJ 7.12, and PF: method", ["TJ:7.12"], id="a blank in place of the colon, and a word"),
        pytest.param("RC:K-6\nand D3 of TJ:D5", ["RC:K-6", "TJ:D5", "D3"], id="a decision is no defect of TJ"),
    ],
)
def test_citations(text, expected):
    assert list(dict.fromkeys(citation.rule for citation in citations(text))) == expected


def test_a_citation_has_its_line():
    assert [(c.rule, c.line) for c in citations("one\n\nthree RC:K-6\n# D6")] == [("RC:K-6", 3), ("D6", 4)]


def test_literals_count_where_a_marker_computes_its_ids():
    text = 'ROWS = {"V17 is free": "V-16", "x": "no id"}\nrule(*{f"RC:{rule}" for rule in ROWS})\n'
    assert [(c.rule, c.is_literal) for c in citations(text)] == [("RC:V17", False), ("RC:V-16", False)]
    assert list(citations('ROWS = {"V17": "V-16"}')) == []


@pytest.mark.parametrize("rule", ["TJ:3.21", "TJ:3-21", "TJ-3.21", "TJ-3-row-21", "TJ 3.21"])
def test_spellings_of_one_id_are_equal(rule):
    assert key_of(rule) == "TJ-3-21"


def test_rules_are_the_bold_ids_behind_an_anchor(reference):
    assert sorted(reference.rules.values()) == ["D6", "PF:P9B", "RC:SU-1", "RC:SU-2", "RC:SU-3", "TJ:3.6"]
    assert reference.faults == []


def test_faults_of_the_notation_are_found():
    pages = {"a.md": '<a id="RC-1"></a>', "b.md": '\n<a id="RC-1"></a>\n- <a id="SC-S1"></a>**SC:S2** x'}
    assert reference_of(pages).faults == ["b.md:2: RC-1 is an anchor already", "b.md:3: SC:S2 has no anchor"]


def test_what_has_no_anchor_is_named_with_file_and_line(reference):
    files = {
        "operator/a.py": "RC §5.4, RC:SU-1..3\nTJ §3 row 6c, D6",
        "tests/b.py": '@pytest.mark.rule("D6", "SU-1")\n# RC:SU-4, RC:SU-4\n# RC §5.5',
    }
    assert [fault for fault in unresolved(files, reference) if "TJ:3 " not in fault] == [
        "tests/b.py:2: RC:SU-4 is not in docs/reference",
        "tests/b.py:3: RC:5.5 is not in docs/reference",
        "tests/b.py:1: SU-1 names no prefix",
    ]


def test_rules_that_only_the_product_cites_are_open(reference):
    files = {
        "operator/a.py": "RC:SU-1, RC:SU-3",
        "tests/b.py": '@pytest.mark.rule("RC:SU-2", "TJ:3-6")',
        "bench/sidecar_decision_cpu.py": '"""P9B: CPU of one decision."""',
    }
    assert open_rules(files, reference) == ["D6", "RC:SU-1", "RC:SU-3"]


def test_open_rules_are_sorted_by_number():
    ids = ("S10", "S9", "S100")
    reference = reference_of({"a.md": "\n".join(f'- <a id="SC-{each}"></a>**SC:{each}** x' for each in ids)})
    assert open_rules({}, reference) == ["SC:S9", "SC:S10", "SC:S100"]
