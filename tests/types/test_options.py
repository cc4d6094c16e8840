"""Facts about options: a value that no turn could use is refused before anything is called."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from typing import Any

import pytest

from goaitools_py import (
    UNSET,
    Chat,
    ChatOptions,
    Compactor,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    ModelSettings,
    Timeouts,
    user,
)
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.states import inspect_state
from goaitools_py.testing import ScriptedBackend
from goaitools_py.tools import MAX_RESULT_BYTES
from goaitools_py.types.option_help import CHAT_NAMES, MAX_ID_CHARACTERS, MAX_SECONDS
from goaitools_py.types.options import (
    DEFAULTS,
    OPTION_NAMES,
    MergedLimits,
    Resolved,
    check_options,
    given_options,
    resolve,
)

SECRET = "sesame-open"

OF_ANOTHER_TYPE: list[tuple[str, Any, str]] = [
    ("messages", user("Hello."), r"list.*Message.*messages=\["),
    ("messages", "Hello.", "list.*str"),
    ("system", 5, "str.*int"),
    ("context", b"noon", "str.*bytes"),
    ("tools", len, r"list.*builtin_function.*tools=\["),
    ("tools", "look", "list.*str"),
    ("settings", {"temperature": 1}, r"ModelSettings.*dict.*ModelSettings\("),
    ("sticky_settings", 1, "True or False.*int"),
    ("keep_partial", 1, "True or False.*int"),
    ("compactor", MessageLimit(5), r"Compactor, not MessageLimit.*Compactor\(trigger, strategy\)"),
    ("compactor", KeepRecentTurns(5), r"Compactor, not KeepRecentTurns.*Compactor\(trigger, strategy\)"),
    ("compactor", Compactor, r"Compactor, not the class Compactor.*Compactor\(trigger, strategy\)"),
    ("limits", {"max_tokens": 5}, r"Limits, not dict.*Limits\("),
    ("timeout", "5", "seconds, not str; pass None"),
    ("timeout", True, "seconds, not bool; pass None"),
    ("tool_concurrency", None, "positive int.*None"),
    ("tool_concurrency", 2.5, "positive int.*float"),
    ("tool_threads", None, "True or False.*None"),
    ("max_tool_result_bytes", None, "positive int.*None"),
    ("conversation_id", 42, r"str, not int.*conversation_id=str\("),
    ("on_event", "print", "function.*not str.*None"),
    ("on_checkpoint", 5, "function.*not int.*None"),
    ("metadata", [("a", "b")], "maps text to text.*list"),
    ("metadata", {SECRET: 5}, "must be str.*int"),
    ("metadata", {5: SECRET}, "must be str.*int"),
]
OUT_OF_BOUNDS: list[tuple[str, Any, str]] = [
    ("turn_id", "", "empty.*all turns would count as the same.*None for no turn_id"),
    ("conversation_id", "", "empty.*names nothing.*None for a random one"),
    ("tool_concurrency", -1, "positive int.*-1"),
    ("max_tool_result_bytes", 255, "at least 256, got 255"),
    ("timeout", 0, "positive.*0.*None for no limit"),
    ("timeout", math.nan, "positive.*nan.*None for no limit"),
    ("timeout", math.inf, f"at most {MAX_SECONDS}.*None for no limit"),
    ("timeout", 10**400, f"at most {MAX_SECONDS}.*None for no limit"),
    ("timeout", -math.inf, "positive.*-inf"),
    ("conversation_id", SECRET + "\ud800", "lone surrogate"),
    ("conversation_id", SECRET * 100, f"at most {MAX_ID_CHARACTERS} characters, got 1100"),
    ("metadata", {"a": SECRET + "\ud800"}, "lone surrogate"),
    ("metadata", {SECRET + "\ud800": "a"}, "lone surrogate"),
    ("on_limit", None, "'answer', 'raise'.*None"),
    ("on_limit", ["answer"], "'answer', 'raise'.*list"),
]


def everything_said(error: BaseException | None) -> str:
    """The texts of an error and of all that it drags along."""
    if error is None:
        return ""
    return f"{error!r}{everything_said(error.__cause__)}{everything_said(error.__context__)}"


def named(cases: list[tuple[str, Any, str]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]}-{number}") for number, case in enumerate(cases)]


# --------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(("name", "value", "words"), named(OF_ANOTHER_TYPE))
def test_a_value_of_another_type_is_refused(name: str, value: Any, words: str) -> None:
    """Before anything is sent; the text says what is expected and which type was found, not the value."""
    backend = ScriptedBackend("paid")

    with pytest.raises(TypeError, match=f"{name}.*{words}") as caught:
        Chat(backend).chat(**{"user": "Hello.", name: value})

    assert backend.requests == []
    assert SECRET not in everything_said(caught.value)


@pytest.mark.parametrize(("name", "value", "words"), named(OUT_OF_BOUNDS))
def test_a_value_out_of_bounds_is_refused(name: str, value: Any, words: str) -> None:
    """Before anything is sent; of a text only its length is told."""
    backend = ScriptedBackend("paid")

    with pytest.raises(ValueError, match=f"{name}.*{words}") as caught:
        Chat(backend).chat(**{"user": "Hello.", name: value})

    assert backend.requests == []
    assert SECRET not in everything_said(caught.value)


@pytest.mark.parametrize("name", ["timeout", "limits", "settings", "compactor", "on_event", "tools"])
def test_a_chat_checks_its_defaults_when_it_is_made(name: str) -> None:
    """Not at the first turn, which may be far away."""
    bad: dict[str, Any] = {name: object()}

    with pytest.raises(TypeError, match=name):
        Chat(ScriptedBackend(), **bad)


@pytest.mark.parametrize(
    "name",
    [
        "messages",
        "system",
        "context",
        "tools",
        "settings",
        "compactor",
        "limits",
        "timeout",
        "conversation_id",
        "on_event",
        "on_checkpoint",
        "on_bad_state",
        "metadata",
    ],
)
def test_none_switches_an_option_off(name: str) -> None:
    """Where there is an off; everything else has a default to be left to."""
    result = Chat(ScriptedBackend("Hello.")).chat(**{"user": "Hello.", name: None})

    assert result.text == "Hello."


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("max_tokens", r"did you mean settings=ModelSettings\(max_output_tokens=…\)\?"),
        ("tool", "did you mean 'tools'"),
        ("stream", r"streaming is .* start\(…\)"),
        ("prompt", "user=…"),
        ("message", "user=…"),
        ("input", "user=…"),
        ("text", "user=…"),
        ("images", r"user=\['What is this\?', Image.from_path\(path\)\]"),
        ("user_id", r"speaker=….*conversation\(store, key\)"),
        ("session_id", r"conversation_id=….*chat.conversation\(store, key\)"),
        ("retries", r"OpenAIChatBackend\(MODEL, max_retries=…\)"),
        ("callbacks", "on_event=…"),
        ("fallback", r"did you mean 'fallbacks'\? It belongs to the chat: Chat\(MODEL, fallbacks=\[…\]\)"),
        ("history", r"the state of the last turn, or messages="),
        ("temperature", r"it is a model setting; pass settings=ModelSettings\(temperature=…\)"),
    ],
)
def test_an_unknown_option_is_told_what_to_write(name: str, words: str) -> None:
    """The advice works as it stands: a model setting is named where it has to go."""
    with pytest.raises(TypeError, match=f"unknown option '{name}'.*{words}"):
        Chat(ScriptedBackend()).chat(user="Hello.", **{name: 5})


def test_a_chat_names_its_own_options() -> None:
    """And none of those that belong to one turn, which it would refuse next."""
    with pytest.raises(TypeError) as caught:
        Chat(ScriptedBackend(), colour="red")  # type: ignore[call-arg]

    names = str(caught.value).partition("the options are ")[2].split(", ")
    assert {"system", "codec", "fallbacks", "telemetry"} <= set(names)
    assert not {"user", "messages", "turn_id"} & set(names)
    every = inspect.signature(Chat).parameters
    keywords = {name for name, one in every.items() if one.kind is one.KEYWORD_ONLY}
    assert set(CHAT_NAMES) == keywords - set(ChatOptions.__struct_fields__)
    with pytest.raises(TypeError, match="unknown option 'codecs'; did you mean 'codec'\\?"):
        Chat(ScriptedBackend(), codecs="red")  # type: ignore[call-arg]


def test_a_binding_of_a_chat_is_checked_when_it_is_made() -> None:
    """Otherwise each turn would refuse it."""
    codec = Signed(Keyring(Key.generate()))

    with pytest.raises(TypeError, match="binding must be a dict of texts, or UNBOUND, not str"):
        Chat(ScriptedBackend(), codec=codec, binding="ada")
    with pytest.raises(ValueError, match="a plain blob authenticates nothing"):
        Chat(ScriptedBackend(), binding={"user": "ada"})
    assert (
        Chat(ScriptedBackend("Hi."), codec=codec, binding={"user": "ada"}).chat(user="Hello.").text == "Hi."
    )


def test_text_in_place_of_options_is_told_its_name() -> None:
    """``chat.chat("Hello.")`` is what everybody writes once."""
    with pytest.raises(
        TypeError, match=r"options must be ChatOptions, not str; pass a text by name.* user=….* system=…"
    ):
        Chat(ScriptedBackend()).chat("Hello.")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_a_copy_of_options_says_the_same(copied: Any) -> None:
    """What was not given is not given in a copy either, here or in another process."""
    options = ChatOptions(user="Hello.", settings=ModelSettings(temperature=0.5))

    again = copied(options)

    assert again.given() == options.given() == {"user": "Hello.", "settings": options.settings}
    assert Chat(ScriptedBackend("Hi.")).chat(again).text == "Hi."


def test_good_values_are_taken() -> None:
    """Lists and tuples, whole and broken numbers, and any object with a `plan`."""

    class Own:
        def plan(self, request: Any, *, force: bool = False) -> None:
            return None

    check_options(
        {
            "messages": [user("Hello.")],
            "tools": (),
            "compactor": Own(),
            "timeout": Timeouts(turn=0.001, tool=MAX_SECONDS),
            "limits": Limits(max_iterations=1),
            "conversation_id": "i" * MAX_ID_CHARACTERS,
            "metadata": {"a": "ä"},
            "deps": object(),
            "binding": object(),
        }
    )


def test_the_longest_conversation_id_survives() -> None:
    """What the options take, a state can hold: the next turn reads it."""
    longest = "😀" * MAX_ID_CHARACTERS
    chat = Chat(ScriptedBackend("One.", "Two."))

    first = chat.chat(user="Hello.", conversation_id=longest)
    second = chat.chat_with_state(first.state, user="Again.", on_bad_state="raise")

    assert inspect_state(second.state).conversation_id == longest


def test_only_what_was_given_is_checked() -> None:
    """A turn does not pay for its chat's defaults again: they were checked when the chat was made."""
    resolved = resolve({"tool_concurrency": "never looked at"}, {"user": "Hello."})

    assert resolved.tool_concurrency == "never looked at"  # type: ignore[comparison-overlap]


# ------------------------------------------------------------------------------------ settings, limits


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"model": 5}, TypeError, "model.*str.*int"),
        ({"model": "m" * 257}, ValueError, "model.*256.*257"),
        ({"model": "\ud800"}, ValueError, "model.*lone surrogate"),
        ({"max_output_tokens": "5"}, TypeError, "max_output_tokens.*int.*str"),
        ({"max_output_tokens": 5.0}, TypeError, "max_output_tokens.*int.*float"),
        ({"temperature": "hot"}, TypeError, "temperature.*number.*str"),
        ({"temperature": True}, TypeError, "temperature.*number.*bool"),
        ({"temperature": math.nan}, ValueError, "temperature.*finite.*nan"),
        ({"top_p": math.inf}, ValueError, "top_p.*finite.*inf"),
        ({"reasoning_effort": 3}, TypeError, "reasoning_effort.*str.*int"),
        ({"thinking_budget_tokens": 0.5}, TypeError, "thinking_budget_tokens.*int.*float"),
        ({"stop": 5}, TypeError, "stop.*list of str.*int"),
        ({"stop": {"a"}}, TypeError, "stop.*list of str.*set"),
        ({"stop": [SECRET, 5]}, TypeError, "item of stop.*str.*int"),
        ({"seed": 1.5}, TypeError, "seed.*int.*float"),
        ({"parallel_tool_calls": 1}, TypeError, "parallel_tool_calls.*True or False.*int"),
        ({"tool_choice": {"type": "auto"}}, TypeError, "tool_choice.*str.*dict"),
        ({"prompt_cache_key": 5}, TypeError, "prompt_cache_key.*str.*int"),
        ({"extra_body": [("a", 1)]}, TypeError, "extra_body.*dict.*list"),
        ({"extra_body": {5: 1}}, TypeError, "each key of extra_body.*str.*int"),
        *(
            ({"extra_headers": {name: SECRET}}, ValueError, "extra_headers.*no HTTP header's")
            for name in ("", "X Team", "X-Team:", "X(1)", '"X"')
        ),
        *(
            ({"extra_headers": {name: "1"}}, ValueError, f"extra_headers cannot set '{name}'")
            for name in ("Content-Length", "transfer-encoding")
        ),
        ({"extra_headers": {"X-A": 5}}, TypeError, "extra_headers.*str.*int"),
        ({"extra_headers": {"X-A": SECRET + "€"}}, ValueError, "extra_headers.*ASCII"),
        ({"extra_headers": {"X-A": SECRET + "\r\nX-B: 1"}}, ValueError, "extra_headers.*printable"),
    ],
)
def test_settings_are_checked_when_they_are_made(fields: Any, error: Any, words: str) -> None:
    """Types and what JSON or HTTP cannot carry; ranges are the provider's business."""
    with pytest.raises(error, match=words) as caught:
        ModelSettings(**fields)

    assert SECRET not in everything_said(caught.value)


def test_good_settings_are_taken() -> None:
    """None switches one off; a number is not held to any provider's range."""
    settings = ModelSettings(
        model=None,
        max_output_tokens=1,
        temperature=1,
        top_p=0.5,
        stop=("a", "b"),
        seed=-1,
        parallel_tool_calls=False,
        extra_body={"n": [1]},
        extra_headers={"X-A": "b c"},
    )

    assert settings.given()["model"] is None
    assert given_options(None, {"settings": settings})["settings"] is settings


def test_settings_do_not_show_what_is_the_callers() -> None:
    """Stop words, the cache key, and what is merged into the request stay out of logs."""
    settings = ModelSettings(
        model="m",
        stop=[SECRET],
        prompt_cache_key=SECRET,
        extra_body={"user": SECRET},
        extra_headers={"X-Key": SECRET},
    )

    assert SECRET not in repr(settings)
    assert "model='m'" in repr(settings)


@pytest.mark.parametrize(
    "name", ["max_iterations", "max_tool_calls", "max_tokens", "conversation_max_tokens"]
)
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [("5", TypeError, "str"), (True, TypeError, "bool"), (1.5, TypeError, "float"), (0, ValueError, "0")],
)
def test_limits_are_checked_when_they_are_made(name: str, value: Any, error: Any, words: str) -> None:
    """A limit is a positive int, or None for no limit."""
    with pytest.raises(error, match=f"{name} must be a positive int.*{words}"):
        Limits(**{name: value})

    if name == "max_iterations":
        with pytest.raises(TypeError, match="positive int, not None"):
            Limits(max_iterations=None)  # type: ignore[arg-type]
    else:
        assert getattr(Limits(**{name: None}), name) is None
    assert getattr(Limits(), name) is UNSET


@pytest.mark.parametrize("name", ["turn", "call", "first_delta", "tool"])
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("5", TypeError, "seconds, not str; pass None"),
        (True, TypeError, "seconds, not bool; pass None"),
        (0, ValueError, "positive.*0.*None for no limit"),
        (-math.inf, ValueError, "positive.*-inf"),
        (math.inf, ValueError, f"at most {MAX_SECONDS}.*None for no limit"),
    ],
)
def test_timeouts_are_checked_when_they_are_made(name: str, value: Any, error: Any, words: str) -> None:
    """A time limit is a positive number of seconds, or None for no limit."""
    with pytest.raises(error, match=f"timeout, {name} must be.*{words}"):
        Timeouts(**{name: value})

    assert getattr(Timeouts(**{name: None}), name) is None
    assert getattr(Timeouts(), name) is UNSET


def test_every_option_has_its_row_in_the_table() -> None:
    """Options and the table of defaults and checks name the same fields, in one order. A merged option has
    the same name; three time limits and the number of iterations have fields of their own."""
    assert tuple(DEFAULTS) == OPTION_NAMES
    assert [name for name in Resolved.__struct_fields__ if name in OPTION_NAMES] == list(OPTION_NAMES)
    assert {*Resolved.__struct_fields__} - {*OPTION_NAMES} == {
        "max_iterations",
        "call_timeout",
        "first_delta_timeout",
        "tool_timeout",
    }
    merged = resolve({}, {})
    same = [name for name in OPTION_NAMES if name not in ("settings", "limits", "timeout")]
    assert [getattr(merged, name) for name in same] == [DEFAULTS[name] for name in same]
    assert (merged.settings, merged.limits, merged.max_iterations) == ({}, None, 10)
    assert (merged.timeout, merged.call_timeout, merged.first_delta_timeout, merged.tool_timeout) == (
        300.0,
        None,
        None,
        60.0,
    )


TIMES = ("timeout", "call_timeout", "first_delta_timeout", "tool_timeout")


@pytest.mark.parametrize(
    ("chat", "call", "found"),
    [
        ({}, {"timeout": 30}, (30, None, None, 60.0)),
        ({}, {"timeout": None}, (None, None, None, 60.0)),
        ({"timeout": 20}, {}, (20, None, None, 60.0)),
        ({"timeout": Timeouts(call=5, tool=None)}, {"timeout": 30}, (30, 5, None, None)),
        ({"timeout": Timeouts(call=5)}, {"timeout": Timeouts(call=None, tool=1)}, (300.0, None, None, 1)),
        ({"timeout": None}, {"timeout": Timeouts(first_delta=2)}, (None, None, 2, 60.0)),
    ],
)
def test_timeouts_merge_field_by_field(chat: Any, call: Any, found: tuple[Any, ...]) -> None:
    """A number is the turn's time, and leaves the others as they are."""
    merged = resolve(chat, call)

    assert tuple(getattr(merged, name) for name in TIMES) == found


@pytest.mark.parametrize(
    ("chat", "call", "iterations", "tokens", "dollars"),
    [
        (Limits(max_tokens=9), Limits(max_cost_usd=1), 10, 9, 1),
        (Limits(max_tokens=9), Limits(max_tokens=None, max_iterations=3), 3, None, None),
        (Limits(max_iterations=2, max_tokens=9), None, 10, None, None),
        (None, Limits(max_iterations=2, max_tokens=9), 2, 9, None),
    ],
)
def test_limits_merge_field_by_field(
    chat: Limits | None, call: Limits | None, iterations: int, tokens: int | None, dollars: int | None
) -> None:
    """None for one limit takes it away. None for all of them leaves the default number of iterations."""
    merged = resolve({"limits": chat}, {"limits": call})
    limits = merged.limits or MergedLimits()

    assert (merged.max_iterations, limits.max_tokens, limits.max_cost_usd) == (iterations, tokens, dollars)
    assert (merged.limits is None) is (tokens is None and dollars is None)


def test_keywords_merge_with_the_options_of_the_same_call() -> None:
    """As settings do."""
    given = given_options(
        ChatOptions(timeout=5, limits=Limits(max_tokens=4)),
        {"timeout": Timeouts(tool=1), "limits": Limits(max_iterations=2)},
    )

    assert given["timeout"] == Timeouts(turn=5, tool=1)
    assert given["limits"] == Limits(max_tokens=4, max_iterations=2)


def test_the_limit_of_a_result_is_the_tools_own() -> None:
    """A tool that is called by a test, without a chat, has the limit that a chat would give it."""
    assert DEFAULTS["max_tool_result_bytes"] == MAX_RESULT_BYTES
