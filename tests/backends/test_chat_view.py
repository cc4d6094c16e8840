"""Facts about the views of Chat Completions: what a host refuses becomes what it takes, and no more."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py.backends.base import RequestParts
from goaitools_py.backends.host_rules import RULES, joined_rules
from goaitools_py.backends.known_hosts import ROWS, known_rules
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_chat.view import request_view
from goaitools_py.backends.protocols import HostRules
from goaitools_py.backends.wire import grown_view
from goaitools_py.backends.wire.kept_views import KeptViews
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.history.rewrite.mend import mended
from goaitools_py.sim.openai.chat_rules import check_openai
from goaitools_py.testing import check_history

from ..history._damage import Words, damaged, random_history
from ..history._lenient import HABITS, base_history, dumped, is_form, lenient

Message = dict[str, Any]

DIALECT = OpenAIChatDialect("api.example.com")
LETTERS = "acdefghijklmnpqrstuvxyz"
STRICTEST = "efjmpr"
"""What OpenAI's own host takes of histories that lenient servers wrote."""


def fresh() -> None:
    """Forget the kept views."""
    grown_view._views = KeptViews()


def as_parts(
    messages: Sequence[Message] | Sequence[bytes], *, preamble: Sequence[Message] = (), tools: bytes = b""
) -> RequestParts:
    """A request with each message as a piece of its own."""
    entries = [one if isinstance(one, bytes) else rawjson.dumps(one) for one in messages]
    return RequestParts(
        model="m", history=entries, preamble=b",\n".join(map(rawjson.dumps, preamble)), tools=tools
    )


def sent(parts: RequestParts) -> list[Message]:
    """The messages of a request, with the preamble."""
    body = json.loads(DIALECT.request(parts).body)
    found: list[Message] = body["messages"]
    return found


def viewed(
    messages: Sequence[Message] | Sequence[bytes], letters: str, *, preamble: Sequence[Message] = ()
) -> list[Message]:
    """The messages as a host with these rules gets them."""
    return sent(request_view(as_parts(messages, preamble=preamble), HostRules(letters=letters)))


def joined(parts: RequestParts) -> bytes:
    return b",\n".join(piece for piece in (parts.preamble, *parts.history) if piece)


# ---------------------------------------------------------------------------- messages for the tests


def user(content: Any = "Hello?", **more: Any) -> Message:
    return {"role": "user", "content": content, **more}


def system(text: str = "Be brief.", role: str = "system") -> Message:
    return {"role": role, "content": text}


def says(content: Any = "Hello.", **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(id: str = "call_1", name: str = "look", **more: Any) -> Message:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def calls(*made: Message, content: Any = None, **more: Any) -> Message:
    return {"role": "assistant", "content": content, "tool_calls": list(made or [call()]), **more}


def result(id: str = "call_1", content: Any = "found") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": content}


def picture(number: int = 0) -> Message:
    return {"type": "image_url", "image_url": {"url": f"https://example.com/{number}.png"}}


def text(words: str) -> Message:
    return {"type": "text", "text": words}


THOUGHT = {"type": "thinking", "thinking": [text("Hm.")]}


def random_talk(dice: random.Random) -> list[Message]:
    """A history that some server took: all that any letter is about comes in it."""
    made: list[Message] = [user("question 0")]
    number = 0
    for turn in range(dice.randint(1, 5)):
        if dice.random() < 0.3:
            made.append(system(f"rule {turn}", dice.choice(["system", "developer"])))
        for _ in range(dice.choice([1, 1, 2])):
            content: Any = dice.choice(
                [f"question {turn}", [text("see"), picture(turn)], [text("a"), text("b")]]
            )
            made.append(user(content, **dice.choice([{}, {}, {"name": "Ada"}])))
        thoughts: Message = dice.choice(
            [
                {},
                {"reasoning_content": "Hm."},
                {"reasoning": "Hm."},
                {"reasoning_content": None},
                {"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}], "reasoning": "Hm."},
            ]
        )
        for _ in range(dice.randrange(3)):
            ids = [
                dice.choice(["call_{}", "functions.look:{}", "abcdef{:03d}", "x" * 50 + "{}"]).format(n)
                for n in range(number, number + dice.randint(1, 2))
            ]
            number += len(ids)
            content = dice.choice([None, "", "Let me see.", [], [text("Wait.")], [THOUGHT, text("Wait.")]])
            more = {"extra_content": {"google": {"thought_signature": "c2ln"}}} if dice.random() < 0.2 else {}
            made.append(calls(*(call(id, index=0, **more) for id in ids), content=content, **thoughts))
            made += [result(id, dice.choice(["found", [text("a"), text("b")]])) for id in ids]
        match dice.randrange(6):
            case 0:
                pass  # the turn failed: the next message of the user comes behind a result, or a question
            case 1:
                made.append(says("", **thoughts))
            case 2:
                made += [says("One."), says("Two.", **thoughts)]
            case 3:
                made.append(says([THOUGHT, text("Yes."), picture(turn)]))
            case _:
                made.append(says(f"answer {turn}", refusal=None, prefix=False, **thoughts))
    return made


# ------------------------------------------------------------------- what each rule wants, written again


def _assistants(messages: Sequence[Message]) -> Iterator[Message]:
    return (one for one in messages if one["role"] == "assistant")


def _calls_in(messages: Sequence[Message]) -> Iterator[Message]:
    return (made for one in messages for made in one.get("tool_calls") or ())


def _ids(messages: Sequence[Message]) -> list[str]:
    return [made["id"] for made in _calls_in(messages)] + [
        one["tool_call_id"] for one in messages if one["role"] == "tool"
    ]


def _parts_in(messages: Sequence[Message]) -> Iterator[Message]:
    return (part for one in messages if isinstance(one["content"], list) for part in one["content"])


def _alternates(messages: Sequence[Message]) -> bool:
    roles = [one["role"] for one in messages]
    pairs = list(pairwise(messages))
    apart = all(
        one["role"] != two["role"] or one["role"] == "tool" or one.get("tool_calls") for one, two in pairs
    )
    rest = [role for role in roles if role not in ("system", "developer")]
    return apart and (not rest or rest[0] == "user")


def _has_reasoning(one: Message) -> bool:
    members = {"reasoning", "reasoning_content", "reasoning_details", "thinking", "thinking_blocks"}
    return bool(members & one.keys()) or any(part["type"] == "thinking" for part in _parts_in([one]))


_KNOWN = {
    "assistant": {"role", "content", "name", "refusal", "audio", "tool_calls", "function_call"}
    | {"reasoning", "reasoning_content"},
    "tool": {"role", "content", "name", "tool_call_id"},
}

HOLDS: Mapping[str, Callable[[Sequence[Message], str], bool]] = {
    "a": lambda m, _: _alternates(m),
    "c": lambda m, _: (
        not any(one.get("tool_calls") and one["content"] and _has_reasoning(one) for one in _assistants(m))
    ),
    "d": lambda m, _: all(one["role"] != "developer" for one in m),
    "e": lambda m, all: (
        not any(
            (one["content"] == "" and ("n" not in all or not one.get("tool_calls"))) or one["content"] == []
            for one in _assistants(m)
        )
    ),
    "f": lambda m, _: (
        all(one.get("tool_calls") != [] for one in m) and all(one["content"] != [] for one in m)
    ),
    "g": lambda m, _: all(
        one["tool_calls"][0].get("extra_content", {}).get("google", {}).get("thought_signature")
        for one in m
        if one.get("tool_calls")
    ),
    "h": lambda m, _: all(
        isinstance(json.loads(made["function"]["arguments"]), dict) for made in _calls_in(m)
    ),
    "i": lambda m, _: all(re.fullmatch("[A-Za-z0-9]{9}", id) for id in _ids(m)),
    "j": lambda m, _: all(re.fullmatch("[A-Za-z0-9_-]{1,40}", id) for id in _ids(m)),
    "k": lambda m, all: all_have_reasoning(m, all),
    "l": lambda m, _: m[-1]["role"] != "assistant",
    "m": lambda m, _: (
        all(one.keys() <= _KNOWN.get(one["role"], {"role", "content", "name"}) for one in m)
        and not any("index" in made for made in _calls_in(m))
    ),
    "n": lambda m, _: all(one["content"] is not None for one in m),
    "p": lambda m, _: all(
        part["type"] == "text"
        or (part["type"] in ("image_url", "file", "input_audio") and one["role"] == "user")
        for one in m
        for part in _parts_in([one])
    ),
    "q": lambda m, _: not any("reasoning_content" in one for one in m),
    "r": lambda m, _: not any(map(_has_reasoning, m)),
    "s": lambda m, _: all(one["role"] not in ("system", "developer") for one in m[1:]),
    "t": lambda m, _: True,  # see its own test
    "u": lambda m, _: not any(one["role"] == "tool" and two["role"] == "user" for one, two in pairwise(m)),
    "v": lambda m, _: sum(part["type"] == "image_url" for part in _parts_in(m)) <= 20,
    "x": lambda m, _: not any(isinstance(one["content"], list) for one in m),
    "y": lambda m, _: not any("name" in one for one in m),
    "z": lambda m, _: all(one["role"] not in ("system", "developer") for one in m),
}
"""By letter: True for messages that a host with this rule takes. The other letters stand behind them."""


def all_have_reasoning(messages: Sequence[Message], letters: str) -> bool:
    """True if each message of the model has reasoning, except where another rule forbids it. Where no
    empty text is taken, it is not empty beside calls."""
    return all(
        isinstance(one.get("reasoning_content"), str)
        and (one["reasoning_content"] or "e" not in letters or not one.get("tool_calls"))
        for one in _assistants(messages)
        if not ("c" in letters and one.get("tool_calls") and one["content"])
    )


def consistent(dice: random.Random, most: int) -> str:
    """Some letters that do not exclude each other."""
    found = ""
    for letter in dice.sample(LETTERS, most):
        found = joined_rules(found, letter)
    return found


def test_every_letter_has_a_judge() -> None:
    """A new letter must come here, too."""
    assert set(HOLDS) == set(LETTERS) == set(RULES) - {"w", "o"}  # "w" is "v" here; "o" is about a setting


@pytest.mark.parametrize("letter", LETTERS)
def test_each_rule_holds_in_its_view(letter: str) -> None:
    """100 random histories: the view has what the rule wants, is valid, and twice changes nothing."""
    broken = 0
    for seed in range(100):
        history = random_talk(random.Random(seed))
        if letter == "v":
            history[0]["content"] = [picture(n) for n in range(seed % 40)] or "none"
        parts = as_parts(history, preamble=[system("One."), system("Two.")])
        assert check_history("openai", history, unique_ids=False) == [] or letter != "d"

        made = request_view(parts, HostRules(letters=letter))

        assert HOLDS[letter](sent(made), letter), seed
        broken += not HOLDS[letter](sent(parts), letter)
        assert check_history("openai", sent(made), unique_ids=False) == [], seed
        assert request_view(made, HostRules(letters=letter)) is made, seed
    assert broken or letter in "ht"


def test_all_rules_hold_at_once() -> None:
    """200 random histories under as many sets of letters."""
    for seed in range(200):
        dice = random.Random(seed)
        history, letters = random_talk(dice), consistent(dice, dice.randint(2, len(LETTERS)))
        parts = as_parts(history, preamble=dice.choice([[], [system("One."), system("Two.")]]))

        made = request_view(parts, HostRules(letters=letters))

        for letter in letters:
            assert HOLDS[letter](sent(made), letters), (seed, letters, letter)
        assert check_history("openai", sent(made), unique_ids=False) == [], (seed, letters)
        again = request_view(made, HostRules(letters=letters))
        assert joined(again) == joined(made), (seed, letters)


def test_letters_that_exclude_each_other_do_no_harm() -> None:
    """The engine never gives them; a state of a later release may."""
    for seed in range(100):
        history = random_talk(random.Random(seed))
        made = viewed(history, LETTERS)
        assert check_history("openai", made, unique_ids=False) == []
        for letter in "adilmnrtuvxyz":
            assert HOLDS[letter](made, LETTERS), (seed, letter)


def test_an_unknown_letter_is_no_rule() -> None:
    """A later release may have learned it."""
    parts = as_parts(random_talk(random.Random(1)))

    assert request_view(parts, HostRules(letters="!ωA")) is parts
    assert request_view(parts, HostRules()) is parts


@pytest.mark.parametrize("letter", [one for one in LETTERS if one not in "alv"])
def test_a_longer_history_begins_with_the_same_bytes(letter: str) -> None:
    """So a prompt cache stays valid. A system message at the very end is the exception of ``s`` and ``z``."""
    for seed in range(30):
        history = random_talk(random.Random(seed))
        before = b""
        for end in range(1, len(history) + 1):
            now = joined(request_view(as_parts(history[:end]), HostRules(letters=letter)))
            assert now.startswith(before), (seed, end)
            before = b"" if letter in "sz" and history[end - 1]["role"] in ("system", "developer") else now


@pytest.mark.parametrize("letter", ["a", "l"])
def test_only_the_last_message_may_change(letter: str) -> None:
    """All bytes before it stay."""
    for seed in range(30):
        history = random_talk(random.Random(seed))
        before: list[bytes] = []
        for end in range(1, len(history) + 1):
            found = request_view(as_parts(history[:end]), HostRules(letters=letter))
            now = joined(found).split(b",\n")
            assert now[: len(before)] == before, (seed, end)
            before = now[:-1]


@pytest.mark.parametrize("letters", [*LETTERS, "acdegilmnpqstuvxy"])
def test_a_kept_view_gives_the_same_request(letters: str) -> None:
    """However the history grew, and in whatever pieces."""
    for seed in range(6):
        history = [rawjson.dumps(one) for one in random_talk(random.Random(seed))] * 3
        for end in range(1, len(history) + 1, 3):
            cut = random.Random(end).randrange(end)
            pieces: list[Any] = [memoryview(b",\n".join(history[:cut])), *history[cut:end]]
            parts = RequestParts(model="m", history=pieces)
            grown = request_view(parts, HostRules(letters=letters))
            kept = grown_view._views
            fresh()
            assert joined(request_view(parts, HostRules(letters=letters))) == joined(grown)
            grown_view._views = kept
        fresh()


def test_what_no_rule_is_about_stays_the_very_object() -> None:
    """The request itself if nothing changes, and the pieces before the first change."""
    plain: list[Any] = [rawjson.dumps(one) for one in [user(), says(), user("And?"), says("Then.")] * 9]
    whole = memoryview(b",\n".join(plain))
    odd = rawjson.dumps(calls(call("call_7")))
    parts = RequestParts(model="m", history=[whole, *plain, rawjson.dumps(user())])

    for letters in ("i", "acdefgijmnpqrstuvxy", "iklmnprs"):
        quiet = letters.replace("k", "")
        assert request_view(parts, HostRules(letters=quiet)) is parts
    longer = replace(parts, history=[*parts.history, odd, rawjson.dumps(result("call_7")), plain[0]])
    made = request_view(longer, HostRules(letters="i"))

    assert all(new is old for new, old in zip(made.history, parts.history, strict=False))
    assert made.history[-1] is plain[0]
    assert len(made.history) == len(parts.history) + 2


def test_the_kept_views_stay_within_their_bytes() -> None:
    """A thousand conversations, and one that is too long: the youngest is found, the oldest is not."""
    views: KeptViews[int] = KeptViews()
    for number in range(1000):
        views.keep("i", b"%d" % number + b"x" * 20_000, number, 20_000)
    views.keep("i", b"long" + b"x" * 2_000_000, -1, 0)

    held = [row for half in (views._older, views._younger) for rows in half.values() for row in rows]

    assert sum(len(history) + 20_000 for history, _ in held) < 9 * 2**20
    assert views.find("i", b"999" + b"x" * 20_000) == (20_003, 999)
    assert views.find("i", b"999" + b"x" * 20_000 + b",\n{}") == (20_003, 999)
    assert views.find("i", b"999" + b"x" * 20_001) is None
    assert views.find("j", b"999" + b"x" * 20_000) is None
    assert views.find("i", b"0" + b"x" * 20_000) is None
    assert views.find("i", b"long" + b"x" * 2_000_000) is None


def test_a_conversation_goes_on_from_an_earlier_view() -> None:
    """The newest three views of one that grows are kept, and the first: a state may be used again."""
    views: KeptViews[int] = KeptViews()
    grown = [b"x" * 300 + b",\n{}" * number for number in range(10)]
    for number, history in enumerate(grown):
        views.keep("i", history, number, 0)
        views.keep("i", history, number, 0)

    found = [views.find("i", history + b",\n[]") for history in grown]

    assert [one[1] for one in found if one is not None] == [0, 0, 0, 0, 0, 0, 0, 7, 8, 9]
    assert [one[0] for one in found if one is not None][-2:] == [len(grown[8]), len(grown[9])]


def test_nothing_that_is_no_history_raises() -> None:
    """200 damaged histories, with members that are missing or of any other type, under all rules."""
    for seed in range(200):
        dice = random.Random(seed)
        history, names = lenient("openai", dice, times=2)
        entries = damaged(dumped(history), dice, times=4)
        letters = dice.choice([*LETTERS, "acdegilmnpqstuvxy"])
        made = request_view(as_parts(entries), HostRules(letters=letters))
        fresh()
        assert request_view(as_parts(entries), HostRules(letters=letters)) == made, (seed, names)


@pytest.mark.parametrize("letters", ["i", "j", "k", "acdegilmnpqstuvxy"])
def test_a_hostile_history_takes_no_longer_than_its_length(letters: str) -> None:
    """Thousands of calls in one message, and as many messages: five times as many take about as many times as
    long."""
    import time

    def seconds(times: int) -> float:
        fresh()
        ids = [f"t.{number}" for number in range(times * 4)]
        wide = [user(), calls(*map(call, ids)), *map(result, ids)]
        long = [user("x"), says("y", reasoning="z")] * times
        began = time.process_time()
        viewed([*wide, *long], letters)
        return time.process_time() - began

    assert seconds(1_000) < 10 * seconds(200) + 2


# ---------------------------------------------------------------------------------- letter by letter

CASES = [
    ("a", [user("A?"), user("B?")], [user("A?\n\nB?")]),
    ("a", [user("A?", name="ada"), user("B?", name="bob")], [user("A?\n\nB?")]),
    ("a", [user([picture()]), user("B?")], [user([picture(), text("B?")])]),
    ("a", [user("A?"), says("B."), says("C.")], [user("A?"), says("B.\n\nC.")]),
    ("a", [user(), says("Wait."), calls(), result()], [user(), calls(content="Wait."), result()]),
    ("a", [user(), calls(call("a"), call("b")), result("a"), result("b")], None),
    ("a", [says("Hello.")], [user("."), says("Hello.")]),
    ("c", [calls(content="Wait.", reasoning_content="Hm.")], [calls(content="Wait.")]),
    ("c", [calls(reasoning_content="Hm.")], None),
    ("c", [says(reasoning_content="Hm.")], None),
    ("d", [system("X", "developer")], [system("X")]),
    ("e", [calls(content="")], [calls()]),
    ("e", [calls(content=[text("")])], [calls()]),
    ("e", [user(), says(""), user("B?")], [user(), user("B?")]),
    ("e", [says([text(""), text("B.")])], [says([text("B.")])]),
    ("e", [user("")], None),
    ("f", [says("a", tool_calls=[])], [says("a")]),
    ("f", [user("x", name="A <b>")], [user("x", name="A__b_")]),
    (
        "g",
        [calls(call("a"), call("b"))],
        [
            calls(
                call(
                    "a", extra_content={"google": {"thought_signature": "skip_thought_signature_validator"}}
                ),
                call("b"),
            )
        ],
    ),
    ("g", [calls(call("a", extra_content={"google": {"thought_signature": "c2ln"}}))], None),
    (
        "h",
        [calls(call("a", function={"name": "look", "arguments": '{"a": 1}{'}), call("b"))],
        [calls(call("a", function={"name": "look", "arguments": "{}"}), call("b"))],
    ),
    ("i", [calls(call("abcdefghi")), result("abcdefghi")], None),
    ("j", [calls(call("call_1")), result("call_1")], None),
    ("k", [calls(reasoning="Hm.")], [calls(reasoning_content="Hm.")]),
    ("k", [calls(reasoning_content="")], None),
    ("ek", [calls(reasoning_content="")], [calls(reasoning_content=" ")]),
    ("ek", [says("B.", reasoning_content="")], None),
    ("k", [says("B.")], [says("B.", reasoning_content=" ")]),
    ("k", [says("B.", reasoning_content="Hm."), user("C?")], None),
    ("l", [user(), says()], [user(), says(), user(".")]),
    ("l", [user()], None),
    (
        "m",
        [calls(call("a", index=0), prefix=False, reasoning_content="Hm.", refusal=None)],
        [calls(call("a"))],
    ),
    ("m", [user([{**text("x"), "cache_control": {"type": "ephemeral"}}])], [user([text("x")])]),
    ("n", [calls()], [calls(content="")]),
    (
        "p",
        [result(content=[text("a"), picture()])],
        [
            result(
                content=[text("a"), text("[image_url: left out, because the provider does not take it here]")]
            )
        ],
    ),
    ("p", [says([THOUGHT, text("a")])], [says([text("a")])]),
    (
        "p",
        [says(None, audio={"id": "a1"})],
        [says("[audio: left out, because the provider does not take it here]")],
    ),
    ("p", [says("Hi.", audio={"id": "a1"})], [says("Hi.")]),
    (
        "em",
        [calls({**call("c", index=0), "extra_content": {"google": {}}}, content="", parsed=None)],
        [calls(call("c"))],
    ),
    ("q", [says(reasoning_content="Hm.")], [says(reasoning="Hm.")]),
    ("q", [says(reasoning_content="Hm.", reasoning="Ah.")], [says(reasoning="Ah.")]),
    ("r", [says([THOUGHT, text("a")], reasoning="Hm.")], [says([text("a")])]),
    ("r", [user(), says("", reasoning="Hm."), user("B?")], [user(), user("B?")]),
    ("s", [user("A?"), says(), system("X"), user("B?")], [user("A?"), says(), user("{X}\n\nB?")]),
    ("s", [user("A?"), says(), system("X")], [user("A?"), says(), user("{X}")]),
    ("s", [user("A?"), system("X"), says()], [user("A?"), user("{X}"), says()]),
    ("s", [system("X"), system("Y"), user()], [system("X\n\nY"), user()]),
    (
        "s",
        [user("A?"), system("X"), system("Y"), user([picture()], name="ada")],
        [user("A?"), user([text("{X}\n\n{Y}"), picture()], name="ada")],
    ),
    ("u", [calls(), result(), user("B?")], [calls(), result(), says("."), user("B?")]),
    ("u", [calls(), result(), says("B.")], None),
    ("ku", [result(), user("B?")], [result(), says(".", reasoning_content=" "), user("B?")]),
    ("us", [calls(), result(), system("X")], [calls(), result(), says("."), user("{X}")]),
    ("x", [user([text("A"), text("B")])], [user("A\n\nB")]),
    (
        "x",
        [user([text("A"), picture()])],
        [user("A\n\n[image_url: left out, because the provider does not take it here]")],
    ),
    ("x", [says([THOUGHT, text("A"), text("B")])], [says("AB")]),
    ("x", [result(content=[text("A"), text("B")])], [result(content="A\n\nB")]),
    ("y", [user("A?", name="ada")], [user("A?")]),
    ("y", [calls(), result()], None),
    ("z", [system("X"), user("B?")], [user("{X}\n\nB?")]),
    ("kc", [calls(content="Wait.", reasoning="Hm.")], [calls(content="Wait.")]),
    (
        "gm",
        [calls(call("a", index=0, extra_content={"google": {"thought_signature": "c2ln"}}))],
        [calls(call("a", extra_content={"google": {"thought_signature": "c2ln"}}))],
    ),
    ("en", [calls(content="")], None),
]


def _with_blocks(message: Message) -> Message:
    """``{X}`` stands for the block of a system message X."""
    return json.loads(re.sub(r"\{(X|Y)\}", r"<app-system>\\n\1\\n</app-system>", json.dumps(message)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("letters", "given", "wanted"), CASES)
def test_a_rule_changes_this_and_no_more(
    letters: str, given: list[Message], wanted: list[Message] | None
) -> None:
    """None: nothing changes, and the request is the same object."""
    parts = as_parts(given)

    made = request_view(parts, HostRules(letters=letters))

    assert sent(made) == (given if wanted is None else list(map(_with_blocks, wanted)))
    assert (made is parts) == (wanted is None)


def test_ids_are_nine_letters_and_stay_pairs() -> None:
    """Call and result get the same; other calls get others; an id that fits stays."""
    ids = ["call_1", "functions.look:0", "é" * 70, "a b", "abcDEF123", "", "x" * 9, "x" * 10]
    given = [user(), *(one for id in ids for one in (calls(call(id)), result(id)))]

    made = viewed(given, "i")

    called = [made["id"] for made in _calls_in(made)]
    assert called == [one["tool_call_id"] for one in made if one["role"] == "tool"]
    assert len(set(called)) == len(ids)
    assert [id for id in called if id in ids] == ["abcDEF123", "", "x" * 9]
    assert viewed(given[:3], "i")[1]["tool_calls"][0]["id"] == called[0]


def test_a_thousand_ids_do_not_meet() -> None:
    """Nor do they depend on what stands around them."""
    ids = [f"call_{number}" for number in range(1000)]
    made = viewed([calls(*map(call, ids))], "i")

    assert len({one["id"] for one in _calls_in(made)}) == 1000


def test_used_tools_are_offered_and_forbidden() -> None:
    """Only where none are offered, and only if the history has calls."""
    custom = {"id": "b", "type": "custom", "custom": {"name": "draw", "input": "x"}}
    history = [user(), calls(call("a"), custom), result("a"), result("b"), user("B?")]
    parts = as_parts(history)

    made = request_view(parts, HostRules(letters="t"))

    body = json.loads(DIALECT.request(made).body)
    assert body["tool_choice"] == "none"
    assert [tool[tool["type"]]["name"] for tool in body["tools"]] == ["draw", "look"]
    assert body["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert made.history is parts.history
    given = replace(parts, tools=b"[{}]")
    assert request_view(given, HostRules(letters="t")) is given
    plain = as_parts([user(), says()])
    assert request_view(plain, HostRules(letters="t")) is plain


def test_old_pictures_go_ten_at_a_time() -> None:
    """Twenty stay at most, the newest, and the beginning changes once in ten pictures."""
    talk = [one for n in range(45) for one in (user([text(f"{n}"), picture(n)]), says(f"saw {n}"))]
    seen: list[list[str]] = []
    for end in range(1, len(talk) + 1, 2):
        found = _parts_in(viewed(talk[:end], "v"))
        seen.append([part["image_url"]["url"] for part in found if part["type"] == "image_url"])

    assert seen[19] == [picture(n)["image_url"]["url"] for n in range(20)]
    assert all(len(urls) <= 20 and urls[-1].endswith(f"/{n}.png") for n, urls in enumerate(seen))
    assert viewed(talk, "w") == viewed(talk, "v")
    starts = [urls[0] for urls in seen]
    assert len(set(starts)) == 4


def test_one_system_message_even_from_a_preamble() -> None:
    """Leading ones are joined, those of the history too."""
    made = viewed([system("C"), user()], "s", preamble=[system("A"), system("B")])

    assert made == [system("A\n\nB\n\nC"), user()]
    preamble = as_parts([user()], preamble=[system("A")])
    assert request_view(preamble, HostRules(letters="s")) is preamble
    assert viewed([user("Hi?")], "z", preamble=[system("X")]) == [_with_blocks(user("{X}\n\nHi?"))]


def test_a_users_text_cannot_look_like_a_system_message() -> None:
    """The block around a system message is one that no user can write."""
    block = "<app-system>\nX\n</app-system>"
    mine = json.loads(DIALECT.entries(Words("openai").dialect.view([rawjson.dumps(user(block))]))[0])

    (made,) = viewed([system("X"), mine], "z")

    assert made["content"].count(block) == 1


# ------------------------------------------------------------------------------------- forms at an import


@pytest.mark.parametrize("habit", HABITS["openai"])
def test_each_habit_is_valid_refused_and_viewed(habit: str) -> None:
    """By the wide rules it is a history; OpenAI refuses it, and takes what becomes of it."""
    history = base_history(Words("openai"))
    HABITS["openai"][habit](history)
    entries = dumped(history)
    assert check_history("openai", entries, unique_ids=False) == []
    assert refusals(entries) != []

    formed = [one.entry for one in DIALECT.history_forms(entries)]
    made = request_view(as_parts(entries), HostRules(letters=STRICTEST))

    assert refusals(joined(made).split(b",\n")) == []
    assert (refusals(formed) == []) == is_form(habit)


def refusals(entries: Sequence[bytes]) -> list[str]:
    """What OpenAI says to a request with this history and one more message of the user."""
    history = [json.loads(entry) for entry in [*entries, *Words("openai").user("And now?")]]
    return check_openai({"model": "gpt", "messages": history})


def test_any_mixture_of_habits_is_taken() -> None:
    """100 random histories, each with some habits, and another 100 that were damaged and mended."""
    for seed in range(200):
        dice = random.Random(seed)
        history, names = lenient("openai", dice, times=dice.randint(1, 5))
        entries = dumped(history)
        if seed >= 100:
            entries = damaged(entries, dice, times=dice.randint(1, 5))
            entries = [one.entry for one in mended(entries, DIALECT).entries]

        made = joined(request_view(as_parts(entries), HostRules(letters=STRICTEST)))

        assert refusals([one.entry for one in mended(made.split(b",\n"), DIALECT).entries]) == [], (
            seed,
            names,
        )


def test_forms_change_only_what_they_are_about() -> None:
    """Random histories in the package's own words: each entry is the same object, here and in the view."""
    dice = random.Random(20261125)
    for _ in range(200):
        entries = random_history(Words("openai"), dice)
        assert all(
            view.entry is entry and not view.changes
            for view, entry in zip(DIALECT.history_forms(entries), entries, strict=True)
        )
        parts = as_parts(entries)
        assert request_view(parts, HostRules(letters=STRICTEST)) is parts


FORMS = [
    ('{"role":"assistant","content":"a","tool_calls":[]}', '{"role":"assistant","content":"a"}', "members"),
    (
        '{"role":"assistant","content":[],"tool_calls":[{"id":"c","type":"function","function":'
        '{"name":"f","arguments":"{}"}}]}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":'
        '{"name":"f","arguments":"{}"}}]}',
        "rewritten",
    ),
    (
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c", "function":'
        '{"name":"functions.f","arguments":"{\\"a\\": 1e5}"}}]}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c", "function":'
        '{"name":"f","arguments":"{\\"a\\": 1e5}"},"type":"function"}]}',
        "rewritten tool_renamed",
    ),
    (
        '{"role":"function","name":"a.b","content":"x"}',
        '{"role":"function","name":"a_b","content":"x"}',
        "tool_renamed",
    ),
    (
        '{"role":"user","content":[{"type":"image_url","image_url":"https://example.com/a.png"}]}',
        '{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}',
        "rewritten",
    ),
    ('{"role":"user","content":"x","name":""}', '{"role":"user","content":"x"}', "speaker_renamed"),
    (
        '{"role":"user","content":"x","name":"A <b>"}',
        '{"role":"user","content":"x","name":"A__b_"}',
        "speaker_renamed",
    ),
]


@pytest.mark.parametrize(("given", "made", "kinds"), FORMS)
def test_a_form_changes_no_other_byte(given: str, made: str, kinds: str) -> None:
    """Spaces, numbers and members that stay are the given ones, and what changed is told."""
    (found,) = DIALECT.history_forms([given.encode()])

    assert found.entry == made.encode()
    assert " ".join(sorted(found.changes)) == " ".join(sorted(kinds.split()))


def test_a_form_tells_the_new_ids() -> None:
    """A call and its result get the same, and two calls stay two."""
    words = Words("openai")
    ids = ["c1", "t.1:0", "x" * 65, "x" * 66]
    entries = [entry for id in ids for entry in words.calls(id) + words.results(id)]

    found = list(DIALECT.history_forms(entries))

    pairs = [DIALECT.view([one.entry for one in found[at : at + 2]]) for at in range(0, len(found), 2)]
    made = [call.id for one, _ in pairs for call in one.tool_calls]
    assert [answer.tool_call_id for _, answer in pairs] == made
    assert len(set(made)) == len(ids)
    assert made[:2] == ids[:2]
    told = {old: new for view in found for old, new in view.ids.items()}
    assert told == {old: new for old, new in zip(ids, made, strict=True) if old != new}


# --------------------------------------------------------------------------------------- known hosts


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table_is_whole(row: Any) -> None:
    """Its letters are known and fit each other; it has a date and a source; some model gets them."""
    assert row.letters == joined_rules("", row.letters)
    assert set(row.letters) <= set(RULES)
    assert re.fullmatch(r"20\d\d-\d\d", row.since)
    assert len(row.source) > 8
    host, model = (name.replace("*", "x") for name in (row.host, row.model))

    known = known_rules(row.wire, host, "", model)

    assert set(row.letters) <= set(known.letters)


KNOWN = [
    ("openai", "gpt-6", ""),
    ("azure", "gpt-6", ""),
    ("local", "qwen3", ""),
    ("vllm.example.com", "qwen3", ""),
    ("api.deepseek.com", "deepseek-chat", "dk"),
    ("api.moonshot.ai", "kimi-k2.5", "ek"),
    ("api.moonshot.cn", "moonshot-v1-8k", "e"),
    ("api.mistral.ai", "mistral-large-latest", "iluy"),
    ("api.groq.com", "openai/gpt-oss-120b", "qy"),
    ("api.groq.com", "llama-3.3-70b-versatile", "ry"),
    ("api.groq.com", "moonshotai/kimi-k2-instruct", "ry"),
    ("api.cerebras.ai", "gpt-oss-120b", "dq"),
    ("generativelanguage.googleapis.com", "gemini-3-pro-preview", "g"),
    ("us-central1-aiplatform.googleapis.com", "google/gemini-3-pro", "g"),
    ("aiplatform.googleapis.com", "xai/grok-4", ""),
    ("api.perplexity.ai", "sonar", "a"),
    ("gateway.ai.cloudflare.com", "workers-ai/@cf/qwen/qwen3", "n"),
    ("gateway.ai.cloudflare.com", "openai/gpt-6", ""),
    ("evil-api.deepseek.com.example.com", "deepseek-chat", ""),
]


@pytest.mark.parametrize(("family", "model", "letters"), KNOWN)
def test_known_hosts_have_known_rules(family: str, model: str, letters: str) -> None:
    """So the first request is right; of other hosts nothing is assumed."""
    assert OpenAIChatDialect(family).known_rules(model) == HostRules(letters=letters)
    by_host = OpenAIChatDialect(family, host="127.0.0.1:11434").known_rules(model)
    assert ("q" in by_host.letters) == (family not in ("openai", "azure"))


# -------------------------------------------------------------------------------- recorded conversations


@pytest.fixture(scope="session")
def conversations(data_dir: Path) -> list[list[Message]]:
    """Real conversations, some of each source."""
    files = sorted((data_dir / "conversations").glob("*.jsonl.zst"))
    if not files:
        pytest.skip("no conversations in the data directory")
    found: list[list[Message]] = []
    for path in files:
        with path.open("rb") as file:
            lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
        found += [json.loads(line)["messages"] for line in lines[:12]]
    return found


@pytest.fixture(scope="session")
def requests(data_dir: Path) -> list[list[Message]]:
    """The messages of recorded requests that a server took."""
    path = data_dir / "recorded" / "openai-chat.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return [
        exchange["request"]["body"]["messages"]
        for line in lines
        for exchange in json.loads(line)["exchanges"]
        if exchange["response"]["status"] < 300 and exchange["request"]["body"].get("messages")
    ]


@pytest.mark.parametrize("letters", [*LETTERS, "acdegilmnpqstuvxy", "aefijlmuxz"])
def test_recorded_conversations_are_viewed(
    conversations: list[list[Message]], requests: list[list[Message]], letters: str
) -> None:
    """Each stays a valid history, has what the rules want, and a second view changes nothing."""
    for messages in [*conversations, *requests]:
        if check_history("openai", messages, unique_ids=False, open_end=True):
            continue
        parts = as_parts(messages)
        made = request_view(parts, HostRules(letters=letters))
        found = [{"content": None, **one} for one in sent(made)]
        assert check_history("openai", sent(made), unique_ids=False, open_end=True) == []
        for letter in joined_rules("", letters):
            assert HOLDS[letter](found, letters), letter
        assert joined(request_view(made, HostRules(letters=letters))) == joined(made)


def test_recorded_requests_to_known_hosts_hardly_change(data_dir: Path) -> None:
    """Their servers took them. So a rule of the table that changes many of them is wrong, or not needed."""
    path = data_dir / "recorded" / "openai-chat.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    changed: dict[str, list[bool]] = {}
    for exchange in (one for line in lines for one in json.loads(line)["exchanges"]):
        host, body = exchange["request"]["host"], exchange["request"]["body"]
        rules = OpenAIChatDialect(host).known_rules(str(body.get("model")))
        if rules.letters and exchange["response"]["status"] < 300 and body.get("messages"):
            pair = (viewed(body["messages"], rules.letters), sent(as_parts(body["messages"])))
            for one in (*pair[0], *pair[1]):
                if one.get("reasoning_content") in ("", " "):  # these servers took it empty, or did without
                    del one["reasoning_content"]
            changed.setdefault(host, []).append(pair[0] != pair[1])

    assert len(changed) > 2
    assert {host: sum(found) for host, found in changed.items() if sum(found) > len(found) // 2} == {}
