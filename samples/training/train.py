"""What do trainers and parameter servers of an elastic job run?

One program for both, as PaddlePaddle's fleet wants it: a model whose weights are one sparse table on the parameter
servers, trained in asynchronous mode. Trainers keep nothing: they ask the master (master.py) for a chunk of the data,
train on it, tell its loss and ask again until nothing is left, so any number of them may come and go at any moment. The
data is made up from the chunk's number: each sample has a few features of a vocabulary, and its value is the sum of their
hidden weights, which the table has to find out. Who is who comes from the variables that the operator sets.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import Any

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are threads: Leaving waits for it

import numpy as np  # noqa: E402
import paddle  # noqa: E402
from paddle.distributed import fleet  # noqa: E402

VOCABULARY = 200
FEATURES = 4
WIDTH = 9
BATCH = 64
BATCHES_PER_TASK = 16
SECONDS_PER_TASK = float(os.environ.get("SECONDS_PER_TASK", "1"))
"""A chunk takes at least so long: this model is tiny, and an example that ends at once shows nothing."""
PATIENCE_S = 120.0
"""For a master or parameter servers that are being replaced."""
STUCK_S = 60.0
"""Training that does not move for so long never will: its parameter server has another address now."""
TERMINATED = 128 + signal.SIGTERM


class Leaving:
    """Ends the process when it is told to, or when it is stuck; as process 1 of a container nobody else would."""

    def __init__(self) -> None:
        self._moved_at = time.monotonic()
        self._task: dict[str, Any] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._wait, daemon=True).start()

    def moved(self, task: dict[str, Any] | None) -> None:
        """The trainer works on this task, or on none."""
        with self._lock:
            self._moved_at, self._task = time.monotonic(), task

    def never_stuck(self) -> None:
        """A parameter server waits for others all day."""
        self._moved_at = float("inf")

    def _wait(self) -> None:
        while signal.sigtimedwait({signal.SIGTERM}, 1.0) is None:
            if time.monotonic() - self._moved_at > STUCK_S:
                print(f"stuck for {STUCK_S:.0f} s", flush=True)
                os._exit(1)
        with self._lock:  # the trainer gets no further than its next step
            if self._task is not None:
                print(f"leaving: task {self._task['task']} is for somebody else", flush=True)
                try:
                    ask_master("return", patience_s=1.0, **self._task)
                except OSError as error:
                    print(f"the master will notice by itself: {error}", flush=True)
            os._exit(TERMINATED)


def ask_master(what: str, patience_s: float = PATIENCE_S, **asked: Any) -> dict[str, Any]:
    """One question to the master, again and again while it is away."""
    url = f"http://{os.environ['RAYTIDE_MASTER_ENDPOINT']}/{what}"
    body = json.dumps({"trainer": os.environ["POD_NAME"], **asked}).encode()
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=5.0) as response:
                return json.load(response)
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.5)


def resolve(endpoint: str) -> str:
    """`name:port` with the name's address; as it is where there is none yet."""
    host, _, port = endpoint.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{port}"
    except OSError:
        return endpoint


def find_pservers(*, has_to_wait: bool) -> None:
    """Put addresses in the place of names: fleet compares and connects by address."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        found = [resolve(one) for one in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")]
        is_complete = all(socket_address(one) for one in found)
        if is_complete or not has_to_wait or time.monotonic() > give_up_at:
            break
        time.sleep(0.5)
    os.environ["PADDLE_PSERVERS_IP_PORT_LIST"] = ",".join(found)


def socket_address(endpoint: str) -> bool:
    """Whether it begins with an address."""
    try:
        socket.inet_aton(endpoint.rpartition(":")[0])
    except OSError:
        return False
    return True


def build_model() -> Any:
    """The loss of a batch, to be made smaller in asynchronous mode."""
    features = paddle.static.data("features", [None, 1], "int64")
    values = paddle.static.data("values", [None, 1], "float32")
    rows = paddle.static.nn.sparse_embedding(
        features, size=[VOCABULARY, WIDTH], param_attr=paddle.ParamAttr(name="weights")
    )
    guessed = paddle.sum(paddle.reshape(rows, [-1, FEATURES * WIDTH]), axis=1, keepdim=True) / WIDTH**0.5
    loss = paddle.mean(paddle.nn.functional.square_error_cost(guessed, values))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.005), strategy).minimize(loss)
    return loss


def read_chunk(task: int) -> list[dict[str, np.ndarray]]:
    """The batches of one chunk: the same whoever reads it, and in every pass."""
    hidden = np.random.default_rng(0).standard_normal(VOCABULARY).astype("float32")
    random = np.random.default_rng(task + 1)
    drawn = random.integers(0, VOCABULARY, (BATCHES_PER_TASK, BATCH, FEATURES))
    return [{"features": batch.reshape(-1, 1), "values": hidden[batch].sum(axis=1, keepdims=True)} for batch in drawn]


def train_chunk(executor: Any, loss: Any, task: int) -> float:
    """Train on a chunk; its mean loss on the way."""
    began = time.monotonic()
    losses = []
    for number, batch in enumerate(read_chunk(task), start=1):
        (found,) = executor.run(paddle.static.default_main_program(), feed=batch, fetch_list=[loss])
        losses.append(float(found))
        time.sleep(max(0.0, began + SECONDS_PER_TASK * number / BATCHES_PER_TASK - time.monotonic()))
    return sum(losses) / len(losses)


def train(loss: Any, leaving: Leaving) -> None:
    """Task after task, until the master says that nothing is left."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    while True:
        leaving.moved(None)
        answer = ask_master("next")
        if answer.get("finished"):
            break
        if "wait_s" in answer:
            time.sleep(answer["wait_s"])
            continue
        task = {"task": answer["task"], "pass": answer["pass"]}
        leaving.moved(task)
        found = train_chunk(executor, loss, answer["task"])
        leaving.moved(None)
        ask_master("done", loss=found, **task)
        print(f"pass {task['pass']} task {task['task']} loss {found:.4f}", flush=True)
    fleet.stop_worker()  # what it learned last is on the parameter servers now
    dropped = answer["dropped"]
    print(f"{dropped} tasks could not be done" if dropped else "nothing left to do", flush=True)
    os._exit(1 if dropped else 0)  # Paddle takes seconds to take itself apart


def main() -> None:
    """Be what TRAINING_ROLE says."""
    leaving = Leaving()
    is_pserver = os.environ["TRAINING_ROLE"] == "PSERVER"
    find_pservers(has_to_wait=not is_pserver)
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    loss = build_model()
    if is_pserver:
        leaving.never_stuck()
        fleet.init_server()
        print("serving", flush=True)
        fleet.run_server()
    else:
        train(loss, leaving)


if __name__ == "__main__":
    main()
