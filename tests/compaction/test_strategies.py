"""Each trigger and strategy alone, on states without a provider: what stays, what it says instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py import (
    NO_COMPACTION,
    ChatOptions,
    ClearToolResults,
    Compactor,
    DropOldest,
    Image,
    KeepRecentTurns,
    Message,
    MessageLimit,
    Summarize,
    TokenLimit,
    TurnLimit,
    all_of,
    any_of,
    first_of,
    system,
    user,
)
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.compaction import (
    AskFailed,
    ByteLimit,
    ColdCache,
    CollapseToolExchanges,
    CompactionRequest,
    ContextWindow,
    DropMedia,
    Kept,
    MiddleOut,
    ModelAnswer,
    NoChange,
    PendingLimit,
    ProviderCompaction,
    ServerCompaction,
    TurnView,
)
from goaitools_py.compaction.base import Planned, checked_turns, name_of
from goaitools_py.history.rewrite.cut import compaction_request
from goaitools_py.types.messages import Text

from ._histories import WIRES, Book, Said


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _request(book: Book, **known: Any) -> CompactionRequest:
    return compaction_request(book.state, book.dialect, **{"blob_bytes": lambda: 0, **known})


def _talk(wire: str, count: int) -> Book:
    """Some turns of two messages each."""
    book = Book(wire)
    for number in range(count):
        book.add(user(f"Note {number}"), Said(f"Noted {number}. " * 10))
    return book


def _tools(wire: str, count: int, *, result: str = "a long result " * 30, reasoning: str = "") -> Book:
    """Some turns with an exchange each."""
    book = Book(wire)
    for number in range(count):
        asked = Said("", (("get_score", {"team": f"Team {number}"}),), reasoning, ((Text(result),),))
        book.add(user(f"Score {number}?"), asked, Said(f"It is {number}.", reasoning=reasoning))
    return book


def _kept(answer: Any) -> tuple[TurnView, ...]:
    assert not isinstance(answer, NoChange), answer
    return tuple(answer.turns if isinstance(answer, Kept) else answer)


def _texts(turns: Any) -> list[str]:
    return [turn.messages[0].text if not turn.note else f"({turn.note})" for turn in _kept(turns)]


def _notes(*numbers: int) -> list[str]:
    return [f"Note {number}" for number in numbers]


def _with_summary(wire: str, count: int) -> Book:
    """A summary, and some turns after it."""
    book = _talk(wire, 1)
    note = _request(book).note("Before that, Ada came.")
    fresh = Book(wire)
    fresh.add(*note.messages, note="summary")
    for number in range(count):
        fresh.add(user(f"Note {number}"), Said("Noted. " * 10))
    return fresh


# ------------------------------------------------------------------------------------------- triggers


@pytest.mark.parametrize(
    ("trigger", "known", "fires"),
    [
        (TurnLimit(3), {}, False),
        (TurnLimit(2), {}, True),
        (ColdCache(), {}, False),
        (ColdCache(), {"is_cold": True}, True),
        (all_of(ColdCache(), TokenLimit(10_000)), {"is_cold": True}, False),
        (any_of(ColdCache(), MessageLimit(5)), {}, True),
        (ByteLimit(900), {"blob_bytes": lambda: 1000}, True),
        (ByteLimit(1000), {"blob_bytes": lambda: 1000}, False),
        (PendingLimit(1), {}, False),
    ],
)
def test_a_trigger_fires_beyond_its_limit(trigger: Any, known: dict[str, Any], fires: bool) -> None:
    """At the limit nothing happens, above it the trigger fires."""
    assert trigger(_request(_talk("openai", 3), **known)) is fires


def test_a_byte_limit_encodes_only_what_may_be_too_large() -> None:
    """Where the blob before and all that is new are within the limit together, nothing is encoded."""
    encoded: list[int] = []

    def encode() -> int:
        encoded.append(1)
        return 2_000

    far = _request(_talk("openai", 3), blob_bytes=encode, most_blob_bytes=4_999)
    near = _request(_talk("openai", 3), blob_bytes=encode, most_blob_bytes=5_001)

    assert not ByteLimit(5_000)(far)
    assert encoded == []
    assert not ByteLimit(5_000)(near)
    assert not ByteLimit(5_000)(near)
    assert encoded == [1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ByteLimit(0),
        lambda: TurnLimit(-1),
        lambda: KeepRecentTurns(0),
        lambda: MiddleOut(first=0),
        lambda: ClearToolResults(keep=-1),
        lambda: ClearToolResults(at_least=0),
        lambda: CollapseToolExchanges(keep_turns=0),
        lambda: DropMedia(after_turns=0),
        lambda: Summarize(keep_turns=0),
        lambda: Summarize(max_output_tokens=0),
        lambda: ContextWindow(),
        lambda: ContextWindow(max_tokens=0),
        lambda: ContextWindow(max_messages=9, strategy="newest_first"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any) -> None:
    """A limit below one, or a name that nobody knows, is a ValueError where it is written."""
    with pytest.raises(ValueError, match=r"takes|one of"):
        make()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PendingLimit(True), "whole number, got bool"),
        (lambda: MessageLimit("8"), "whole number, got str"),
        (lambda: Compactor(3, KeepRecentTurns(1)), "a trigger such as .* got int"),
        (lambda: Compactor(MessageLimit, KeepRecentTurns(1)), "got the class MessageLimit: call it"),
        (lambda: Compactor(MessageLimit(1), "drop"), "a strategy such as .* got str"),
        (lambda: Compactor(MessageLimit(1), KeepRecentTurns(1), before_cut=[]), "before_cut=, got list"),
        (lambda: any_of(MessageLimit(1), 3), "a trigger such as .* got int"),
        (lambda: all_of(TurnLimit), "got the class TurnLimit"),
        (
            lambda: Compactor(KeepRecentTurns(6), MessageLimit(40)),
            r"KeepRecentTurns is a strategy, and stands in a trigger's place; .*takes the trigger",
        ),
        (
            lambda: Compactor(lambda request: True, TokenLimit(9)),
            "TokenLimit is a trigger, .* strategy's place",
        ),
        (lambda: any_of(MessageLimit(1), Summarize()), "Summarize is a strategy, .* trigger's place"),
        (lambda: ContextWindow(max_messages=9, strategy=TurnLimit(3)), "TurnLimit is a trigger"),
        (lambda: ProviderCompaction(fallback=MessageLimit(3)), "MessageLimit is a trigger"),
        (lambda: first_of(), "got nothing"),
        (lambda: first_of(MessageLimit(1)), "got MessageLimit"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused(make: Any, match: str) -> None:
    """A mistake is a TypeError where it is written, not a warning in every turn."""
    with pytest.raises(TypeError, match=match):
        make()


@pytest.mark.parametrize(
    "strategy",
    [
        ClearToolResults(),
        CollapseToolExchanges(),
        DropMedia(after_turns=1),
        DropOldest(target_tokens=9),
        KeepRecentTurns(1),
        MiddleOut(),
        ProviderCompaction(),
        Summarize(),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
@pytest.mark.parametrize(
    "trigger",
    [
        ByteLimit(1),
        ColdCache(),
        MessageLimit(1),
        PendingLimit(1),
        TokenLimit(1),
        TurnLimit(1),
        any_of(ColdCache()),
        all_of(ColdCache()),
    ],
    ids=lambda trigger: type(trigger).__name__,
)
def test_a_trigger_and_a_strategy_are_not_swapped(trigger: Any, strategy: Any) -> None:
    """Both are called with a request, so that nothing but a check at once would tell."""
    Compactor(trigger, strategy)
    Compactor(lambda request: False, lambda request: request.turns)

    with pytest.raises(TypeError, match=f"{type(strategy).__name__} is a strategy"):
        Compactor(strategy, trigger)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_no_compaction_is_itself_in_copied_options(again: Any) -> None:
    """It is known by its identity, also where options went through a queue."""
    assert again(ChatOptions(compactor=NO_COMPACTION)).compactor is NO_COMPACTION


# ------------------------------------------------------------------------------------- turns that go


@pytest.mark.parametrize(
    ("strategy", "stays"),
    [
        (KeepRecentTurns(2), ["(summary)", *_notes(4, 5)]),
        (KeepRecentTurns(6), ["(summary)", *_notes(0, 1, 2, 3, 4, 5)]),
        (DropOldest(target_messages=5), ["(summary)", *_notes(4, 5)]),
        (DropOldest(target_messages=4), ["(summary)", *_notes(5)]),
        (DropOldest(target_messages=2), _notes(5)),
        (MiddleOut(first=1, last=2), ["(summary)", "Note 0", "(gap)", *_notes(4, 5)]),
        (MiddleOut(first=1, last=2, note=""), ["(summary)", *_notes(0, 4, 5)]),
    ],
)
def test_a_summary_outlives_the_turns_that_go(wire: str, strategy: Any, stays: list[str]) -> None:
    """A note counts as no turn; the newest summary stays, as long as it fits."""
    request = _request(_with_summary(wire, 6))

    assert _texts(strategy(request)) == stays


def test_a_target_that_cannot_be_reached_is_said() -> None:
    """The turns that always stay may be too much; then the strategy says how much they are."""
    request = _request(_talk("openai", 5))

    some = DropOldest(target_messages=3, min_recent_turns=2)(request)
    none = DropOldest(target_messages=3, min_recent_turns=5)(request)

    assert isinstance(some, Kept)
    assert some.reason == "the newest 2 turns, which always stay, take 4 of 3 messages"
    assert isinstance(none, NoChange)
    assert "take 10 of 3 messages" in none.reason


def test_a_gap_is_noted_once(wire: str) -> None:
    """When more goes from the middle, the note that stands there stays: the very same turn."""
    strategy = MiddleOut(first=1, last=1)
    first = _kept(strategy(_request(_talk(wire, 4))))
    book = Book(wire)
    for turn in first:
        book.add(*(m if m.role == "user" else Said(m.text) for m in turn.messages), **turn.facts)
    book.add(user("Note 9"), Said("Noted."))
    request = _request(book)

    again = _kept(strategy(request))

    assert _texts(first) == ["Note 0", "(gap)", "Note 3"]
    assert _texts(again) == ["Note 0", "(gap)", "Note 9"]
    assert again[1] is request.turns[1]


# ---------------------------------------------------------------------------------------- tool results


def test_old_tool_results_are_cleared(wire: str) -> None:
    """All but the newest say no more than that they were left out; calls and other turns are untouched."""
    request = _request(_tools(wire, 5))

    turns = _kept(ClearToolResults(keep=2)(request))

    results = [m.text for turn in turns for m in turn.messages if m.role == "tool"]
    assert [text == "[result left out]" for text in results] == [True, True, True, False, False]
    assert [turn is old for turn, old in zip(turns, request.turns, strict=True)] == [False] * 3 + [True] * 2
    assert [call.parsed for call in turns[0].messages[1].tool_calls] == [{"team": "Team 0"}]
    assert turns[0].entry_bytes < request.turns[0].entry_bytes


@pytest.mark.parametrize(
    ("strategy", "count", "cleared"),
    [
        (ClearToolResults(keep=3, at_least=3), 5, 0),
        (ClearToolResults(keep=3, at_least=3), 6, 3),
        (ClearToolResults(keep=0), 1, 1),
        (ClearToolResults(keep=1, at_least=4), 4, 0),
        (ClearToolResults(keep=1, at_least=4), 5, 4),
        (ClearToolResults(keep=0, min_recent_turns=2), 5, 3),
    ],
)
def test_results_are_cleared_in_batches(wire: str, strategy: Any, count: int, cleared: int) -> None:
    """So many go at once; before that the strategy says what it waits for."""
    answer = strategy(_request(_tools(wire, count)))

    if not cleared:
        assert isinstance(answer, NoChange)
        assert "waits until there are" in answer.reason
    else:
        results = [m.text for turn in _kept(answer) for m in turn.messages if m.role == "tool"]
        assert results.count("[result left out]") == cleared


def test_by_default_a_batch_is_a_sixth_of_the_history(wire: str) -> None:
    """What is rewritten makes a new prefix: in a long history a few results are not worth one."""
    request = _request(_tools(wire, 30))

    waits = ClearToolResults(keep=27)(request)
    turns = _kept(ClearToolResults(keep=15)(request))

    assert isinstance(waits, NoChange)
    assert "3 old tool results could be left out" in waits.reason
    assert "a sixth" in waits.reason
    assert 6 * sum(turn.entry_bytes for turn in turns) <= 5 * sum(t.entry_bytes for t in request.turns)


def test_a_placeholder_is_never_larger(wire: str) -> None:
    """Results as short as the placeholder stay, alone and beside long ones."""
    book = Book(wire)
    calls = (("look", {"at": "a"}), ("look", {"at": "b"}))
    book.add(user("Look."), Said("", calls, "", ((Text("ok"),), (Text("long " * 99),))), Said("Done."))
    short = _tools(wire, 3, result="30")

    (turn,) = _kept(ClearToolResults(keep=0)(_request(book)))

    assert [m.text for m in turn.messages if m.role == "tool"] == ["ok", "[result left out]"]
    assert ClearToolResults(keep=0)(_request(short)) == NoChange("there are no old tool results to leave out")


def test_a_failed_result_stays_a_failed_one() -> None:
    """Where the wire marks errors, a cleared result keeps its mark."""
    book = Book("anthropic")
    asked = Said("", (("look", {}),), "", ((Text("no such place " * 20),),))
    book.add(user("Look."), asked, Said("Hm."), flags={"toolu_1_0": "error"})

    (turn,) = _kept(ClearToolResults(keep=0)(_request(book)))

    assert b'"is_error":true' in b"".join(turn.entries)


# ------------------------------------------------------------------------------------- tool exchanges


def test_old_exchanges_become_a_line_each(wire: str) -> None:
    """A note before the reply says what was called and what came back; recent turns are untouched."""
    request = _request(_tools(wire, 4, result="30 points"))

    turns = _kept(CollapseToolExchanges(keep_turns=2)(request))

    assert [m.role for m in turns[0].messages] == ["user", "user", "assistant"]
    assert '<app-note kind="tools">\nget_score(team=Team 0) -&gt; 30 points\n</app-note>' in str(
        [m.text for m in turns[0].messages]
    ).replace("\\n", "\n")
    assert turns[0].message_count == 3
    assert turns[2:] == request.turns[2:]
    assert turns[0].entry_bytes < request.turns[0].entry_bytes


def test_a_line_is_bounded_and_says_all_calls(wire: str) -> None:
    """Long arguments and results are cut, several calls share the line, pictures are named, words lead it."""
    book = Book(wire)
    picture = Image.from_bytes(b"\x89PNG" + bytes(24_000))
    calls = (("read", {"path": "x" * 900}), ("draw", {"n": 2, "of": ["a"]}))
    book.add(
        user("Go."), Said("I look.", calls, "", ((Text("word\n" * 900),), (picture,))), Said("Here it is.")
    )
    book.add(user("Thanks."), Said("You are welcome."))

    turns = _kept(CollapseToolExchanges(keep_turns=1, max_characters=20)(_request(book)))

    note = turns[0].messages[1].text
    assert f"I look. read(path={'x' * 14}…) -&gt; word word word word…; " in note
    # A result on the Chat Completions wire holds no picture; the dialect has written what was there.
    seen = "[image image/png: t…" if wire == "openai" else "[image/png, 24 KB]"
    assert f'draw(n=2, of=["a"]) -&gt; {seen}' in note


def test_a_line_that_would_be_larger_is_not_written(wire: str) -> None:
    """Signs that a note has to escape may make it longer than the exchange: then that stays."""
    book = _tools(wire, 1, result="<" * 190 + "&" * 300)
    book.add(user("Thanks."), Said("You are welcome."))

    answer = CollapseToolExchanges(keep_turns=1, max_characters=900)(_request(book))

    assert answer == NoChange("there are no old tool exchanges to collapse")


def test_exchanges_stay_where_hosted_calls_wait_for_results_elsewhere() -> None:
    """A reply whose hosted call is answered in a later one cannot be taken out."""
    book = _tools("anthropic", 1)
    hosted = b'{"type":"server_tool_use","id":"s1","name":"web_search","input":{}},{"type":"tool_use"'
    book.state = _replaced(book, b'{"type":"tool_use"', hosted)
    book.add(user("Thanks."), Said("You are welcome."))

    answer = CollapseToolExchanges(keep_turns=1)(_request(book))

    assert answer == NoChange("there are no old tool exchanges to collapse")


def _replaced(book: Book, old: bytes, new: bytes) -> Any:
    from goaitools_py.state.state import closed_turns, rebuild

    turns = [
        replace(turn, entries=tuple(entry.replace(old, new) for entry in turn.entries))
        for turn in closed_turns(book.state)
    ]
    return rebuild(book.state, turns)


# ------------------------------------------------------------------------------------------------ media


def test_old_media_become_words(wire: str) -> None:
    """Pictures of users and of tools say what they were and how large; the words beside them stay."""
    picture = Image.from_bytes(b"\x89PNG" + bytes(23_996))
    book = Book(wire)
    asked = Said("", (("draw", {}),), "", ((Text("Drawn."), picture),))
    book.add(user("Look at this.", picture), asked, Said("I see."))
    book.add(user("And this.", picture), Said("I see."))

    turns = _kept(DropMedia(after_turns=1)(_request(book)))

    said = [part.text for m in turns[0].messages for part in m.parts if isinstance(part, Text)]
    assert said == [
        "Look at this.",
        "[image/png, 24 KB, left out]",
        "Drawn.",
        said[3] if wire == "openai" else "[image/png, 24 KB, left out]",  # no picture comes that far there
        "I see.",
    ]
    assert any(isinstance(part, Image) for part in turns[1].messages[0].parts)


URL = "data:image/png;base64,AAAA"
SOURCE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
UNKNOWN: dict[str, list[Any]] = {
    "openai": [{"type": "image_url", "image_url": {"url": URL}}, {"type": "hologram"}],
    "openai-responses": [{"type": "input_image", "image_url": URL}, {"type": "input_file", "file_id": "f"}],
    "anthropic": [{"type": "image", "source": SOURCE}, {"type": "container_upload", "file_id": "f"}],
}
"""A picture, and what this release has no word for."""


def test_a_message_with_parts_of_unknown_kinds_keeps_them(wire: str) -> None:
    """What was imported may hold more than we can write: a picture stays for its neighbour's sake."""
    book = Book(wire)
    book.add(user("Look.", Image.from_bytes(b"\x89PNG" + bytes(50))), Said("I see."))
    book.add(user("And now?"), Said("The same."))
    request = _request(book)
    first, last = request.turns
    entry = rawjson.dumps({"role": "user", "content": UNKNOWN[wire]})
    imported = replace(first.pieces[0], entries=(entry,))
    request = replace(request, load_turns=lambda: (first.with_pieces([imported, *first.pieces[1:]]), last))

    answer = DropMedia(after_turns=1)(request)

    assert request.turns[0].messages[0].unread == 1
    assert isinstance(answer, NoChange)


def test_media_go_in_batches(wire: str) -> None:
    """One old picture waits while two recent ones stay."""
    picture = Image.from_bytes(b"\x89PNG" + bytes(50))
    book = Book(wire)
    for _ in range(3):
        book.add(user("Look.", picture), Said("I see."))

    waits = DropMedia(after_turns=2)(_request(book))
    goes = DropMedia(after_turns=2, at_least=1)(_request(book))

    assert isinstance(waits, NoChange)
    assert len(_kept(goes)) == 3


# ------------------------------------------------------------------------------------------- summaries


def _asked(strategy: Summarize, request: CompactionRequest, answer: ModelAnswer) -> tuple[Any, Any]:
    """What the strategy asks, and what it returns on that answer."""
    asks = strategy(request)
    question = next(asks)
    try:
        asks.send(answer)
    except StopIteration as stop:
        return question, stop.value
    raise AssertionError("the strategy asked twice")


def test_a_summary_takes_the_place_of_the_older_turns(wire: str) -> None:
    """It asks behind exactly the turns that go, and its note stands before those that stay."""
    request = _request(_talk(wire, 6))

    question, turns = _asked(
        Summarize("openai:other", keep_turns=2), request, ModelAnswer(text=" Six notes. ")
    )

    assert question.turns == request.turns[:4]
    assert (question.backend, question.max_output_tokens) == ("openai:other", None)
    assert "Summarise the conversation above" in question.instruction
    assert _texts(turns) == ["(summary)", "Note 4", "Note 5"]
    assert turns[0].messages[0].text.endswith("in place of its messages:\nSix notes.\n</app-note>")
    assert turns[1:] == request.turns[4:]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ModelAnswer(text=" \n"), "the summary is empty"),
        (ModelAnswer(text="No.", stop="refusal"), "the model refused to write a summary"),
        (ModelAnswer(text="It", stop="length"), "the summary was cut off at the output limit"),
        (ModelAnswer(text="It", stop="pause"), "the model did not finish its summary"),
        (ModelAnswer(text="long " * 900), "bytes, and what it would replace"),
    ],
)
def test_a_summary_that_is_no_good_changes_nothing(answer: ModelAnswer, reason: str) -> None:
    """Empty, refused, cut off or too long: everything stays, and the reason is said."""
    _, turns = _asked(Summarize(keep_turns=1), _request(_talk("openai", 4)), answer)

    assert isinstance(turns, NoChange)
    assert reason in turns.reason


def test_an_earlier_summary_is_carried_over(wire: str) -> None:
    """It is among what is summarised, and replaced; and not before enough was said since."""
    asks = Summarize(keep_turns=2)

    question, turns = _asked(asks, _request(_with_summary(wire, 4)), ModelAnswer(text="All."))

    assert [turn.note for turn in question.turns] == ["summary", "", ""]
    assert _texts(turns) == ["(summary)", "Note 2", "Note 3"]
    with pytest.raises(StopIteration) as stop:
        next(asks(_request(_with_summary(wire, 3))))
    assert "a summary waits for 2" in stop.value.value.reason


# --------------------------------------------------------------------------------------- compositions


def test_a_window_cuts_deep(wire: str) -> None:
    """Within it nothing happens; above it, 40 % of it stays, and never fewer than the recent turns."""
    window = ContextWindow(max_messages=10, min_recent_turns=1)

    assert window.plan(_request(_talk(wire, 5))) is None
    planned = window.plan(_request(_talk(wire, 6)))

    assert planned is not None
    assert planned.by == "ContextWindow:oldest_first"
    assert _texts(planned.turns) == _notes(4, 5)


def test_a_window_is_a_compactor() -> None:
    """`ContextWindow` makes a `Compactor`: its trigger and strategy can be read, and reused."""
    window = ContextWindow(max_tokens=9_000, max_messages=40, strategy="middle_out", before_cut=print)
    own = ContextWindow(max_messages=40, strategy=KeepRecentTurns(3))
    edits = [ServerCompaction(above_tokens=60_000)]
    asking = ContextWindow(max_messages=40, strategy=ProviderCompaction(context_management=edits))

    assert isinstance(window, Compactor)
    assert window.before_cut is print
    assert name_of(window.strategy) == "ContextWindow:middle_out"
    assert own.trigger == any_of(MessageLimit(40))
    assert name_of(own.strategy) == "KeepRecentTurns"
    assert asking.context_management == edits
    with pytest.raises(TypeError, match="MessageLimit is a trigger"):
        ContextWindow(max_messages=40, strategy=MessageLimit(3))


@pytest.mark.parametrize(
    ("fields", "stays"),
    [
        ({"strategy": "oldest_first", "min_recent_turns": 3}, _notes(3, 4, 5)),
        ({"strategy": "middle_out", "min_recent_turns": 1}, ["Note 0", "(gap)", "Note 5"]),
        ({"strategy": "recent_turns_only", "min_recent_turns": 2}, _notes(4, 5)),
        ({"strategy": KeepRecentTurns(1), "min_recent_turns": 1}, _notes(5)),
        ({"strategy": KeepRecentTurns(1), "min_recent_turns": 5}, _notes(1, 2, 3, 4, 5)),
        ({"strategy": lambda request: request.turns[:1]}, _notes(0, 3, 4, 5)),
        ({"max_tokens": 1, "min_recent_turns": 2}, _notes(4, 5)),
    ],
)
def test_a_window_knows_what_goes_first(wire: str, fields: dict[str, Any], stays: list[str]) -> None:
    """Strategies by name, by value, by function."""
    planned = ContextWindow(**{"max_messages": 10, **fields}).plan(_request(_talk(wire, 6)))

    assert planned is not None
    assert _texts(planned.turns) == stays


def test_a_window_preserves_system_messages(wire: str) -> None:
    """What the application said as system in a turn that goes stays, in its place, unless it need not."""
    book = _talk(wire, 2)
    book.add(user("Note 2"), system("The hall is dark."), Said("Noted."))
    for number in range(3, 6):
        book.add(user(f"Note {number}"), Said("Noted."))
    window = {"max_messages": 10, "min_recent_turns": 1}

    request = _request(book)
    kept = ContextWindow(**window).plan(request)  # type: ignore[arg-type]
    gone = ContextWindow(**window, preserve_system=False).plan(request)  # type: ignore[arg-type]

    assert kept is not None
    assert gone is not None
    stays = checked_turns("window", kept.turns, request, kept.preserve_system)
    others = checked_turns("window", gone.turns, request, gone.preserve_system)
    assert stays is not None
    assert others is not None
    assert "The hall is dark." in _texts(stays)[0]
    assert _texts(stays)[1:] == _notes(5)  # the system message counts, too
    assert _texts(others) == _notes(4, 5)


def _never(request: CompactionRequest) -> bool:
    return False


def _always(request: CompactionRequest) -> bool:
    return True


def test_the_first_that_finds_something_to_do_does_it() -> None:
    """One whose trigger is silent, and one that changes nothing or says so, give way to the next."""
    chosen = first_of(
        Compactor(_never, KeepRecentTurns(1)),
        Compactor(_always, ClearToolResults()),
        Compactor(_always, KeepRecentTurns(9)),
        Compactor(_always, KeepRecentTurns(2)),
    )

    planned = chosen.plan(_request(_talk("openai", 5)))

    assert planned is not None
    assert planned.by == "KeepRecentTurns"
    assert _texts(planned.turns) == _notes(3, 4)


def test_nothing_to_do_keeps_the_first_reason() -> None:
    """If none finds anything, the report says why the first did not."""
    chosen = first_of(Compactor(_always, ClearToolResults()), Compactor(_always, DropMedia()))

    planned = chosen.plan(_request(_talk("openai", 5)))

    assert planned is not None
    assert planned.turns == NoChange("there are no old tool results to leave out")


@pytest.mark.parametrize("answer", [ModelAnswer(text=""), AskFailed("silent")])
def test_a_model_that_is_no_help_gives_way(answer: Any) -> None:
    """After an answer that is no good, or none at all, the next compactor has its chance."""
    chosen = first_of(
        Compactor(_always, Summarize(keep_turns=1)), Compactor(_always, KeepRecentTurns(2), print)
    )
    planned = chosen.plan(_request(_talk("openai", 5)))
    assert planned is not None
    assert planned.by == "Summarize"
    asks = planned.turns
    assert isinstance(asks, Iterator)
    next(asks)

    with pytest.raises(StopIteration) as stop:
        asks.throw(answer) if isinstance(answer, Exception) else asks.send(answer)

    other = stop.value.value
    assert isinstance(other, Planned)
    assert (other.by, other.before_cut) == ("KeepRecentTurns", print)
    assert _texts(other.turns) == _notes(3, 4)


def test_a_rewritten_turn_may_lose_a_piece(wire: str) -> None:
    """A piece with no message left is gone; the turn's letters and counts follow."""
    (turn,) = _request(_tools(wire, 1, reasoning="Hm.")).turns
    pieces = turn.pieces

    shorter = turn.with_pieces([pieces[0], turn.rewritten(pieces[1]), pieces[-1]])
    other = turn.rewritten(pieces[0], user("Something else."))

    assert [piece.role for piece in pieces] == ["user", "assistant", "tool", "assistant"]
    assert [m.role for m in shorter.messages] == ["user", "assistant"]
    assert shorter.message_count == 2
    assert [m.text for m in other.messages] == ["Something else."]
    with pytest.raises(ValueError, match="same calls"):
        turn.rewritten(pieces[2], Message(role="tool", tool_call_id="other", parts=(Text("x"),)))
