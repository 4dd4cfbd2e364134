"""The list of accepted findings, and what `make security` makes of the scanners' reports."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

import security
import security_chart
import security_findings
import security_scanners
from security_findings import Entry, Finding, split
from security_scanners import ScanError, Scanned, Scene
from support.image_packages import locked_packages

ROOT = Path(__file__).parents[3]
FINDING = Finding("bandit", "B103", "operator/a.py", "line 1: chmod")
ENTRY = Entry("bandit", "B103", "operator/*", "a reason")


# --- the list ---------------------------------------------------------------------------------------------------------
def test_every_entry_has_a_reason():
    entries = security_findings.read_list()
    assert len(entries) > 10
    assert [entry for entry in entries if len(entry.reason) < 15] == []


def test_an_entry_without_a_reason_is_an_error(tmp_path):
    (tmp_path / "list.toml").write_text('[[accepted]]\nscanner = "a"\nrule = "b"\nplace = "c"\n')
    with pytest.raises(TypeError, match="reason"):
        security_findings.read_list(tmp_path / "list.toml")


@pytest.mark.rule("SE:C1")
def test_at_most_two_rules_of_checkov_are_accepted():
    assert len([entry for entry in security_findings.read_list() if entry.scanner == "checkov"]) <= 2


@pytest.mark.parametrize(
    ("entries", "new"),
    [
        pytest.param([], 1, id="an empty list"),
        pytest.param([ENTRY], 0, id="its rule and place"),
        pytest.param([Entry("bandit", "B104", "operator/*", "r")], 1, id="another rule"),
        pytest.param([Entry("bandit", "B103", "sandbox/*", "r")], 1, id="another place"),
        pytest.param([Entry("checkov", "B103", "operator/*", "r")], 1, id="another scanner"),
        pytest.param([Entry("bandit", "*", "*", "r", count=1)], 0, id="one of one"),
        pytest.param([Entry("bandit", "*", "*", "r", count=0)], 1, id="one more than its count"),
    ],
)
def test_a_finding_is_new_unless_an_entry_covers_it(entries, new):
    found = split([FINDING], entries)
    assert (len(found.new), len(found.accepted)) == (new, 1 - new)


def test_the_second_finding_of_an_entry_for_one_is_new():
    second = Finding("bandit", "B103", "operator/b.py", "line 2: chmod")
    assert split([second, FINDING], [Entry("bandit", "B103", "operator/*", "r", count=1)]).new == [second]


@pytest.mark.parametrize(("count", "is_unused"), [(None, False), (1, False), (2, True)])
def test_an_entry_for_more_than_there_is_is_unused(count, is_unused):
    entry = Entry("bandit", "B103", "operator/*", "r", count=count)
    assert split([FINDING], [entry]).unused == ([entry] if is_unused else [])


@pytest.mark.parametrize(
    ("findings", "code", "words"),
    [
        pytest.param([FINDING], 1, "NEW  bandit B103 operator/a.py: line 1: chmod", id="a new finding"),
        pytest.param([], 0, "security: 0 new findings", id="none"),
    ],
)
def test_a_new_finding_is_printed_and_fails(capsys, findings, code, words):
    assert security.report({"bandit": Scanned("1 file", findings)}, 1.0) == code
    assert words in capsys.readouterr().out


def test_an_entry_that_is_no_longer_needed_is_printed(capsys):
    assert security.report({"checkov": Scanned("", [])}, 1.0) == 0
    assert "no longer found, remove it from security_accepted.toml: checkov CKV_K8S_43" in capsys.readouterr().out
    assert security.report({"checkov": Scanned("", [], is_complete=False)}, 1.0) == 0
    assert "no longer found" not in capsys.readouterr().out


# --- reports of scanners ----------------------------------------------------------------------------------------------
def bandit_report(number, errors=()):
    result = {"test_id": "B108", "filename": "a.py", "line_number": number, "issue_text": "temp"}
    return {"errors": list(errors), "results": [result], "metrics": {"_totals": {"loc": 1200}}}


@pytest.mark.rule("SE:C11")
def test_bandits_finding_is_accepted_in_a_line_whose_noqa_names_the_same_rule(tmp_path):
    (tmp_path / "a.py").write_text('A = "/tmp"  # noqa: S108 - inside the pod\nB = "/tmp"\nC = "/tmp"  # noqa: S103\n')
    assert security_scanners.read_bandit(bandit_report(1), tmp_path).findings == []
    for line in (2, 3):
        (finding,) = security_scanners.read_bandit(bandit_report(line), tmp_path).findings
        assert (finding.rule, finding.place) == ("B108", "a.py")


def test_a_file_that_bandit_cannot_read_is_an_error(tmp_path):
    with pytest.raises(ScanError, match="bandit could not read"):
        security_scanners.read_bandit(bandit_report(1, ["a.py"]), tmp_path)


def checkov_report(errors=0):
    failed = {"check_id": "CKV_K8S_1", "file_path": "/chart/default.yaml", "resource": "Pod.a", "check_name": "no"}
    summary = {"passed": 9, "failed": 1, "skipped": 2, "parsing_errors": errors}
    return {"check_type": "kubernetes", "summary": summary, "results": {"failed_checks": [failed]}}


@pytest.mark.rule("SE:C1")
def test_checkovs_findings_have_rendering_and_object():
    scanned = security_scanners.read_checkov([checkov_report()])
    assert scanned.figures == "kubernetes 9 passed, 2 skipped in the file"
    assert scanned.findings == [Finding("checkov", "CKV_K8S_1", "chart/default.yaml Pod.a", "no")]


@pytest.mark.parametrize("report", [checkov_report(errors=1), {"passed": 0, "failed": 0}], ids=["unreadable", "empty"])
def test_what_checkov_did_not_read_is_an_error(report):
    with pytest.raises(ScanError, match="could not read"):
        security_scanners.read_checkov(report)


@pytest.mark.rule("SE:C3")
def test_kube_scores_critical_findings_are_found_and_no_warnings():
    checks = [
        {"check": {"id": f"of-{grade}"}, "grade": grade, "skipped": skipped, "comments": [{"summary": "why"}]}
        for grade, skipped in ((1, False), (5, False), (10, False), (1, True))
    ]
    scanned = security_scanners.read_kube_score("default", [{"object_name": "Deployment/a", "checks": checks}])
    assert scanned.figures == "1"
    assert scanned.findings == [Finding("kube-score", "of-1", "default Deployment/a", "why")]


@pytest.mark.rule("SE:C4")
def test_what_kubeconform_skips_is_a_finding_too():
    bad = {"filename": "/x/ha.yaml", "kind": "Pod", "name": "a", "status": "statusInvalid", "msg": "no"}
    scanned = security_scanners.read_kubeconform({"resources": [bad], "summary": {"valid": 8, "skipped": 1}})
    assert [(finding.rule, finding.place) for finding in scanned.findings] == [
        ("statusInvalid", "ha.yaml Pod/a"),
        ("statusSkipped", "all files"),
    ]


@pytest.mark.rule("SE:C19")
def test_zizmors_findings_have_the_workflow():
    location = {"symbolic": {"key": {"Local": {"given_path": ".github/workflows/ci.yaml"}}}}
    report = [{"ident": "unpinned-uses", "desc": "no digest", "locations": [location]}]
    (finding,) = security_scanners.read_zizmor(report, 3).findings
    assert finding == Finding("zizmor", "unpinned-uses", ".github/workflows/ci.yaml", "no digest")


@pytest.fixture
def scene(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "root").mkdir()
    return Scene(tmp_path / "root", programs, programs, programs, {}, tmp_path)


def put(scene, name, text):
    (scene.packages / name).write_text(f"#!/bin/sh\n{text}\n")
    (scene.packages / name).chmod(0o755)


def test_a_scanner_that_ends_without_a_report_is_an_error(scene):
    put(scene, "zizmor", "echo it broke >&2; exit 3")
    (scene.root / ".github" / "workflows").mkdir(parents=True)
    with pytest.raises(ScanError, match="zizmor ended with 3 and no report: it broke"):
        security_scanners.zizmor(scene)


def test_a_report_that_is_no_json_is_an_error(scene):
    put(scene, "bandit", "echo what is this")
    with pytest.raises(ScanError, match="bandit wrote no JSON"):
        security_scanners.bandit(scene)


@pytest.mark.rule("SE:C15")
def test_secrets_are_searched_in_changed_files_only_and_found_each_time(scene, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    report = {"results": {"a.txt": [{"type": "AWS Access Key", "line_number": 1}]}}
    put(scene, "detect-secrets", f"echo \"$*\" >>{tmp_path}/asked; echo '{json.dumps(report)}'")
    for name in ("a.txt", "b.txt"):
        (scene.root / name).write_text(name)
    subprocess.run(["git", "init", "-q"], cwd=scene.root, check=True)
    finding = Finding("detect-secrets", "AWS Access Key", "a.txt", "line 1")
    assert security_scanners.detect_secrets(scene) == Scanned("2 files, 2 of them new", [finding])
    assert security_scanners.detect_secrets(scene) == Scanned("2 files, 0 of them new", [finding])
    (scene.root / "a.txt").write_text("changed")
    assert security_scanners.detect_secrets(scene) == Scanned("2 files, 1 of them new", [finding])
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [f"scan --no-verify --disable-plugin KeywordDetector {files}" for files in ("a.txt b.txt", "a.txt")]


def test_no_package_overwrites_detect_secrets():
    """checkov's bc-detect-secrets has a module of the same name: which of them is there depends on the order of installation."""
    assert "bc-detect-secrets" not in locked_packages(ROOT / "requirements" / "security.txt")
    assert "bc-detect-secrets" in locked_packages(ROOT / "requirements" / "checkov.txt")


# --- rules of kube-linter ---------------------------------------------------------------------------------------------
CONTAINER = {
    "image": "a:1",
    "livenessProbe": {},
    "readinessProbe": {},
    "resources": {"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}},
    "securityContext": {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    },
}
LABELS = {"matchLabels": {"app": "a"}}


def deployment(container=(), **spec):
    pod = {"serviceAccountName": "a", "containers": [{**CONTAINER, **dict(container)}], **spec}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod}
    return {"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"selector": LABELS, "template": template}}


def chart(*documents):
    account = {"kind": "ServiceAccount", "metadata": {"name": "a"}}
    policy = {"kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": {"podSelector": LABELS}}
    return [account, policy, *documents]


def role(**rule):
    return {"kind": "Role", "metadata": {"name": "a"}, "rules": [{"apiGroups": [""], **rule}]}


def context(**change):
    return {"securityContext": {**CONTAINER["securityContext"], **change}}


SECRET_KEY = {"name": "A", "valueFrom": {"secretKeyRef": {}}}


@pytest.mark.rule("SE:C2")
@pytest.mark.parametrize(
    ("document", "rules"),
    [
        pytest.param(deployment(), set(), id="a hardened pod"),
        pytest.param(role(resources=["pods"], verbs=["get"]), set(), id="reading pods"),
        pytest.param(role(resources=["pods"], verbs=["create"]), {"access-to-create-pods"}, id="creating pods"),
        pytest.param(role(resources=["secrets"], verbs=["get"]), {"access-to-secrets"}, id="reading Secrets"),
        pytest.param(
            role(resources=["pods"], verbs=["*"]), {"wildcard-in-rules", "access-to-create-pods"}, id="all verbs"
        ),
        pytest.param(
            {"kind": "ClusterRoleBinding", "metadata": {"name": "a"}, "roleRef": {"name": "cluster-admin"}},
            {"cluster-admin-role-binding"},
            id="cluster-admin",
        ),
        pytest.param(deployment(hostNetwork=True), {"host-network"}, id="the node's network"),
        pytest.param(deployment(volumes=[{"hostPath": {}}]), {"host-mounts"}, id="a folder of the node"),
        pytest.param(deployment(serviceAccountName="b"), {"non-existent-service-account"}, id="another account"),
        pytest.param(deployment({"image": "a:latest"}), {"latest-tag"}, id="the newest image"),
        pytest.param(deployment({"env": [SECRET_KEY]}), {"read-secret-from-env-var"}, id="a Secret in a variable"),
        pytest.param(
            deployment({"resources": {}}), {"unset-cpu-requirements", "unset-memory-requirements"}, id="no limits"
        ),
        pytest.param(deployment(context(runAsNonRoot=False)), {"run-as-non-root"}, id="root"),
        pytest.param(deployment(context(readOnlyRootFilesystem=False)), {"no-read-only-root-fs"}, id="a writable root"),
        pytest.param(deployment(context(privileged=True)), {"privilege-escalation-container"}, id="privileged"),
        pytest.param(deployment(context(capabilities={})), {"drop-net-raw-capability"}, id="capabilities"),
    ],
)
def test_a_rule_of_kube_linter_is_violated(document, rules):
    assert {rule for rule, _, _ in security_chart.violations(chart(document))} == rules


def test_a_pod_without_probes_is_found():
    without = {name: value for name, value in CONTAINER.items() if not name.endswith("Probe")}
    document = deployment()
    document["spec"]["template"]["spec"]["containers"] = [without]
    found = {rule for rule, _, _ in security_chart.violations(chart(document))}
    assert found == {"no-liveness-probe", "no-readiness-probe"}


def test_a_pod_that_no_policy_selects_is_found():
    documents = [each for each in chart(deployment()) if each["kind"] != "NetworkPolicy"]
    assert {rule for rule, _, _ in security_chart.violations(documents)} == {"non-isolated-pod"}


# --- levels -----------------------------------------------------------------------------------------------------------
@pytest.mark.rule("SE:C12")
def test_mypy_is_strict_for_both_packages():
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert (mypy["strict"], mypy["packages"]) == (True, ["raytide", "raytide_sandbox"])
    assert "$(BIN)/mypy\n" in (ROOT / "Makefile").read_text()
