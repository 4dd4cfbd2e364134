"""The same questions to the embedded API and to a real one: every difference in the answers is listed with its reason.

What a real server of the version in the recording answered stands in `answers.json`, so that the embedded API is held to
it without one. `make kube-suite` asks a running control plane as well; `--record-probe` writes down what it says.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.probe.conftest import new_client, served
from integration.probe.differences import LISTED
from integration.probe.questions import QUESTIONS
from integration.probe.servers import Endpoint, embedded
from integration.probe.transcript import Transcript, differences, shown

RECORDING = Path(__file__).parent / "answers.json"
RECORDED: dict[str, Any] = json.loads(RECORDING.read_text())


@pytest.fixture(scope="module")
def ours() -> Iterator[Endpoint]:
    with embedded() as endpoint:
        served(endpoint)
        yield endpoint


@pytest.fixture(scope="module")
def theirs(kube_endpoint: Endpoint) -> Endpoint:
    served(kube_endpoint)
    return kube_endpoint


def answers(endpoint: Endpoint, question: str) -> dict[str, Any]:
    with new_client(endpoint) as client:
        transcript = Transcript(client)
        QUESTIONS[question](transcript)
        return transcript.answers


def unlisted_and_gone(question: str, mine: Any, real: Any) -> tuple[list[str], list[str]]:
    listed = LISTED.get(question, {})
    found = list(differences(mine, real))
    odd = [
        f"{place}\n  embedded: {shown(left)}\n  real:     {shown(right)}"
        for place, left, right in found
        if not any(re.fullmatch(pattern, place) for pattern in listed)
    ]
    gone = [pattern for pattern in listed if not any(re.fullmatch(pattern, place) for place, _, _ in found)]
    return odd, gone


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_embedded_api_answers_as_recorded_but_for_what_is_listed(ours: Endpoint, question: str) -> None:
    odd, gone = unlisted_and_gone(question, answers(ours, question), RECORDED["answers"][question])
    assert not odd, "\n".join(["not listed in differences.py:", *odd])
    assert not gone, f"listed in differences.py, but no longer so: {gone}"


@pytest.mark.kube
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_embedded_api_answers_as_the_real_one_but_for_what_is_listed(
    ours: Endpoint, theirs: Endpoint, question: str, request: pytest.FixtureRequest
) -> None:
    real = answers(theirs, question)
    if request.config.getoption("--record-probe"):
        record(theirs, question, real)
    odd, gone = unlisted_and_gone(question, answers(ours, question), real)
    assert not odd, "\n".join(["not listed in differences.py:", *odd])
    assert not gone, f"listed in differences.py, but no longer so: {gone}"


@pytest.mark.kube
def test_the_recording_is_of_this_version(theirs: Endpoint) -> None:
    """Another cluster may be of another version; what is recorded then is not for it."""
    with new_client(theirs) as client:
        minor = client.get("/version").body["minor"].rstrip("+")
    is_newer = int(minor) > int(RECORDED["minor"])
    assert not is_newer, f"recorded on 1.{RECORDED['minor']}, this is 1.{minor}: run with --record-probe"


def test_every_listed_difference_has_a_question() -> None:
    assert LISTED.keys() <= QUESTIONS.keys()
    assert RECORDED["answers"].keys() == QUESTIONS.keys()


def record(endpoint: Endpoint, question: str, real: dict[str, Any]) -> None:
    with new_client(endpoint) as client:
        RECORDED["minor"] = client.get("/version").body["minor"].rstrip("+")
    RECORDED["answers"][question] = real
    RECORDED["answers"] = {name: RECORDED["answers"][name] for name in QUESTIONS if name in RECORDED["answers"]}
    RECORDING.write_text(json.dumps(RECORDED, indent=1, sort_keys=True) + "\n")
