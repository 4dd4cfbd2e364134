"""Do the parts of our scheduler decide as Ray's own? Asks both on random questions and compares every field of the answer.

`make oracle SEED=n CASES=n`. Prints the first difference with the smallest question it found that still shows it, and
exits 1. The comparison is of the `ray` package of the environment with `ray_scheduler.py` (AS §8).
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, replace

from oracle.cases import random_case
from oracle.ray_answers import Answer, answer_of, answer_of_ray, failed
from oracle.ray_scheduler import RaySchedulingError, schedule_as_ray
from raytide.autoscaler.model import SchedulingRequest


def ours_of(question: SchedulingRequest) -> Answer:
    """Our answer, in Ray's steps."""
    try:
        return answer_of(schedule_as_ray(question))
    except RaySchedulingError as error:
        return failed(str(error))


def differences(question: SchedulingRequest) -> list[str]:
    """Fields in which the answers differ, as lines for people."""
    theirs = answer_of_ray(question)
    ours = ours_of(question)
    names = [field.name for field in fields(Answer)]
    pairs = [(name, getattr(theirs, name), getattr(ours, name)) for name in names]
    return [f"{name}:\n  ray  {his}\n  ours {own}" for name, his, own in pairs if his != own]


def smaller(question: SchedulingRequest) -> Iterator[SchedulingRequest]:
    """The question with one thing less."""
    for name in ("instances", "tasks", "gangs", "types"):
        things = getattr(question, name)
        for place in range(len(things)):
            yield replace(question, **{name: (*things[:place], *things[place + 1 :])})
    if question.constraint is not None:
        yield replace(question, constraint=None)
    for place, demand in enumerate(question.tasks):
        if demand.count > 1:
            less = replace(demand, count=demand.count // 2)
            yield replace(question, tasks=(*question.tasks[:place], less, *question.tasks[place + 1 :]))
    for place, gang in enumerate(question.gangs):
        if len(gang.bundles) > 1:
            less_of_it = replace(gang, bundles=gang.bundles[1:])
            yield replace(question, gangs=(*question.gangs[:place], less_of_it, *question.gangs[place + 1 :]))


def shrunk(question: SchedulingRequest) -> SchedulingRequest:
    """The smallest question, removing one thing after another, that still shows a difference."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for less in smaller(question):
            if differences(less):
                question, is_smaller = less, True
                break
    return question


def tell(question: SchedulingRequest) -> None:
    """Print a question line by line."""
    for field in fields(question):
        value = getattr(question, field.name)
        if isinstance(value, tuple):
            print(f"{field.name}:", *(f"  {one}" for one in value), sep="\n")
        else:
            print(f"{field.name}: {value}")


def main() -> int:
    """Ask, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--size", type=float, default=1.0, help="scales the number of instances")
    asked = parser.parse_args()
    started = time.process_time()
    errors = launches = terminations = 0
    for number in range(asked.first, asked.first + asked.cases):
        question = random_case(asked.seed, number, asked.size)
        if differences(question):
            print(f"seed {asked.seed} case {number} differs; the smallest question that does:")
            question = shrunk(question)
            tell(question)
            print(*differences(question), sep="\n")
            return 1
        decision = ours_of(question)
        errors += bool(decision.error)
        launches += sum(decision.launches.values())
        terminations += len(decision.terminations)
    print(
        f"seed {asked.seed}: {asked.cases} cases, 0 differences in any field "
        f"({launches} launches, {terminations} terminations, {errors} exceptions of Ray's; "
        f"{time.process_time() - started:.0f} CPU s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
