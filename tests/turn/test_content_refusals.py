"""A message that is refused for its content, under whatever status: it comes back, and blocks nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import AuthenticationError, ProviderRejectedError, TurnError
from goaitools_py.backends.base import BackendError
from goaitools_py.states import state_messages
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, Raw, ScriptedBackend

from ..kept.conftest import Threads
from ._reading import ALL, results

OPENROUTER = {
    "error": {
        "code": 403,
        "message": 'openai/gpt requires moderation on OpenRouter. Your input was flagged for "violence".',
        "metadata": {"reasons": ["violence"], "flagged_input": "SECRET", "provider_name": "OpenAI"},
    }
}
XAI = {"code": "The caller does not have permission", "error": "Content violates usage guidelines. SECRET"}
CONTENT = {
    "openrouter": (403, OPENROUTER),
    "openrouter-402": (402, OPENROUTER),
    "only-reasons": (403, {"error": {"message": "no", "metadata": {"reasons": ["violence"]}}}),
    "xai": (403, XAI),
    "azure-apim": (403, {"statusCode": 403, "message": "Request failed content safety check."}),
    "azure": (403, {"error": {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
    "dashscope": (403, {"code": "data_inspection_failed", "message": "Input data may contain …"}),
    "users-message": (403, {"error": {"message": "The user message was blocked by our content policy"}}),
    "quotes": (403, {"error": {"message": 'Your input was flagged: "SECRET your account was suspended"'}}),
    "quotes-a-key": (
        403,
        {"error": {"message": "Blocked by guardrail: 'SECRET api key was blocked'"}},
    ),
    "quotes-first": (403, {"error": {"message": '"Your account was blocked" violates the content policy'}}),
    "quotes-plainly": (403, {"error": {"message": "Content violates safety rules. My account was blocked"}}),
    "quotes-json": (
        403,
        {"error": {"message": 'The prompt was blocked: {"content": "your \\"account\\" was suspended"}'}},
    ),
    "quotes-cut-off": (
        403,
        {"error": {"message": 'Content moderation: "SECRET my account was blocked, s'}},
    ),
    "guardrail-402": (402, {"error": {"message": "Blocked by guardrail SECRET"}}),
    "cloudflare": (424, {"error": [{"code": 2016, "message": "Prompt blocked"}]}),
    "wso2": (446, {"code": "900514", "type": "GUARDRAIL", "message": {"action": "GUARDRAIL_INTERVENED"}}),
    "406": (406, {}),
    "418": (418, {}),
    "446": (446, {}),
    "451": (451, {"error": {"message": "SECRET"}}),
    "page": (451, None),
}
"""What servers and gateways answer to a flagged message."""

ACCOUNT = {
    "402": (402, {"error": {"message": "Insufficient credits"}}),
    "403": (403, {"error": {"message": "Your API key does not have access to this model"}}),
    "key-limit": (403, {"error": {"code": 403, "message": "Key limit exceeded (total limit)"}}),
    "region": (403, {"error": {"code": "unsupported_country_region_territory", "message": "No."}}),
    "banned": (403, {"error": {"message": "Your account was blocked for violating the usage policies"}}),
    "banned-user": (403, {"error": {"message": "This user has been blocked due to its content"}}),
    "banned-by-name": (
        403,
        {"error": {"message": 'Organization "org-1" has been disabled for violating the usage policies'}},
    ),
    "quotes": (
        403,
        {"error": {"message": 'Your API key may not: "the request was blocked by guardrail"'}},
    ),
    "page": (403, None),
    "407": (407, {}),
    "404": (404, {"error": {"message": "no such model"}}),
}
"""What is about the key, the account or the address: another message would be refused as well."""


def refusal(status: int, answer: Any) -> BackendError:
    body = b"<html>SECRET</html>" if answer is None else json.dumps(answer).encode()
    return BackendError(f"the server answered {status}", status=status, body=body)


@pytest.mark.parametrize("case", CONTENT)
@pytest.mark.parametrize("wire", ALL)
def test_a_flagged_message_comes_back(face: Any, run: Any, wire: str, case: str) -> None:
    """The state is the very input, nothing is sent again, and the next turn does not have the message."""
    status, answer = CONTENT[case]
    backend = ScriptedBackend("Hello.", refusal(status, answer), "Here.", wire=wire, max_retries=2)
    chat = face.chat(backend)
    before = run(chat, user="My name is Ada.").state

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, before, user="poison")
    err = caught.value
    after = run(chat, err.state, user="Hello?")

    assert (err.status_code, err.retryable, err.state == before) == (status, False, True)
    assert [message.text for message in err.pending_input] == ["poison"]
    assert "key" not in str(err)
    assert "SECRET" not in f"{err} {err!r} {err.__cause__!r}"
    assert (after.text, after.warnings) == ("Here.", ())
    assert "poison" not in str(state_messages(after.state))
    assert len(backend.requests) == 3


@pytest.mark.parametrize("case", ["openrouter", "xai", "446"])
@pytest.mark.parametrize("wire", ALL)
def test_a_flagged_result_is_replaced(face: Any, run: Any, scores: Any, wire: str, case: str) -> None:
    """On a later call: the exchange stays, its result becomes an error, the real one is in the log."""
    asked = Calls([("get_score", {"team": "Red"})])
    backend = ScriptedBackend(asked, refusal(*CONTENT[case]), "Here.", wire=wire, max_retries=2)
    chat = face.chat(backend, tools=[scores.get_score])

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, user="The score?")
    after = chat.resume(caught.value.state)

    assert [record.result for record in caught.value.tool_log] == ["Red has 7 points"]
    assert results(after.state) == ["The result of this tool call could not be delivered."]
    assert (after.text, scores.runs) == ("Here.", ["Red"])


@pytest.mark.parametrize("case", ACCOUNT)
@pytest.mark.parametrize("wire", ALL)
def test_a_message_is_not_to_blame_for_the_account(face: Any, run: Any, wire: str, case: str) -> None:
    """It stays in the state, for `resume`; the error says what is wrong."""
    status, answer = ACCOUNT[case]
    backend = ScriptedBackend(refusal(status, answer), "Here.", wire=wire, max_retries=2)
    chat = face.chat(backend)

    with pytest.raises(TurnError) as caught:
        run(chat, user="Hello?")

    assert isinstance(caught.value, ProviderRejectedError if status == 404 else AuthenticationError)
    assert caught.value.pending_input == ()
    word = {402: "credit", 403: "API key", 404: "", 407: "proxy"}[status]
    assert word in str(caught.value)
    assert chat.resume(caught.value.state).text == "Here."


@pytest.mark.parametrize(
    "error",
    [OPENROUTER["error"], {"code": "content_filter", "message": "SECRET"}],
    ids=["openrouter", "code"],
)
@pytest.mark.parametrize("wire", ALL)
def test_a_flagged_message_inside_a_200(face: Any, run: Any, wire: str, error: Any) -> None:
    """OpenRouter and others answer 200 with the error in the body, or as the first event."""
    body = json.dumps({"type": "error", "error": error}).encode()

    def answer(request: Any) -> Raw:
        return Raw.body(b"data: " + body + b"\n\n" if request.stream else body)

    backend = ScriptedBackend(answer, "Here.", wire=wire, max_retries=2)
    chat = face.chat(backend)

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, user="poison")

    assert [message.text for message in caught.value.pending_input] == ["poison"]
    assert run(chat, caught.value.state, user="Hello?").text == "Here."


@pytest.mark.parametrize("wire", ALL)
def test_a_kept_conversation_is_not_blocked(face: Any, wire: str) -> None:
    """The flagged message is not in the store."""
    backend = ScriptedBackend("Hello.", refusal(*CONTENT["xai"]), "Here.", wire=wire)
    kept = Threads(face)(backend, MemoryStore())
    kept.send("My name is Ada.")

    with pytest.raises(ProviderRejectedError):
        kept.send("poison")
    after = kept.send("Hello?")

    assert after.text == "Here."
    assert "poison" not in str(state_messages(after.state))
