"""All questions that the probe sends to a server.

Each function puts one question to a server, in requests whose order and content never depend on the answers, and notes
what came back. The same functions run against every server; `QUESTIONS` names them all. They are questions about what
Raytide, kopf and kubectl rely on: guards of writes, rejections in their exact form, defaults, watches, events.
"""

from collections.abc import Callable
from typing import Any

from integration.probe import questions_admission, questions_reading, questions_writing
from integration.probe.transcript import Transcript

Question = Callable[[Transcript], Any]

QUESTIONS: dict[str, Question] = {
    name.replace("_", " "): question
    for module in (questions_writing, questions_admission, questions_reading)
    for name, question in vars(module).items()
    if getattr(question, "__module__", "") == module.__name__ and not name.startswith("_")
}
"""By their names."""
