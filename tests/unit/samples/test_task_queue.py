"""The assignment of tasks to trainers."""

import random
from types import ModuleType

import pytest

TIMEOUT_S = 16.0


class Time:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def make(master: ModuleType, time: Time):
    def make(tasks=3, passes=1, **settings):
        return master.TaskQueue(tasks, passes, monotonic=time, **settings)

    return make


def ask(queue, trainer="a") -> int:
    return queue.next(trainer)["task"]


def test_tasks_are_assigned_in_order_and_each_once(make):
    queue = make(3)
    assert queue.next("a") == {"task": 0, "pass": 0, "timeout_s": TIMEOUT_S}
    assert [ask(queue, "b"), ask(queue, "a")] == [1, 2]


def test_a_trainer_waits_while_others_have_the_last_tasks(make):
    queue = make(1)
    ask(queue, "a")
    assert queue.next("b") == {"wait_s": 0.5}


def test_after_the_last_pass_the_queue_is_finished(make):
    queue = make(1, passes=2)
    for number in range(2):
        assert queue.next("a")["pass"] == number
        assert queue.finish("a", 0, number, 0.5)
    assert queue.is_finished
    assert queue.next("a") == {"finished": True, "dropped": 0}


@pytest.mark.parametrize(("tasks", "passes"), [(0, 3), (3, 0)], ids=["no tasks", "no passes"])
def test_nothing_to_do_is_finished_at_once(make, tasks, passes):
    assert make(tasks, passes).next("a")["finished"]


def test_the_next_pass_begins_when_all_tasks_of_this_one_are_done(make):
    queue = make(2, passes=2)
    first, second = ask(queue, "a"), ask(queue, "b")
    queue.finish("a", first, 0, 1.0)
    assert queue.number == 0
    queue.finish("b", second, 0, 1.0)
    assert (queue.number, queue.todo) == (1, [0, 1])


@pytest.mark.rule("TJ:2.2")
def test_a_task_is_reassigned_after_its_trainer_timed_out(make, time):
    queue = make(1)
    ask(queue, "a")
    time.s += TIMEOUT_S - 0.01
    assert "wait_s" in queue.next("b")
    time.s += 0.01
    assert ask(queue, "b") == 0


def test_a_task_finished_after_its_timeout_counts_and_is_not_reassigned(make, time):
    queue = make(2)
    ask(queue, "a")
    time.s += TIMEOUT_S
    queue.take_back_late()
    assert queue.finish("a", 0, 0, 1.0)
    assert [ask(queue, "b"), queue.next("c").get("task")] == [1, None]


def test_the_second_of_two_that_did_a_task_does_not_count(make, time):
    queue = make(1, passes=2)
    ask(queue, "a")
    time.s += TIMEOUT_S
    ask(queue, "b")
    assert queue.finish("b", 0, 0, 1.0)
    assert not queue.finish("a", 0, 0, 1.0)
    assert [(done["task"], done["pass"], done["trainer"]) for done in queue.done] == [(0, 0, "b")]


@pytest.mark.rule("TJ:2.2")
def test_a_task_that_is_late_too_often_is_dropped_and_reported(make, time):
    queue = make(1, passes=2, most_timeouts=2)
    for _ in range(3):
        assert ask(queue) == 0
        time.s += TIMEOUT_S
    assert queue.next("a")["pass"] == 1
    assert queue.dropped == [{"pass": 0, "task": 0, "trainer": "a"}]
    queue.finish("a", 0, 1, 1.0)
    assert queue.next("a") == {"finished": True, "dropped": 1}


def test_a_new_pass_resets_the_timeouts(make, time):
    queue = make(1, passes=2, most_timeouts=1)
    ask(queue)
    time.s += TIMEOUT_S
    ask(queue)
    queue.finish("a", 0, 0, 1.0)
    ask(queue)
    time.s += TIMEOUT_S
    assert ask(queue) == 0
    assert queue.dropped == []


def test_a_trainer_that_leaves_returns_its_task_without_a_timeout(make):
    queue = make(2)
    ask(queue, "a")
    assert queue.give_back("a", 0, 0)
    assert (queue.todo, queue.timeouts) == ([0, 1], {})


@pytest.mark.parametrize(
    ("trainer", "task", "number"),
    [("b", 0, 0), ("a", 1, 0), ("a", 0, 1)],
    ids=["another trainer's task", "a task of no trainer", "a task of another pass"],
)
def test_only_the_trainer_that_has_a_task_can_give_it_back(make, trainer, task, number):
    queue = make(2)
    ask(queue, "a")
    assert not queue.give_back(trainer, task, number)
    assert list(queue.pending) == [0]


@pytest.mark.parametrize("seed", range(20))
def test_every_task_of_every_pass_is_done_exactly_once_in_any_history_of_trainers(make, time, master, seed):
    """Trainers at random, the master itself included: it is started again from its state now and then."""
    lot = random.Random(seed)
    tasks, passes = 7, 3
    queue, held = make(tasks, passes, most_timeouts=1000), []
    while not queue.is_finished:
        time.s += lot.random() * 3
        act = lot.choice(["ask", "ask", "finish", "finish", "return", "die", "restart"])
        if act == "ask":
            trainer = f"t{lot.randrange(5)}"
            answer = queue.next(trainer)
            if "task" in answer:
                held.append((trainer, answer["task"], answer["pass"]))
        elif act == "restart":
            state, queue = queue.as_json(), make(tasks, passes, most_timeouts=1000)
            assert queue.restore(state)
        elif held:
            trainer, task, number = held.pop(lot.randrange(len(held)))
            if act == "finish":
                queue.finish(trainer, task, number, lot.random())
            elif act == "return":
                queue.give_back(trainer, task, number)
    done = sorted((done["pass"], done["task"]) for done in queue.done)
    assert done == [(number, task) for number in range(passes) for task in range(tasks)]


def test_when_it_is_enough_the_pass_that_runs_is_done_to_its_end_and_is_the_last(make):
    queue = make(2, passes=100)
    first = ask(queue)
    assert queue.stop_early() == 0
    queue.finish("a", first, 0, 1.0)
    again = make(2, passes=100)
    assert again.restore(queue.as_json())
    second = ask(again)
    again.finish("a", second, 0, 1.0)
    assert again.next("a") == {"finished": True, "dropped": 0}
    assert [done["task"] for done in again.done] == [0, 1]


def test_the_state_survives_and_pending_tasks_get_their_whole_time_again(make, time):
    queue = make(3, passes=2)
    ask(queue, "a")
    ask(queue, "b")
    queue.finish("a", 0, 0, 0.25)
    time.s += TIMEOUT_S - 1
    again = make(3, passes=2)
    assert again.restore(queue.as_json())
    assert again.as_json() == queue.as_json()
    time.s += 2
    assert ask(again, "c") == 2
    assert "wait_s" in again.next("d")


@pytest.mark.parametrize(("tasks", "passes"), [(4, 1), (3, 2)], ids=["other tasks", "other passes"])
def test_the_state_of_another_job_is_not_taken_over(make, tasks, passes):
    queue = make(3, passes=1)
    ask(queue)
    other = make(tasks, passes)
    assert not other.restore(queue.as_json())
    assert len(other.todo) == tasks
