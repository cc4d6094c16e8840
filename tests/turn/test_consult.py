"""How a strategy's question reaches a model: its limits, its times, and what is not tried again."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Timeouts
from goaitools_py.compaction import Compactor, MessageLimit, Summarize
from goaitools_py.sim import Reply
from goaitools_py.testing import ScriptedBackend

from ._reading import ANTHROPIC, CHAT

LIMIT = {CHAT: ("max_completion_tokens", "max_tokens"), ANTHROPIC: ("max_tokens",)}


class Noting(ScriptedBackend):
    """Notes the requests that it gets."""

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.noted: list[Any] = []

    def send(self, request: Any) -> Any:
        self.noted.append(request)
        return super().send(request)

    async def asend(self, request: Any) -> Any:
        self.noted.append(request)
        return await super().asend(request)


def test_another_backend_is_told_the_output_limit(face: Any, sim: Any) -> None:
    """What the strategy asks for goes out with the transcript, whichever server answers."""
    chat = face.on(sim)
    state = chat.run_turns(None, [word * 60 for word in ("One. ", "Two. ", "Three. ")]).state
    other = sim.backend(is_async=face.is_async)
    face.chat(other)  # closed with the face
    asked = len(sim.requests)

    report = chat.compact_state(
        state, Compactor(MessageLimit(1), Summarize(other, keep_turns=1, max_output_tokens=77))
    )
    sent = sim.requests[asked].parsed
    names = LIMIT.get(sim.wire, ("max_output_tokens",))

    assert report.outcome == "compacted"
    assert [sent[name] for name in names if name in sent] == [77]


@pytest.mark.parametrize(
    "times", [{"timeout": Timeouts(first_delta=2.0)}, {"timeout": Timeouts(turn=60.0, first_delta=2.0)}]
)
def test_a_question_has_no_first_delta(face: Any, times: dict[str, float]) -> None:
    """It is answered in one piece, and has the time of the call or of the turn for that."""
    backend = Noting("Yes.", "Yes.", "Yes.", "A summary.", "Well.")
    chat = face.chat(backend)
    state = chat.run_turns(None, [word * 60 for word in ("One. ", "Two. ", "Three. ")]).state

    result = chat.chat_with_state(
        state,
        user="Four.",
        on_event=[].append,
        compactor=Compactor(MessageLimit(5), Summarize(keep_turns=1)),
        **times,
    )
    question = backend.noted[3]

    assert result.compaction is not None
    assert result.compaction.outcome == "compacted"
    assert not question.stream
    assert question.head_timeout is None
    assert question.timeout > 30


def test_an_answer_that_is_none_is_not_asked_for_again(face: Any, sim: Any) -> None:
    """The server has answered, and would so again: the turn goes on without the summary."""
    chat = face.on(sim, max_retries=3)
    state = chat.run_turns(None, [word * 60 for word in ("One. ", "Two. ", "Three. ")]).state
    asked = len(sim.requests)
    sim.push(Reply.raw(b'{"surprise": true}'))

    result = chat.chat_with_state(
        state, user="Four.", compactor=Compactor(MessageLimit(5), Summarize(keep_turns=1))
    )

    assert [warning.code for warning in result.warnings] == ["compaction_failed"]
    assert len(sim.requests) - asked == 2
