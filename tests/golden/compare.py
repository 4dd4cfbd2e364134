"""Beside KubeRay: what do we make of these RayClusters on a real control plane, and what differs from its recordings?

Starts etcd, API server, controllers, scheduler, kwok (fake nodes that make every pod Ready) and `raytide operator` with
the rights of its chart, applies every file of SPECS in a namespace of its own, and compares what comes of it, field by
field, with REFERENCE. Every difference is told with its reason or without one; ends with 1 if there is one without, or
if the clusters still changed when they were recorded.
Run by `make golden`.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kube_tools import ToolMissingError, find_tool
from raytide.api.config import AutoscalerMode
from raytide.api.rbac_rules import DEFAULT_FEATURES, Feature
from raytide_sandbox.controlplane.processes import ControlPlane, ControlPlaneError, PlaneSettings, find_binary
from support.deadlines import PATIENCE
from support.golden_differences import Difference, compare
from support.golden_live import Capture, Captured, Kubectl
from support.golden_records import GOLDEN, HASH_ANNOTATION
from support.kwok_process import Kwok
from support.operator_process import OperatorProcess
from support.plane_admin import PlaneAdmin

NODES = 3
QUIET_S, LIMIT_S = 4.0, 90.0 * PATIENCE
OPERATOR_NAMESPACE = "raytide-system"
FEATURES = {*DEFAULT_FEATURES, Feature.AUTH_SECRETS}
"""KubeRay creates Secrets without a switch."""
SHOWN = 200


def main() -> int:
    """Run it; the exit code is for make."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--specs", type=Path, default=GOLDEN / "specs", help="folder with RayCluster files")
    parser.add_argument("--reference", type=Path, default=GOLDEN / "kuberay", help="folder with recordings of them")
    parser.add_argument("--out", type=Path, help="folder for the recordings of ours; none are kept without it")
    parser.add_argument(
        "--autoscaler-mode", choices=["raytide", "ray"], default="raytide", help="whose autoscaler the operator runs"
    )
    options = parser.parse_args()
    files = sorted(options.specs.glob("*.yaml"))
    if not files:
        print(f"no *.yaml in {options.specs}")
        return 2
    try:
        captured, is_steady = asyncio.run(capture_on_own_plane(files, options.autoscaler_mode))
    except (ControlPlaneError, ToolMissingError) as error:
        print(error)
        return 2
    if options.out:
        write_records(options.out, captured)
    code = report(captured, options.reference, options.autoscaler_mode)
    if not is_steady:
        print(f"the clusters still changed after {LIMIT_S:.0f} s: what was compared is not their final state")
    return code if is_steady else 1


async def capture_on_own_plane(files: Sequence[Path], mode: AutoscalerMode) -> tuple[dict[str, Captured], bool]:
    """Start everything, look, and end everything; returns the records and whether nothing changed any more."""
    kwok, kubectl = find_tool("kwok"), find_tool("kubectl")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raytide-golden-")))
        started = time.monotonic()
        plane = stack.enter_context(ControlPlane(folder / "plane", find_binary(), PlaneSettings(gogc=200)))
        print(f"control plane: ready in {time.monotonic() - started:.1f} s", flush=True)
        async with PlaneAdmin(plane.server, plane.authority, plane.admin_token) as admin:
            stack.enter_context(Kwok(kwok, plane.kubeconfig, folder / "kwok.log"))
            await admin.install_crd()
            await admin.make_fake_nodes(NODES)
            await admin.make_namespaces(OPERATOR_NAMESPACE)
            account = await admin.operator_account(OPERATOR_NAMESPACE, folder, mode=mode, features=FEATURES)
            own = {"POD_NAMESPACE": OPERATOR_NAMESPACE, "RAYTIDE_AUTOSCALER_MODE": mode, "RAYTIDE_AUTH_SECRETS": "true"}
            stack.enter_context(OperatorProcess(account, folder / "operator.log", environment=own))
            return await capture(admin, Kubectl(kubectl, plane.kubeconfig, folder / "kubectl"), files)


async def capture(admin: PlaneAdmin, kubectl: Kubectl, files: Sequence[Path]) -> tuple[dict[str, Captured], bool]:
    """Apply all files and wait until nothing changes; returns the records and whether that came."""
    of_all = Capture(admin, kubectl, files)
    started = time.monotonic()
    await of_all.apply()
    applied = time.monotonic()
    is_steady = await of_all.wait_until_steady(quiet_s=QUIET_S, limit_s=LIMIT_S)
    word = "steady" if is_steady else "NOT steady"
    print(f"{len(files)} files: applied in {applied - started:.1f} s, {word} after {time.monotonic() - applied:.1f} s")
    return await of_all.records(), is_steady


def write_records(folder: Path, captured: dict[str, Captured]) -> None:
    """In the format of the recordings, so that any two folders of them can be compared."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, ours in captured.items():
        (folder / f"{name}.json").write_text(json.dumps(ours.record, indent=1, sort_keys=True))


# --- telling people ----------------------------------------------------------------------------------------------------
def report(captured: dict[str, Captured], reference: Path, mode: AutoscalerMode = "raytide") -> int:
    """One paragraph per file that differs, and the sum."""
    print(
        f"\nCompared with {reference}; versions of the operator and its recreate hash ({HASH_ANNOTATION}) never count.\n"
    )
    identical = listed = unlisted = 0
    for name, ours in sorted(captured.items()):
        recorded = reference / f"{name}.json"
        if not recorded.exists():
            print(f"UNLISTED   {name}: no recording {recorded}")
            unlisted += 1
            continue
        found = compare(ours.fate_beside(json.loads(recorded.read_text()), mode))
        odd = [difference for difference in found if not difference.reason]
        print(file_line(name, found, odd))
        for difference in odd:
            print(textwrap.indent(paragraph(difference), " " * 11))
        identical, listed, unlisted = identical + (not found), listed + bool(found and not odd), unlisted + bool(odd)
    print(f"\nfiles identical: {identical} · with listed differences: {listed} · with unlisted ones: {unlisted}")
    return 1 if unlisted else 0


def file_line(name: str, found: Sequence[Difference], odd: Sequence[Difference]) -> str:
    """What became of one file, in one line or one per reason."""
    if not found:
        return f"identical  {name}"
    places_by_reason: dict[str, list[str]] = {}
    for difference in found:
        if difference.reason:
            places_by_reason.setdefault(difference.reason, []).append(difference.place)
    reasons = "".join(f"\n{'':11}{len(places):3} × {reason}" for reason, places in places_by_reason.items())
    return f"{'UNLISTED ' if odd else 'listed   '}  {name}{reasons}"


def paragraph(difference: Difference) -> str:
    """Both sides of a difference that nobody expects."""
    return "\n".join(
        [
            f"no reason known: {difference.place}",
            f"    reference {json.dumps(difference.recorded)[:SHOWN]}",
            f"    ours      {json.dumps(difference.ours)[:SHOWN]}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
