"""Ask the code of a real API server again: `python tests/golden/admission/recorder/record.py`.

Fills in the `answer` of every case in `schema.json` and `raycluster.json`, and fails if the server would reject the CRD.
Needs Go and the module proxy; needed only when a case or the CRD changed.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from support.admission_cases import crd_of, digest, expanded, written  # noqa: E402 - the path comes first


def ask(crd: dict[str, Any], cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The recorder's answers."""
    question = json.dumps({"crd": crd, "cases": cases})
    run = subprocess.run(["go", "run", "."], cwd=HERE, input=question, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.stderr)
    answers: dict[str, Any] = json.loads(run.stdout)
    return answers


def main() -> int:
    """Record both files."""
    raycluster = yaml.safe_load((ROOT / "crds/ray.io_rayclusters.yaml").read_text())
    rejected = []
    for name in ("schema.json", "raycluster.json"):
        path = HERE.parent / name
        document = json.loads(path.read_text())
        answered = ask(
            crd_of(document) if "schema" in document else raycluster, [expanded(document, c) for c in document["cases"]]
        )
        rejected += answered["crdErrors"]
        for case, answer in zip(document["cases"], answered["answers"], strict=True):
            if "base" in document:
                answer.pop("object")
            case["answer"] = answer
        if "base" in document:
            document["crd"] = digest(raycluster)
        path.write_text(written(document))
    sys.stdout.write("\n".join(rejected) or "recorded\n")
    return 1 if rejected else 0


if __name__ == "__main__":
    raise SystemExit(main())
