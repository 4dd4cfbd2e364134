"""Deadlines know the machine: its speed, its load and its quota."""

import pytest

import machine_speed
from machine_speed import LONGEST, REFERENCE_S


@pytest.mark.parametrize(
    ("cpu", "wall", "runnable", "expected"),
    [
        (1.0, 1.0, 1, 1.0),
        (0.5, 0.5, 1, 1.0),
        (2.0, 2.0, 1, 2.0),
        (1.0, 5.0, 1, 5.0),
        (1.0, 1.0, 3, 2.0),
        (2.0, 2.0, 9, 10.0),
        (9.0, 99.0, 9, LONGEST),
    ],
    ids=[
        "an idle machine",
        "a faster one has the same deadlines",
        "a slower one",
        "its share of a processor is a fifth",
        "two other processes on two processors",
        "slower, and eight other processes",
        "a hanging test must still end",
    ],
)
def test_patience(monkeypatch, cpu, wall, runnable, expected):
    now = {"cpu": 0.0, "wall": 0.0}

    def work():
        now["cpu"] += cpu * REFERENCE_S
        now["wall"] += wall * REFERENCE_S

    monkeypatch.setattr(machine_speed, "_work", work)
    monkeypatch.setattr(machine_speed, "_runnable_processes", lambda: runnable)
    monkeypatch.setattr(machine_speed.time, "thread_time", lambda: now["cpu"])
    monkeypatch.setattr(machine_speed.time, "monotonic", lambda: now["wall"])
    monkeypatch.setattr(machine_speed.os, "sched_getaffinity", lambda _: {0, 1})
    assert machine_speed.patience() == pytest.approx(expected)
