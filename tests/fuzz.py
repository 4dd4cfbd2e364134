"""Fuzzing of what tenants write: quantities, merge patches, RayClusters and TrainingJobs; SE:C24.

`python tests/fuzz.py [--inputs N] [--seed S]` draws N inputs and gives them to the code that reads them. A quantity is read or
rejected with QuantityError; applied to its first object, a patch gives the second; an object is read and validated, or
rejected with pydantic's ValidationError. Any other exception ends the run with its traceback and the seed of that one input. Called by
`make properties`; `make test` runs a sample.
"""

import argparse
import copy
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from raytide.api.config import ClusterConfig
from raytide.api.merge_patch import merge_difference
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.raycluster import RayCluster
from raytide.api.trainingjob import TrainingJob
from raytide.raycluster import validation as raycluster_validation
from raytide.trainingjob import validation as trainingjob_validation

Json = Any
SAMPLES = Path(__file__).resolve().parents[1] / "samples"
SIGNS = "0123456789+-.eEKMGTPimunk _x\u0663\u00b5\x00"
"""What quantities consist of, and what looks like it."""
WORDS = ("", "a", "1", "-1", "500m", "1Gi", "1e999999999", "x" * 300, "ä", "\x00", "Always", "cpu", "main")
"""No lone surrogates and no integers beyond 64 bits: the API server sends none."""
CONFIG = ClusterConfig()


class UnexpectedResultError(Exception):
    """An input was read wrongly."""


def check_quantity(rng: random.Random) -> str:
    """One text or number."""
    text: str | float = "".join(rng.choices(SIGNS, k=rng.randrange(12)))
    if rng.random() < 0.1:
        text = rng.choice((rng.randrange(-(2**70), 2**70), rng.random() * 10.0 ** rng.randrange(-300, 300), True))
    try:
        read = Quantity.parse(text)
    except QuantityError:
        return "rejected"
    if Quantity.parse(str(read)) != read:
        raise UnexpectedResultError(f"{text!r} is not read again from {read}")
    return "read"


def check_patch(rng: random.Random) -> str:
    """One pair of objects without nulls."""
    old, new = _without_nulls(_any_object(rng)), _without_nulls(_any_object(rng))
    patch = merge_difference(old, new)
    if _applied(old, patch) != new:
        raise UnexpectedResultError(f"{patch} applied to {old} is not {new}")
    return "applied"


def check_raycluster(rng: random.Random) -> str:
    """One RayCluster: a sample in which some places are replaced."""
    try:
        cluster = RayCluster.parse(_mutated(RAYCLUSTERS, rng))
    except ValidationError:
        return "rejected"
    found = (*raycluster_validation.violations(cluster, CONFIG), *raycluster_validation.warnings(cluster))
    return "violations" if found else "valid"


def check_trainingjob(rng: random.Random) -> str:
    """One TrainingJob."""
    try:
        job = TrainingJob.parse(_mutated(TRAININGJOBS, rng))
    except ValidationError:
        return "rejected"
    found = (*trainingjob_validation.violations(job), *trainingjob_validation.warnings(job))
    return "violations" if found else "valid"


def _samples(kind: str) -> list[Json]:
    files = sorted(SAMPLES.glob("*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    found = [document for document in documents if document and document["kind"] == kind]
    for document in found:
        document["metadata"].setdefault("namespace", "default")
    return found


RAYCLUSTERS, TRAININGJOBS = _samples("RayCluster"), _samples("TrainingJob")


def _mutated(samples: list[Json], rng: random.Random) -> Json:
    obj = copy.deepcopy(rng.choice(samples))
    for _ in range(rng.randrange(1, 4)):
        _mutate(obj["spec"], rng)
    if rng.random() < 0.1:
        obj["status"] = _any_value(rng, 3)
    return obj


def _mutate(place: Json, rng: random.Random) -> None:
    """Replace, remove or add at a random place below."""
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
            place = place[key]
            continue
        action = rng.random()
        if action < 0.2:
            del place[key]
        elif action < 0.3 and isinstance(place, dict):
            place[rng.choice(WORDS)] = _any_value(rng, 2)
        else:
            place[key] = _any_value(rng, 3)
        return


def _any_object(rng: random.Random) -> dict[str, Json]:
    return {rng.choice(WORDS): _any_value(rng, 3) for _ in range(rng.randrange(4))}


def _any_value(rng: random.Random, depth: int) -> Json:
    drawn = rng.random()
    if drawn < 0.3 and depth:
        return {rng.choice(WORDS): _any_value(rng, depth - 1) for _ in range(rng.randrange(3))}
    if drawn < 0.4 and depth:
        return [_any_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return rng.choice((None, True, False, 0, 1, -1, 2**31, -(2**63), 2.0**80, 0.5, 1e308, *WORDS))


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


def _applied(old: dict[str, Json], patch: dict[str, Json]) -> dict[str, Json]:
    """JSON merge patch (RFC 7386)."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = _applied(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result


CHECKS: tuple[tuple[Callable[[random.Random], str], int], ...] = (
    (check_quantity, 60),
    (check_patch, 20),
    (check_raycluster, 10),
    (check_trainingjob, 10),
)
"""With the share of each in percent."""


def fuzz(inputs: int, seed: int) -> Counter[str]:
    """Give that many inputs; returns how many ended how, and raises the first unexpected exception, with its seed as a note."""
    found: Counter[str] = Counter()
    turns = [check for check, share in CHECKS for _ in range(share)]
    for number in range(seed, seed + inputs):
        check = turns[number % len(turns)]
        try:
            found[f"{check.__name__.removeprefix('check_')} {check(random.Random(number))}"] += 1
        except Exception as error:
            error.add_note(f"repeat it by: .venv/bin/python tests/fuzz.py --inputs 1 --seed {number}")
            raise
    return found


def main() -> None:
    """Run and print what became of the inputs."""
    parser = argparse.ArgumentParser(description="Fuzz what tenants write.")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("RAYTIDE_SEED", "0")))
    options = parser.parse_args()
    started = time.monotonic()
    for outcome, count in sorted(fuzz(options.inputs, options.seed).items()):
        print(f"{count:9,}  {outcome}")
    print(
        f"{options.inputs:9,}  inputs from seed {options.seed}, no unexpected exception ({time.monotonic() - started:.0f} s)"
    )


if __name__ == "__main__":
    sys.exit(main())
