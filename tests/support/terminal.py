"""A terminal in which tests type the commands of the documentation as they stand there.

Each command runs in bash with the environment that the commands before it exported. Names that differ from run to run are replaced
as the test says. What is started in the background is ended with the terminal.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.deadlines import PATIENCE
from support.documented_commands import Command

DEADLINE_S = 90.0 * PATIENCE
WITHIN_S = 60 * PATIENCE
"""One command."""


def accept_ctrl_c() -> None:
    """Undo what a shell without job control does to its background processes: they ignore SIGINT, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A shell with an environment and a current folder."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = dict(env)
        self._background: list[subprocess.Popen[str]] = []

    def run(self, command: str, folder: Path | None = None) -> tuple[int, str]:
        """Exit code and output; exported variables stay."""
        with tempfile.NamedTemporaryFile(dir=self.folder) as variables:
            done = subprocess.run(
                ["bash", "-c", f"{command}\ncode=$?; env -0 >{variables.name}; exit $code"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
                cwd=folder or self.folder,
                env=self.env,
            )
            stored = Path(variables.name).read_text()
        self.env.update(dict(line.split("=", 1) for line in stored.split("\0") if "=" in line))
        return done.returncode, done.stdout + done.stderr

    def start(self, command: str) -> Path:
        """Run it in the background; returns the file with its output."""
        log = self.folder / f"background-{len(self._background)}.log"
        with log.open("w") as output:
            self._background.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command.removesuffix('&')}"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    text=True,
                    cwd=self.folder,
                    env=self.env,
                    preexec_fn=accept_ctrl_c,  # noqa: PLW1509 - these tests have no threads
                )
            )
        return log

    def interrupt(self) -> None:
        """Ctrl-C to the command that was started last."""
        self._background[-1].send_signal(signal.SIGINT)
        self._background.pop().wait(20 * PATIENCE)

    def close(self) -> None:
        """End what still runs."""
        for process in self._background:
            process.terminate()
        for process in self._background:
            try:
                process.wait(20 * PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextmanager
    def page(self, commands: Sequence[Command], **names: str) -> Iterator["Page"]:
        """Type the commands of a page: all of them until the end of the block, or the test fails."""
        page = Page(self, commands, names)
        yield page
        assert not page.left, f"not typed: {[command.typed for command in page.left]}"


class Page:
    """The commands of one page, of which each has to be typed."""

    def __init__(self, terminal: Terminal, commands: Sequence[Command], names: Mapping[str, str]) -> None:
        self._terminal = terminal
        self._names = names
        self.left = list(commands)

    def type(
        self,
        beginning: str,
        shows: str = "",
        *,
        codes: Collection[int] = (0,),
        folder: Path | None = None,
        **names: str,
    ) -> str:
        """Type the command that begins like this until it ends with one of the codes and shows the text; returns its output."""
        command = self._take(beginning, names)
        end = time.monotonic() + DEADLINE_S
        while True:
            code, output = self._terminal.run(command, folder)
            if code in codes and shows in output:
                return output
            assert time.monotonic() < end, f"$ {command}\nexit code {code}, expected {codes} and {shows!r}:\n{output}"
            time.sleep(0.2)

    def start(self, beginning: str, shows: str, options: str = "", **names: str) -> str:
        """Start the command in the background, with more options, until its output has the text; returns the output."""
        log = self._terminal.start(self._take(beginning, names).removesuffix("&") + options)
        end = time.monotonic() + DEADLINE_S
        while shows not in (output := log.read_text()):
            assert time.monotonic() < end, f"$ {beginning}: {shows!r} is not in\n{output}"
            time.sleep(0.05)
        return output

    def rest(self, *, codes: Collection[int] = (0,)) -> None:
        """Type all others, in their order."""
        for command in list(self.left):
            self.type(command.text, codes=codes)

    def _take(self, beginning: str, names: Mapping[str, str]) -> str:
        command = next((command for command in self.left if command.text.startswith(beginning)), None)
        assert command is not None, f"no command that is left begins with {beginning!r}"
        self.left.remove(command)
        text = command.typed
        for name, value in {**self._names, **names}.items():
            text = text.replace(name, value)
        return text


def environment(folder: Path, path: Path) -> dict[str, str]:
    """A user without a kubeconfig, with the commands in that folder on PATH."""
    kept = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "VIRTUAL_ENV"}}
    return {**kept, "HOME": str(folder), "KUBECACHEDIR": str(folder / "kube"), "PATH": f"{path}:{os.environ['PATH']}"}
