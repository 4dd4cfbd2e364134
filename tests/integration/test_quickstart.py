"""docs/quickstart.md, word for word: its commands in an empty folder, in one shell, with real Ray.

Only the address of the repository is that of this checkout, whose committed files are cloned, and the sandbox has a folder of its own.
"""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support.deadlines import PATIENCE

pytestmark = [
    pytest.mark.ray,
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
    pytest.mark.rule("FD:UX-10"),
    pytest.mark.timeout(600),
]
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "quickstart.md").read_text()
EXAMPLES = [
    tuple(example.partition("\n")[::2])
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
]
"""Each command of the page, and what it prints there."""
MARK = "@@@"
DEADLINE_S = 500 * PATIENCE
WAITS = 3
"""Exit code of `raytide why` where something waits."""


def typed(command: str, number: int) -> str:
    """The command as the shell gets it: after its output a line with its exit code."""
    return f"{command}\necho '{MARK}' {number} $?\n"


@pytest.fixture
def folder(tmp_path):
    """An empty folder; whatever the commands started is gone afterwards."""
    yield tmp_path
    environ = {**os.environ, "RAYTIDE_SANDBOX_DIR": str(tmp_path / "s")}
    raytide = tmp_path / "work" / "raytide" / ".venv" / "bin" / "raytide"
    if raytide.exists():
        subprocess.run(
            [raytide, "sandbox", "down"], env=environ, capture_output=True, timeout=60 * PATIENCE, check=False
        )


def test_five_minutes_to_a_first_cluster(folder):
    work = folder / "work"
    work.mkdir()
    commands = [command.replace("<this repository>", str(ROOT)) for command, _ in EXAMPLES]
    script = "".join(typed(command, number) for number, command in enumerate(commands))
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("KUBECONFIG", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MAKELEVEL")
    }
    environ |= {"RAYTIDE_SANDBOX_DIR": str(folder / "s"), "RAY_raylet_start_wait_time_s": "120"}
    with subprocess.Popen(
        ["bash", "-c", script], cwd=work, env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            printed, _ = shell.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            printed, _ = shell.communicate()
            pytest.fail(f"not within {DEADLINE_S} s:\n{printed}")
    answers = re.split(rf"{MARK} \d+ (\d+)\n", printed)
    outputs, codes = answers[:-1:2], [int(code) for code in answers[1::2]]
    assert len(codes) == len(commands), printed
    asked_why = [number for number, command in enumerate(commands) if command == "raytide why sample"]
    expected = [WAITS if number == asked_why[1] else 0 for number in range(len(commands))]
    assert codes == expected, printed
    for number, (command, shown) in enumerate(EXAMPLES):
        for line in filter(None, shown.splitlines()):
            if line != "…" and not line.startswith(("sample ", "NAME ")):
                assert line.strip() in outputs[number], printed
        if command == "kubectl get raycluster sample":
            assert outputs[number].splitlines()[1].split()[-1] == "2", "READY WORKERS is 2, and there is no reason"
