"""A key that is refused under status 400: the error says so, and the conversation stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import AuthenticationError
from goaitools_py.backends.base import BackendError
from goaitools_py.states import read_history
from goaitools_py.testing import ScriptedBackend

from ..backends.test_faults import REFUSED_KEYS
from ._reading import ALL
from ._talk import FORMS, Talk


@pytest.mark.parametrize(("kept", "stream"), FORMS)
@pytest.mark.parametrize("body", REFUSED_KEYS[:2], ids=["xai", "gemini"])
@pytest.mark.parametrize("wire", ALL)
def test_a_wrong_key_is_an_authentication_error(
    face: Any, wire: str, body: bytes, kept: bool, stream: bool
) -> None:
    """The message waits for the right key; no history is repaired, and nothing is sent twice."""
    refusal = BackendError("the provider refuses the request", status=400, body=body)
    backend = ScriptedBackend("Hello.", refusal, "Yes.", wire=wire)
    talk = Talk(face, face.chat(backend), kept=kept, streamed=stream)
    talk.say("Hello.")

    with pytest.raises(AuthenticationError) as caught:
        talk.say("Sure?")

    assert "sk***" not in str(caught.value)
    assert len(backend.requests) == 2
    assert caught.value.pending_input == ()
    assert [one.text for one in read_history(caught.value.state).all_messages()][-1] == "Sure?"
