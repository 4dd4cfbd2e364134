"""Which part of the training data is whose turn?

The master of an elastic training job: hands out tasks (chunks of the data, numbered from 0) to trainers that ask, takes a
task back when its trainer gives it up or is silent for too long, and begins the next pass when all are done; after the
last pass trainers are told that nothing is left. Trainers so need no state and may come and go: every task of every pass
is done at least once. Whatever changes is in a file before it is told, so a master that is started again goes on where
it was. It needs Python 3.8 and nothing else; `trainingjob.yaml` runs it, as Paddle's own master once was.

    POST /next    {"trainer": NAME}                                   -> {"task": N, "pass": N, "timeout_s": S}
                                                                       | {"wait_s": S} | {"finished": true}
    POST /done    {"trainer": NAME, "task": N, "pass": N, "loss": X}  -> {"counts": true}
    POST /return  {"trainer": NAME, "task": N, "pass": N}             -> {"counts": true}
    POST /enough  {"trainer": NAME}                                   -> {"pass": N}: the last one, the loss is low enough
    GET  /status  -> the whole state
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TASK_TIMEOUT_S = 16.0
MOST_TIMEOUTS = 5
WAIT_S = 0.5
Json = dict


class TaskQueue:
    """todo → pending → done, pass after pass; pure but for the clock it is given."""

    def __init__(
        self,
        tasks: int,
        passes: int,
        *,
        timeout_s: float = TASK_TIMEOUT_S,
        most_timeouts: int = MOST_TIMEOUTS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_s` is for one task; one that was late more than `most_timeouts` times in a pass is dropped from it."""
        self.tasks, self.passes = tasks, passes
        self.timeout_s, self.most_timeouts = timeout_s, most_timeouts
        self._monotonic = monotonic
        self.number = 0
        self.is_enough = False
        self.todo = list(range(tasks))
        self.pending: dict[int, tuple[str, float]] = {}  # task -> its trainer, and when that is late
        self.timeouts: dict[int, int] = {}
        self.done: list[Json] = []
        self.dropped: list[Json] = []
        self._begin_pass_if_due()

    @property
    def is_finished(self) -> bool:
        """Whether all passes are over."""
        return self.number >= self.passes

    def next(self, trainer: str) -> Json:
        """A task for this trainer, or what it does instead."""
        self.take_back_late()
        if self.is_finished:
            return {"finished": True, "dropped": len(self.dropped)}
        if not self.todo:
            return {"wait_s": WAIT_S}
        task = self.todo.pop(0)
        self.pending[task] = (trainer, self._monotonic() + self.timeout_s)
        return {"task": task, "pass": self.number, "timeout_s": self.timeout_s}

    def finish(self, trainer: str, task: int, number: int, loss: float) -> bool:
        """The task is done, late or not; False when it was done already, or its pass is over."""
        if number != self.number or task not in self._open():
            return False
        self._remove(task)
        self.done.append({"pass": number, "task": task, "trainer": trainer, "loss": loss})
        self._begin_pass_if_due()
        return True

    def give_back(self, trainer: str, task: int, number: int) -> bool:
        """The trainer leaves before it is done; somebody else does it, and nobody is blamed."""
        if number != self.number or self.pending.get(task, ("", 0.0))[0] != trainer:
            return False
        del self.pending[task]
        self.todo.insert(0, task)
        return True

    def stop_early(self) -> int:
        """The pass that runs is the last one; its number."""
        self.is_enough = True
        return self.number

    def take_back_late(self) -> None:
        """Tasks whose trainers were silent for too long are to do again, or dropped."""
        now = self._monotonic()
        for task in sorted(task for task, (_, late_at) in self.pending.items() if late_at <= now):
            trainer, _ = self.pending.pop(task)
            self.timeouts[task] = self.timeouts.get(task, 0) + 1
            if self.timeouts[task] > self.most_timeouts:
                self.dropped.append({"pass": self.number, "task": task, "trainer": trainer})
            else:
                self.todo.append(task)
        self._begin_pass_if_due()

    def _open(self) -> list[int]:
        return [*self.todo, *self.pending]

    def _remove(self, task: int) -> None:
        self.pending.pop(task, None)
        if task in self.todo:
            self.todo.remove(task)

    def _begin_pass_if_due(self) -> None:
        while not self.is_finished and not self._open():
            self.number = self.passes if self.is_enough else self.number + 1
            self.timeouts = {}
            self.todo = [] if self.is_finished else list(range(self.tasks))

    def as_json(self) -> Json:
        """The whole state; deadlines are left out, since clocks of processes do not agree."""
        return {
            "tasks": self.tasks,
            "passes": self.passes,
            "pass": self.number,
            "enough": self.is_enough,
            "finished": self.is_finished,
            "todo": self.todo,
            "pending": {str(task): trainer for task, (trainer, _) in sorted(self.pending.items())},
            "timeouts": {str(task): count for task, count in sorted(self.timeouts.items())},
            "done": self.done,
            "dropped": self.dropped,
        }

    def restore(self, state: Json) -> bool:
        """Go on from `as_json`; what was pending gets its whole time again. False when that was of another job."""
        if (state.get("tasks"), state.get("passes")) != (self.tasks, self.passes):
            return False
        late_at = self._monotonic() + self.timeout_s
        self.number, self.is_enough = state["pass"], state["enough"]
        self.todo = list(state["todo"])
        self.pending = {int(task): (trainer, late_at) for task, trainer in state["pending"].items()}
        self.timeouts = {int(task): count for task, count in state["timeouts"].items()}
        self.done, self.dropped = list(state["done"]), list(state["dropped"])
        return True


class Master:
    """A queue in a file, for one caller at a time."""

    def __init__(self, queue: TaskQueue, file: Path) -> None:
        self._queue, self._file = queue, file
        self._lock = threading.Lock()
        self.was_restored = file.exists() and queue.restore(json.loads(file.read_text()))
        self._save()  # where nothing can be kept, say so at once

    def answer(self, what: str, asked: Json) -> Json:
        """One request, on disk before it is answered; KeyError, TypeError or ValueError: it makes no sense."""
        with self._lock:
            queue = self._queue
            if what == "status":
                queue.take_back_late()
                return queue.as_json()
            trainer = str(asked["trainer"])
            if what == "next":
                answer = queue.next(trainer)
            elif what == "done":
                counts = queue.finish(trainer, int(asked["task"]), int(asked["pass"]), float(asked["loss"]))
                answer = {"counts": counts}
            elif what == "return":
                answer = {"counts": queue.give_back(trainer, int(asked["task"]), int(asked["pass"]))}
            elif what == "enough":
                answer = {"pass": queue.stop_early()}
            else:
                raise KeyError(what)
            self._save()
            return answer

    def _save(self) -> None:
        """Replace the file at once: a reader sees the old state or the new one."""
        draft = self._file.with_name(self._file.name + ".new")
        with draft.open("w") as file:
            json.dump(self._queue.as_json(), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._file)


def serve(master: Master, address: str, port: int) -> ThreadingHTTPServer:
    """A server that answers for the master; it is not running yet."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            try:
                self._answer(json.loads(self.rfile.read(length)))
            except ValueError as error:
                self._send(400, {"error": str(error)})

        def _answer(self, asked: Json) -> None:
            try:
                self._send(200, master.answer(self.path.strip("/"), asked))
            except (KeyError, TypeError, ValueError) as error:
                self._send(400, {"error": f"{type(error).__name__}: {error}"})

        def _send(self, code: int, answer: Json) -> None:
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            """Only what goes wrong is worth a line."""
            if len(args) > 1 and not str(args[1]).startswith("2"):
                print(f"{self.client_address[0]} {format % args}", flush=True)

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    return server


def main() -> None:
    """Serve until somebody ends it: trainers that start late have to hear that nothing is left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, required=True, help="chunks of the data")
    parser.add_argument("--passes", type=int, default=1, help="how often all of it is seen")
    parser.add_argument("--task-timeout-s", type=float, default=TASK_TIMEOUT_S)
    parser.add_argument("--most-timeouts", type=int, default=MOST_TIMEOUTS)
    parser.add_argument("--state", type=Path, required=True, help="the file to go on from")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--address", default=os.environ.get("POD_IP", ""), help="default: $POD_IP, else all")
    chosen = parser.parse_args()
    queue = TaskQueue(chosen.tasks, chosen.passes, timeout_s=chosen.task_timeout_s, most_timeouts=chosen.most_timeouts)
    master = Master(queue, chosen.state)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # process 1 of a container would not hear it otherwise
    with serve(master, chosen.address, chosen.port) as server:
        begun = f"going on in pass {queue.number}, {len(queue.done)} done" if master.was_restored else "from the start"
        print(f"{chosen.tasks} tasks, {chosen.passes} passes, {begun}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
