"""A setting that was not written for a model makes no request that is known to be refused."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from goaitools_py import Compactor, MessageLimit, ModelSettings, ProviderTool, Summarize, tool
from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.capabilities import capabilities
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.states import inspect_state
from goaitools_py.testing import ScriptedBackend
from goaitools_py.turn import fit_settings
from goaitools_py.turn.request import STICKY
from goaitools_py.types.request_parts import ServerThinkingClearing

from ..conftest import Face
from ._refusals import CLAUDES, GPTS, refusals

SEED: Final = 20_261_125
TRIES: Final = 40
ANTHROPIC: Final = "anthropic"
MODELS: Final = [
    *((ANTHROPIC, model) for model in CLAUDES),
    *((wire, model) for wire in ("openai", "openai-responses") for model in GPTS),
]
OLD: Final = {"anthropic-version": "2023-06-01"}
"""The version of Anthropic's API that takes sampling settings."""

VALUES: Final[dict[str, list[Any]]] = {
    "max_output_tokens": [1, 12, 1_000, 5_000, 50_000, 127_999],
    "temperature": [0.2, 1, 1.7],
    "top_p": [0.5, 0.99],
    "reasoning_effort": ["none", "minimal", "low", "high", "xhigh", "max", "unheard"],
    "thinking_budget_tokens": [0, 100, 4_000, 30_000],
    "stop": ["\n", ["a", " "], ["a", "b", "c", "d", "e"]],
    "seed": [7],
    "frequency_penalty": [0.5],
    "presence_penalty": [-0.5],
    "parallel_tool_calls": [False],
    "tool_choice": ["required", "look", "auto", "gone"],
}


@tool
def look(place: str) -> str:
    """Look at a place."""
    return place


def down() -> BackendError:
    return BackendError("down", status=503)


def some(rng: random.Random, names: Any) -> dict[str, Any]:
    """A few settings."""
    chosen = rng.sample(sorted(names), rng.randint(1, min(5, len(names))))
    return {name: rng.choice(VALUES[name]) for name in chosen}


def told(result: Any) -> str:
    """The text of the warning; "" without one."""
    return next((one.message for one in result.warnings if one.code == "settings_changed"), "")


def taken(source: str, given: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that the first provider API can send at all."""
    backend = ScriptedBackend(wire=source, model="first")
    found: dict[str, Any] = {}
    for name, value in given.items():
        try:
            backend.dialect.request(_parts({"extra_headers": OLD, **found, name: value}))
        except ValueError:
            continue
        found[name] = value
    return {name: value for name, value in found.items() if value != "gone"}


def _parts(settings: dict[str, Any]) -> Any:
    from goaitools_py.backends.base import RequestParts

    return RequestParts(model="first", history=(), settings=settings)


# ------------------------------------------------------------------------------------------- the ways


def sticky(face: Face, wire: str, model: str, given: dict[str, Any]) -> tuple[Any, ScriptedBackend]:
    """The state keeps the settings of a turn with another model of the same provider API."""
    headers = {"extra_headers": OLD} if wire == ANTHROPIC else {}
    first = face.chat(ScriptedBackend("Hi.", wire=wire, model="first"), tools=[look])
    state = first.chat(user="Hi.", settings=ModelSettings(**given, **headers)).state
    backend = ScriptedBackend("Hi.", wire=wire, model=model)
    chat = face.chat(backend, tools=[look], sticky_settings=True)
    return chat.chat_with_state(state, user="Hi."), backend


def fallback(face: Face, wire: str, model: str, given: dict[str, Any]) -> tuple[Any, ScriptedBackend]:
    """The provider of the chat is down, and a fallback gets its settings."""
    source = given.pop("source", "openai")
    headers = {"extra_headers": OLD} if source == ANTHROPIC else {}
    backend = ScriptedBackend("Hi.", wire=wire, model=model)
    own = ScriptedBackend(down(), wire=source, model="first")
    settings = ModelSettings(**given, **headers)
    chat = face.chat(own, fallbacks=[backend], tools=[look], settings=settings)
    return chat.chat(user="Hi."), backend


def switch(face: Face, wire: str, model: str, given: dict[str, Any]) -> tuple[Any, ScriptedBackend]:
    """A call names another model than the chat for which its default settings were written."""
    backend = ScriptedBackend("Hi.", wire=wire, model="first")
    headers = {"extra_headers": OLD} if wire == ANTHROPIC else {}
    chat = face.chat(backend, tools=[look], settings=ModelSettings(**given, **headers))
    return chat.chat(user="Hi.", settings=ModelSettings(model=model)), backend


@pytest.mark.parametrize(("wire", "model"), MODELS)
@pytest.mark.parametrize("way", [sticky, fallback, switch])
def test_no_provider_is_sent_what_it_is_known_to_refuse(face: Face, way: Any, wire: str, model: str) -> None:
    """However the settings came there. What was changed is told, and nothing else is."""
    assert model in (*CLAUDES, *GPTS)
    assert capabilities(model) != capabilities("unknown")
    rng = random.Random(f"{SEED} {way.__name__} {wire} {model}")
    names = STICKY if way is sticky else VALUES
    for _ in range(TRIES):
        source = rng.choice([wire, "openai", ANTHROPIC]) if way is fallback else wire
        given = taken(source, some(rng, names))
        asked = {**given, "source": source} if way is fallback else dict(given)
        result, backend = way(face, wire, model, asked)
        body = backend.bodies()[-1]

        assert refusals(wire, model, body) == [], (SEED, source, given, body)
        assert body["model"] == model
        if not told(result):
            sent = backend.dialect.request(_parts({**given, **_headers(wire)})).body
            expected = _members(sent) - {"tool_choice", "parallel_tool_calls"}
            assert expected <= _members(backend.requests[-1].body), (SEED, source, given, body)


def _headers(wire: str) -> dict[str, Any]:
    return {"extra_headers": OLD} if wire == ANTHROPIC else {}


def _members(body: bytes) -> set[str]:
    import json

    return set(json.loads(body)) - {"messages", "input"}


# ---------------------------------------------------------------------------------------- single cases

BUDGET: Final = {"thinking_budget_tokens": 4_000}


@pytest.mark.parametrize("way", [sticky, fallback, switch])
def test_a_thinking_budget_becomes_adaptive_thinking(face: Face, way: Any) -> None:
    """A newer model takes no budget, and its user still wants it to think."""
    given = {**BUDGET, "source": ANTHROPIC} if way is fallback else BUDGET

    result, backend = way(face, ANTHROPIC, "claude-opus-5-5", dict(given))

    assert backend.bodies()[-1]["thinking"] == {"type": "adaptive"}
    assert "thinking_budget_tokens is left out: claude-opus-5-5 takes no budget" in told(result)


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-sonnet-5-5", {"type": "between_tools"}),
        ("claude-sonnet-5", {"type": "disabled"}),
        ("claude-opus-5-5", None),
    ],
)
def test_thinking_is_switched_off_as_far_as_the_model_lets_it(face: Face, model: str, thinking: Any) -> None:
    """The budget 0 of an earlier turn."""
    result, backend = sticky(face, ANTHROPIC, model, {"thinking_budget_tokens": 0})

    assert backend.bodies()[-1].get("thinking") == thinking
    assert bool(told(result)) is (model != "claude-sonnet-5")


def test_what_the_caller_writes_for_the_model_is_sent_as_it_is(face: Face) -> None:
    """The provider's error is then the honest answer."""
    backend = ScriptedBackend("Hi.", "Hi.", wire=ANTHROPIC, model="claude-opus-5-5")
    chat = face.chat(backend, settings=ModelSettings(thinking_budget_tokens=4_000))

    results = [
        chat.chat(user="Hi."),
        chat.chat(user="Hi.", settings=ModelSettings(model="claude-opus-5-5", reasoning_effort="none")),
    ]

    assert [body["thinking"]["type"] for body in backend.bodies()] == ["enabled", "enabled"]
    assert backend.bodies()[1]["output_config"] == {"effort": "none"}
    assert [told(one) for one in results] == ["", ""]


def test_a_kept_setting_gives_way_to_one_of_the_turn(face: Face) -> None:
    """A budget that was kept, and a limit, a forced tool or thinking of the turn's own."""
    for own, sent in [
        ({"max_output_tokens": 500}, {"max_tokens": 500}),
        ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ({"extra_body": {"thinking": {"type": "adaptive"}}}, {"thinking": {"type": "adaptive"}}),
    ]:
        first = face.chat(ScriptedBackend("Hi.", wire=ANTHROPIC, model="claude-opus-4-6"), tools=[look])
        state = first.chat(user="Hi.", settings=ModelSettings(**BUDGET)).state
        backend = ScriptedBackend("Hi.", wire=ANTHROPIC, model="claude-opus-4-6")
        chat = face.chat(backend, tools=[look], sticky_settings=True)

        result = chat.chat_with_state(state, user="Hi.", settings=ModelSettings(**own))

        body = backend.bodies()[0]
        assert {name: body.get(name) for name in sent} == sent
        assert "budget_tokens" not in str(body)
        assert "thinking_budget_tokens is left out" in told(result)


def test_a_setting_that_needed_a_header_goes_without_it(face: Face) -> None:
    """Headers are never kept. Sampling at Anthropic needs an old version of its API."""
    result, backend = sticky(face, ANTHROPIC, "claude-sonnet-4-0", {"temperature": 0.5})

    assert "temperature" not in backend.bodies()[0]
    assert "temperature is left out" in told(result)


def test_the_state_keeps_what_was_written(face: Face) -> None:
    """So that the first model gets its own settings again."""
    result, _ = sticky(face, ANTHROPIC, "claude-opus-5-5", dict(BUDGET))
    backend = ScriptedBackend("Hi.", wire=ANTHROPIC, model="claude-opus-4-6")

    face.chat(backend, sticky_settings=True).chat_with_state(result.state, user="Hi.")

    assert inspect_state(result.state).sticky_settings == BUDGET
    assert backend.bodies()[0]["thinking"] == {"type": "enabled", "budget_tokens": 4_000}


def test_a_handed_body_is_fitted_too(face: Face) -> None:
    """A fallback on the same provider API gets the members of `extra_body` that its model takes."""
    own = ScriptedBackend(down(), wire=ANTHROPIC, model="claude-sonnet-4-5")
    other = ScriptedBackend("Hi.", wire=ANTHROPIC, model="claude-opus-5-5")
    body = {
        "thinking": {"type": "enabled", "budget_tokens": 2_000},
        "output_config": {"effort": "minimal"},
        "top_k": 5,
        "metadata": {"user_id": "u"},
    }
    chat = face.chat(own, fallbacks=[other], settings=ModelSettings(extra_body=body))

    result = chat.chat(user="Hi.")

    sent = other.bodies()[0]
    assert refusals(ANTHROPIC, "claude-opus-5-5", sent) == []
    assert (sent["thinking"], sent["output_config"]) == ({"type": "adaptive"}, {"effort": "low"})
    assert sent["metadata"] == {"user_id": "u"}
    assert "top_k" not in sent
    assert "extra_body" in told(result)


@pytest.mark.parametrize("wire", ["openai", "openai-responses"])
def test_a_handed_body_is_fitted_on_openais_apis(face: Face, wire: str) -> None:
    """Efforts and sampling may stand in it in the provider's own words."""
    own = ScriptedBackend(down(), wire=wire, model="gpt-4o")
    other = ScriptedBackend("Hi.", wire=wire, model="o3")
    effort = (
        {"reasoning": {"effort": "xhigh"}} if wire == "openai-responses" else {"reasoning_effort": "xhigh"}
    )
    body = {**effort, "temperature": 0.3, "stop": "x", "user": "u"}
    chat = face.chat(own, fallbacks=[other], settings=ModelSettings(extra_body=body))

    result = chat.chat(user="Hi.")

    sent = other.bodies()[0]
    assert refusals(wire, "o3", sent) == []
    assert "high" in str(sent)
    assert sent["user"] == "u"
    assert told(result).count("extra_body") == 3


def test_a_model_that_takes_no_effort_is_sent_none_of_a_body(face: Face) -> None:
    """Nothing is left of the member then."""
    own = ScriptedBackend(down(), wire="openai-responses", model="o3")
    other = ScriptedBackend("Hi.", wire="openai-responses", model="gpt-4o")
    settings = ModelSettings(extra_body={"reasoning": {"effort": "low"}})

    face.chat(own, fallbacks=[other], settings=settings).chat(user="Hi.")

    assert "reasoning" not in other.bodies()[0]


def test_the_clearing_of_thinking_goes_with_the_thinking(face: Face) -> None:
    """Without thinking, its clearing is answered with 400."""
    own = ScriptedBackend(down(), wire=ANTHROPIC, model="claude-sonnet-4-5")
    other = ScriptedBackend("Hi.", wire=ANTHROPIC, model="claude-3-haiku-20240307")
    settings = ModelSettings(**BUDGET, context_management=[ServerThinkingClearing()])

    result = face.chat(own, fallbacks=[other], settings=settings).chat(user="Hi.")

    assert "clear_thinking" not in str(other.bodies()[0])
    assert "the clearing of thinking is left out" in told(result)


def test_a_dialect_that_cannot_fit_leaves_out_what_it_refuses(face: Face) -> None:
    """A provider API of one's own knows its settings only by refusing them."""

    class Plain:
        wire, family = "anthropic", "plain.example"

        def __init__(self) -> None:
            self._inner = AnthropicDialect("plain.example")

        def __getattr__(self, name: str) -> Any:
            if name in ("fitted", "marks"):
                raise AttributeError(name)
            return getattr(self._inner, name)

    own = ScriptedBackend(down(), model="first")
    backend = ScriptedBackend("Hi.", wire=ANTHROPIC, dialect=Plain(), model="second")
    settings = ModelSettings(seed=7, reasoning_effort="low")

    result = face.chat(own, fallbacks=[backend], settings=settings).chat(user="Hi.")

    assert backend.bodies()[0]["output_config"] == {"effort": "low"}
    assert "seed is left out" in told(result)
    assert "reasoning_effort" not in told(result)


def test_a_summary_with_a_limit_goes_beside_a_thinking_budget(face: Face) -> None:
    """Thinking counts towards the limit; a budget above it would be refused."""
    backend = ScriptedBackend(*["Hi."] * 4, "A summary.", "Hi.", wire=ANTHROPIC, model="claude-opus-4-6")
    compactor = Compactor(MessageLimit(6), Summarize(keep_turns=1, max_output_tokens=200))
    chat = face.chat(backend, settings=ModelSettings(**BUDGET), compactor=compactor)

    result = chat.run_turns(None, ["One.", "Two.", "Three.", "Four."])

    assert [one.code for one in result.warnings if one.code == "compaction_failed"] == []
    assert [body["max_tokens"] for body in backend.bodies()].count(4_200) == 1


def test_a_default_limit_stays_below_the_models(face: Face) -> None:
    """The limit that a request gets by itself is one that the model takes."""
    backend = ScriptedBackend("Hi.", wire=ANTHROPIC, model="claude-opus-4-1")

    face.chat(backend, settings=ModelSettings(thinking_budget_tokens=30_000)).chat(user="Hi.")

    assert backend.bodies()[0]["max_tokens"] == 32_000


ALIKE: Final[dict[str, list[Any]]] = {**VALUES, "seed": [1, 7, True], "temperature": [0.0, -0.0, 1, 1.0]}
"""Also values that are equal, and are written in different ways."""


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_settings_are_judged_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the one that a dialect gives when it is asked again."""
    rng = random.Random(seed)
    print(seed)
    monkeypatch.setattr(fit_settings, "_judgements", {})
    asked: list[object] = []
    dialects = [
        _counting(kind, asked)() for kind in (OpenAIChatDialect, OpenAIResponsesDialect, AnthropicDialect)
    ]
    monkeypatch.setitem(VALUES, "seed", ALIKE["seed"])
    monkeypatch.setitem(VALUES, "temperature", ALIKE["temperature"])
    for number in range(400):
        dialect, model = rng.choice(dialects), rng.choice([*CLAUDES, *GPTS])
        kept = some(rng, VALUES)
        given = {name: value for name, value in some(rng, VALUES).items() if name not in kept}
        tools: Any = rng.choice([(), (look,), (ProviderTool({"type": "web_search"}),)])
        fresh = fit_settings._fitted(dialect, given, kept, model=model, tools=tools)
        for _ in range(2):
            found = fit_settings.fit_settings(dialect, given, kept, model=model, tools=tools)
            assert (repr(dict(found.settings)), found.notes) == (repr(dict(fresh.settings)), fresh.notes)
        asked.clear()
        fit_settings.fit_settings(dialect, given, kept, model=model, tools=tools)
        is_plain = not any(isinstance(value, list) for value in (*given.values(), *kept.values()))
        assert is_plain == (not asked), number
    assert len(fit_settings._judgements) == fit_settings._MOST_JUDGEMENTS


@pytest.mark.parametrize(("first", "second"), [(1, 1.0), (1.0, True), (0.0, -0.0), ("1", 1)])
def test_equal_settings_that_are_written_in_other_ways_are_others(first: Any, second: Any) -> None:
    """A request has the setting as it was given."""
    dialect = OpenAIChatDialect()
    for value in (first, second, first):
        kept = {"temperature": value}
        found = fit_settings.fit_settings(dialect, {}, kept, model="gpt-4o", tools=())
        assert repr(found.settings["temperature"]) == repr(value)


def _counting(kind: Any, asked: list[object]) -> Any:
    def request(dialect: Any, parts: Any) -> Any:
        asked.append(parts)
        return kind.request(dialect, parts)

    return type(kind)(kind.__name__, (kind,), {"request": request})
