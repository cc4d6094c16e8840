"""``keep_results="store"``: the whole text of a long result stays, and the model reads it by pages."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Compactor,
    Image,
    KeepRecentTurns,
    Text,
    ToolError,
    ToolReturn,
    TurnError,
    TurnLimit,
    event,
    tool,
)
from goaitools_py.base.values import replace
from goaitools_py.open_turn.journal import Keeping, kept_whole
from goaitools_py.open_turn.room import Room
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain, Signed
from goaitools_py.state.codec import LIMITS, PLAIN
from goaitools_py.state.media_rows import MAX_RESULTS, named_results, results_of
from goaitools_py.state.parts import MAX_PART_BYTES
from goaitools_py.state.state import closed_entries, load_state
from goaitools_py.state.whole_blobs import detach, parts_of, rewrap, verify_state
from goaitools_py.states import (
    convert_state,
    export_state,
    fork_state,
    import_state,
    inspect_state,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    state_messages,
    undo_cut,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.turn.recall import result_page
from tests.conftest import Face

WIRES = ("openai", "openai-responses", "anthropic")
NOTE = re.compile(
    r"\n\[([\d,]+) of ([\d,]+) bytes left out; for all of it call recall with result (\w{8})\]\n"
)
LONG = "".join(f"line {number}: naïve ünits \u4e2d\u6587\n" for number in range(2_000))
ROOMY = Compactor(TurnLimit(99), KeepRecentTurns(9), retain=True, retain_bytes=2**21)
SHELF: dict[str, Any] = {}
"""What the tool gives, by the name of a page."""


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tool
def page(name: str) -> Any:
    """A page of the almanac."""
    given = SHELF.get(name, LONG)
    if isinstance(given, Exception):
        raise given
    return given


def asks(*names: str) -> Calls:
    return Calls([("page", {"name": name}) for name in names])


def _sealed(codec: str) -> dict[str, Any]:
    if codec == "plain":
        return {}
    key = Keyring(Key.generate())
    return {"codec": (Signed if codec == "signed" else Encrypted)(key), "binding": {"user": "ada"}}


def _chat(face: Face, script: ScriptedBackend, **options: Any) -> Any:
    given = {"keep_results": "store", "max_tool_result_bytes": 1_000, "tools": [page], **options}
    return face.chat(script, **given)


def _names(blob: bytes, **reading: Any) -> set[int]:
    return {part.entries for part in results_of(load_state(blob, **reading).parts)}


def _check(blob: bytes, **reading: Any) -> None:
    """Each result that a note names is there, and nothing else is; every part of the blob opens."""
    state = load_state(blob, **reading)
    texts = [text for one in state.segments for text in [one.raw()]]
    texts += state.open.entries if state.open is not None else ()
    for call in state.open.calls if state.open is not None else ():
        texts += [part.text.encode() for part in call.parts if hasattr(part, "text")]
    assert named_results(texts) == _names(blob, **reading)
    assert verify_state(blob, **reading) == ()


# ------------------------------------------------------------------------------------ the whole, by pages


@pytest.mark.parametrize("codec", ["plain", "signed", "encrypted"])
@pytest.mark.parametrize("most", [256, 1_000, 20_000])
def test_all_of_each_long_result_is_kept_and_read(face: Face, wire: str, codec: str, most: int) -> None:
    """Random results: what the model reads first is within the limit; history and pages have it all; what was
    sent stays the prefix of what is sent."""
    rng = random.Random(f"{wire}/{codec}/{most}")
    print("seed", f"{wire}/{codec}/{most}")
    shelf = {str(number): _random_text(rng, most) for number in range(6)}
    SHELF.clear()
    SHELF.update({name: _as_value(rng, text) for name, text in shelf.items()})
    sealed = _sealed(codec)
    script = ScriptedBackend(wire=wire)
    chat = _chat(face, script, max_tool_result_bytes=most, compactor=ROOMY, **sealed)
    state: Any = None
    log: list[Any] = []
    left = list(shelf)
    while left:
        names = [left.pop() for _ in range(min(len(left), rng.choice((1, 1, 3))))]
        script.then(asks(*names), "So it is.")
        blobs: list[bytes] = []
        result = chat.chat_with_state(state, user="Look.", on_checkpoint=blobs.append)
        state = result.state
        log += zip(names, result.tool_log, strict=True)
        for blob in (*blobs, state):
            _check(blob, **sealed)
    named = {}
    for name, record in log:
        whole, shown = shelf[name], record.result
        assert len(shown.encode()) <= most
        if len(whole.encode()) <= most:
            assert shown == whole
            continue
        found = NOTE.search(shown)
        assert found is not None
        head, tail = shown[: found.start()], shown[found.end() :]
        assert whole.startswith(head)
        assert whole.endswith(tail)
        gone, size = (int(number.replace(",", "")) for number in found.groups()[:2])
        assert size == len(whole.encode()) == gone + len(head.encode()) + len(tail.encode())
        named[found[3]] = whole
    calls = read_history(state, **sealed).tool_calls()
    wholes = [shelf[name] if len(shelf[name].encode()) > most else None for name, _ in log]
    assert [call.whole for call in calls] == wholes
    assert all(call.result == call.whole for call in calls if call.whole is not None)
    assert len(named) == sum(call.whole is not None for call in calls)

    sent = [_messages(body) for body in script.bodies()]
    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier
    for name, whole in named.items():
        pages = _pages(chat, script, state, name)
        assert "".join(pages) == whole
        assert max(len(one.encode()) for one in pages) <= most
    assert len({json.dumps(body["tools"]) for body in script.bodies()}) == 1


def _messages(body: Any) -> list[str]:
    """The messages of a request, without the marks of the provider's cache, which move."""
    found = json.loads(re.sub(r', "cache_control": {[^}]*}', "", json.dumps(body)))
    return [json.dumps(message) for message in found.get("messages", found.get("input"))]


def _pages(chat: Any, script: ScriptedBackend, state: bytes, name: str) -> list[str]:
    """All pages of a result, as the model reads them, without their first lines."""
    script.then(Calls([("recall", {"result": name})]), "Read.")
    (first,) = chat.chat_with_state(state, user="Read.").tool_log
    count = int(re.match(r"\[page 1 of (\d+) ", first.result)[1])  # type: ignore[index]
    rest: list[Any] = []
    if count > 1:
        step = 100  # so many calls of one reply run
        wanted = range(2, count + 1)
        for at in range(0, len(wanted), step):
            script.then(
                Calls([("recall", {"result": name, "page": n}) for n in wanted[at : at + step]]), "Read."
            )
            result = chat.chat_with_state(state, user="Read.")
            assert _names(result.state, **_reading(chat)) == _names(state, **_reading(chat))
            rest += result.tool_log
    return [one.result.split("\n", 1)[1] for one in (first, *rest)]


def _reading(chat: Any) -> dict[str, Any]:
    return {"codec": chat.inner._codec, "binding": chat.inner._bound(None)}


def _random_text(rng: random.Random, most: int) -> str:
    size = rng.choice((most // 2, most, most + 1, 2 * most, rng.randint(most, 9 * most)))
    letters = rng.choice(("ab \n", "xyzé\u4e2d\U0001f600", '{}[]"\\,:1\n', "word \r\n\t", "a"))
    found = "".join(rng.choices(letters, k=size))
    return found.encode()[:size].decode("utf-8", "ignore")


def _as_value(rng: random.Random, text: str) -> Any:
    """The text as a tool returns it: alone, in pieces, or as the failure of the tool."""
    if len(text) < 9 or rng.random() < 0.5:
        return text
    if rng.random() < 0.3:
        return ToolError(text)
    at = rng.randrange(len(text))
    return [text[:at], Image(data=b"\x89PNG\r\n\x1a\n" + b"\0" * 40, media_type="image/png"), text[at:]]


def test_pages_are_cut_between_characters_and_have_all() -> None:
    """For each size of a page, also at bytes that are no UTF-8 text: no page is empty or too large."""
    for raw in (LONG.encode()[:3_000], b"\xff" * 900, "\u4e2d".encode() * 500, b"\n" * 700):
        for most in (128, 129, 130, 131, 1_000):
            text, number, count = b"", 0, 1
            while number < count:
                number += 1
                head, body = result_page(raw, "0badcafe", number, most).split("\n", 1)
                count = int(re.match(r"\[page \d+ of (\d+) ", head)[1])  # type: ignore[index]
                assert len(head) < 128
                assert body
                text += body.encode()
            assert text == raw.decode("utf-8", "replace").encode() or b"\xff" in raw
            with pytest.raises(ToolError, match=f"pages 1 to {count}; there is no page {count + 1}"):
                result_page(raw, "0badcafe", count + 1, most)


# ------------------------------------------------------------------------------------ what recall says


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"result": "0badcafe"}, "no result of this name, or it is no longer kept"),
        ({"result": "the first one"}, "no result of this name"),
        ({"result": "NAME", "page": 99}, "has the pages 1 to"),
        ({"result": "NAME", "page": 0}, "there is no page 0"),
        ({"result": "NAME", "page": -1}, "there is no page -1"),
        ({"result": "NAME", "page": "two"}, "page"),
        ({"result": 7}, "result"),
        ({}, "result"),
        ({"query": "moon"}, "result"),
    ],
)
def test_a_wrong_call_is_an_error_for_the_model(
    face: Face, wire: str, arguments: dict[str, Any], told: str
) -> None:
    SHELF.clear()
    script = ScriptedBackend(asks("long"), "So it is.", wire=wire)
    chat = _chat(face, script)
    first = chat.chat(user="Look.")
    name = NOTE.search(first.tool_log[0].result)[3]  # type: ignore[index]
    given = {key: name if value == "NAME" else value for key, value in arguments.items()}
    script.then(Calls([("recall", given)]), "I see.")

    result = chat.chat_with_state(first.state, user="Read.")

    (record,) = result.tool_log
    assert (record.flag, result.text) == ("error", "I see.")
    assert told in record.result


def test_the_tool_has_three_forms_and_stands_from_the_first_turn(face: Face, wire: str) -> None:
    """For the archive, for results, for both. The archive's own form is as it was, byte for byte."""
    archive = Compactor(TurnLimit(9), KeepRecentTurns(1), recall=True)
    forms = {}
    for keep in ("cut", "store"):
        for compactor in (None, archive):
            script = ScriptedBackend("Fine.", wire=wire)
            _chat(face, script, keep_results=keep, compactor=compactor).chat(user="Hello.")
            (body,) = script.bodies()
            found = [one for one in body["tools"] if "recall" in json.dumps(one)]
            forms[keep, compactor is not None] = json.dumps(found)
    assert forms["cut", False] == "[]"
    assert '"result"' not in forms["cut", True]
    assert '"query"' not in forms["store", False]
    both = forms["store", True]
    assert '"query"' in both
    assert '"result"' in both
    assert len(set(forms.values())) == 4


def test_the_model_reads_a_result_and_searches_turns_with_one_tool(face: Face, wire: str) -> None:
    """A cut took the turn: recall finds it, and reads the whole of its result; a page has the tokens of an
    answer, and none of the pages is a passage."""
    SHELF.clear()
    cuts = Compactor(TurnLimit(2), KeepRecentTurns(1), recall=True)
    script = ScriptedBackend(asks("long"), "So it is.", "Fine.", "Good.", wire=wire)
    chat = _chat(face, script, compactor=cuts)
    state = chat.run_turns(None, ["Look at the almanac.", "Thanks.", "Well."]).state
    assert "almanac" not in str(state_messages(state))
    script.then(Calls([("recall", {"query": "almanac"})]), "Found.")
    found = chat.chat_with_state(state, user="Search.").tool_log[0].result
    name = re.search(r"call recall with result (\w{8})", found)[1]  # type: ignore[index]

    pages = _pages(chat, script, state, name)

    assert "".join(pages) == LONG
    whole = read_history(state, archived=True).tool_calls("page")
    assert [call.result for call in whole] == [LONG]


# ------------------------------------------------------------------------------------------- no cost


def test_without_the_option_everything_is_as_before(face: Face, wire: str) -> None:
    """The default cuts: no part, no tool, the note of today."""
    SHELF.clear()
    for options in ({}, {"keep_results": "cut"}):
        script = ScriptedBackend(asks("long"), "So it is.", wire=wire)
        chat = face.chat(script, tools=[page], max_tool_result_bytes=1_000, **options)
        result = chat.chat(user="Look.")
        assert result.tool_log[0].result.endswith(" characters removed]")
        assert parts_of(result.state) == ()
        assert "recall" not in str(script.bodies())
        (call,) = read_history(result.state).tool_calls()
        assert call.whole is None


def test_results_that_fit_are_stored_as_without_the_option(face: Face, wire: str) -> None:
    """Equal histories, and no part."""
    SHELF.clear()
    SHELF["short"] = "It rains."
    found = []
    for keep in ("cut", "store"):
        script = ScriptedBackend(asks("short"), "So it is.", wire=wire)
        state = _chat(face, script, keep_results=keep).chat(user="Look.").state
        found.append(load_state(state))
        assert parts_of(state) == ()
    first, second = (closed_entries(one) for one in found)
    assert first == second


# ------------------------------------------------------------------------------------------- bounds


def test_the_oldest_results_leave_and_recall_says_so(face: Face, wire: str) -> None:
    """In the blob they take as many bytes as the archive may take."""
    rng = random.Random(5)
    SHELF.clear()
    SHELF.update({str(n): "".join(rng.choices("abcdefghij\n", k=9_000)) for n in range(6)})
    script = ScriptedBackend(wire=wire)
    chat = _chat(
        face,
        script,
        compactor=Compactor(TurnLimit(99), KeepRecentTurns(9), None, retain=True, retain_bytes=9_000),
    )
    state: Any = None
    names = []
    for number in SHELF:
        script.then(asks(number), "So it is.")
        result = chat.chat_with_state(state, user="Look.")
        state = result.state
        names.append(NOTE.search(result.tool_log[0].result)[3])  # type: ignore[index]
    kept = results_of(parts_of(state))
    assert 1 <= len(kept) < 6
    assert sum(part.stored_len for part in kept) <= 9_000
    assert [f"{part.entries:08x}" for part in kept] == names[-len(kept) :]
    calls = read_history(state).tool_calls()
    assert [call.whole is not None for call in calls] == [n >= 6 - len(kept) for n in range(6)]
    script.then(Calls([("recall", {"result": names[0]})]), "Gone.")
    assert "no longer kept" in chat.chat_with_state(state, user="Read.").tool_log[0].result


def test_a_result_that_cannot_be_kept_is_cut_with_a_warning(face: Face, wire: str) -> None:
    """Too large for a part, or for the bound: the turn goes on as with "cut"."""
    noise = random.Random(1).randbytes(100_000).hex()
    SHELF.clear()
    SHELF.update({"noise": noise, "huge": "a" * (MAX_PART_BYTES + 1)})
    for name in SHELF:
        script = ScriptedBackend(asks(name), "So it is.", wire=wire)
        result = _chat(face, script).chat(user="Look.")
        assert result.text == "So it is."
        assert [warning.code for warning in result.warnings] == ["result_left_out"]
        assert result.tool_log[0].result.endswith(" characters removed]")
        assert parts_of(result.state) == ()


@pytest.mark.parametrize("codec", ["plain", "encrypted"])
@pytest.mark.parametrize("seed", range(2))
def test_results_never_take_a_state_beyond_a_limit(face: Face, wire: str, codec: str, seed: int) -> None:
    """Small limits, text that does not compress, results of all sizes: with "store" the turns end as with
    "cut", and as many of them stay; each blob is within its limits and can be read."""
    rng = random.Random(f"{wire}/{seed}")
    print("seed", f"{wire}/{seed}")
    limits = BlobLimits(max_blob_bytes=9_000, max_decoded_bytes=60_000, max_segments=64)
    key = Keyring(Key.generate())
    made: Any = Plain(limits=limits) if codec == "plain" else Encrypted(key, limits=limits)
    reading: dict[str, Any] = (
        {"codec": made} if codec == "plain" else {"codec": made, "binding": {"user": "ada"}}
    )
    SHELF.clear()
    SHELF.update({str(n): _noise(rng, rng.randint(200, 9_000)) for n in range(14)})
    said = [_noise(rng, 1_000) for _ in SHELF]
    ends: dict[str, list[str]] = {}
    turns: dict[str, list[int]] = {}
    results = 0
    for keep in ("cut", "store"):
        script = ScriptedBackend(wire=wire)
        chat = _chat(face, script, keep_results=keep, **reading)
        state: Any = None
        ends[keep], turns[keep] = [], []
        for name, text in zip(SHELF, said, strict=True):
            script.then(asks(name), "So it is.")
            try:
                state = chat.chat_with_state(state, user=text).state
                ends[keep].append("")
            except TurnError as error:
                ends[keep].append(type(error).__name__)
                state = error.state
                script._steps.clear()
            assert len(state) <= limits.max_blob_bytes
            verify_state(state, **reading)
            turns[keep].append(len(read_history(state, **reading).turns))
            results += len(_names(state, **reading))
    assert results
    assert ends["store"] == ends["cut"]
    assert min(turns["store"][-3:]) > 1
    assert all(abs(cut - store) <= 1 for cut, store in zip(turns["cut"], turns["store"], strict=True))


def test_the_room_of_a_state_is_that_without_its_results(face: Face, wire: str) -> None:
    """For each size: a turn is refused, or a history is cut, only for what no result could give way to."""
    SHELF.clear()
    SHELF["noise"] = _noise(random.Random(2), 6_000)
    script = ScriptedBackend(asks("noise"), "So it is.", wire=wire)
    state = load_state(_chat(face, script).chat(user="Look.").state)
    lean = replace(state, parts=())
    assert state.parts
    found = set()
    room = Room(Plain(limits=BlobLimits(max_blob_bytes=6_000)), script.dialect)
    for more in range(0, 8_000, 200):
        for check in (room.soft_problem, room.problem_alone):
            full, without = (check(one, more=more) is None for one in (state, lean))
            assert full == without
            found.add(full)
    assert found == {True, False}


def _noise(rng: random.Random, size: int) -> str:
    return rng.randbytes(size // 2).hex() if size % 3 else "".join(rng.choices("abcdefgh \n", k=size))


def test_a_state_keeps_so_many_results(face: Face) -> None:
    """The list of them stays short, for each head has it."""
    SHELF.clear()
    script = ScriptedBackend(*[asks(*["long"] * 50), "So it is."] * 2)
    SHELF["long"] = "a" * 1_001
    result = _chat(face, script).run_turns(None, ["Look.", "Look."])
    assert len(results_of(parts_of(result.state))) == MAX_RESULTS


# --------------------------------------------------------------------------------- steps between states


@pytest.fixture
def looked(face: Face, wire: str) -> tuple[Any, ScriptedBackend, bytes]:
    """A conversation: a turn with a long result, one without, one with another."""
    SHELF.clear()
    SHELF["other"] = "secret " + LONG.replace("line", "row")
    script = ScriptedBackend(asks("long"), "One.", "Two.", asks("other"), "Three.", wire=wire)
    chat = _chat(face, script)
    return chat, script, chat.run_turns(None, ["Look.", "And?", "Look again."]).state


def _wholes(blob: bytes, **reading: Any) -> list[str | None]:
    return [call.whole for call in read_history(blob, **reading).tool_calls("page")]


def test_copies_have_all_results(looked: Any) -> None:
    """Fork, export and import, another codec, parts taken out and put back."""
    _, _, state = looked
    both = [LONG, SHELF["other"]]
    assert _wholes(state) == both
    assert _wholes(fork_state(state)) == both
    exported = json.loads(json.dumps(export_state(state)))
    assert [one["kind"] for one in exported["parts"]] == ["result", "result"]
    assert _wholes(import_state(exported)) == both
    key = Encrypted(Keyring(Key.generate()))
    there = rewrap(state, Plain(), to=key, to_binding={"user": "ada"})
    assert LONG[:40].encode() not in there
    assert _wholes(there, codec=key, binding={"user": "ada"}) == both
    head, parts = detach(state)
    assert _wholes(head) == [None, None]
    assert len(parts) == 2
    info = inspect_state(state)
    assert (info.results, info.result_bytes) == (2, sum(part.stored_len for part in parts))
    assert (inspect_state(head).results, inspect_state(head).result_bytes) == (2, info.result_bytes)


def test_a_history_as_json_has_the_whole(looked: Any) -> None:
    _, _, state = looked
    told = json.dumps(read_history(state).to_dict(), ensure_ascii=False)
    assert json.dumps(LONG, ensure_ascii=False) in told


@pytest.mark.parametrize("to", WIRES)
def test_a_converted_state_has_all_results(looked: Any, wire: str, to: str, face: Face) -> None:
    _, _, state = looked
    moved = convert_state(state, to).state
    assert _wholes(moved) == [LONG, SHELF["other"]]
    script = ScriptedBackend(wire=to)
    names = sorted(_names(moved))
    pages = {"".join(_pages(_chat(face, script), script, moved, f"{name:08x}")) for name in names}
    assert pages == {LONG, SHELF["other"]}


def test_a_rewind_drops_the_results_of_its_turns(looked: Any) -> None:
    """Only these; also of a turn that is unfinished."""
    chat, script, state = looked
    back = rewind_state(state)
    assert _wholes(back) == [LONG]
    _check(back)
    assert _names(rewind_state(state, 3)) == set()

    blobs: list[bytes] = []
    script.then(asks("other"), "Four.")
    chat.chat_with_state(back, user="Look.", on_checkpoint=blobs.append)
    unfinished = [one for one in blobs if read_history(one).turns[-1].status == "in_progress"]
    finished = [one for one in unfinished if len(_names(one)) == 2]
    assert finished
    for blob in finished:
        assert _names(rewind_state(blob)) == _names(back)


def test_a_redaction_finds_a_text_in_the_whole(looked: Any) -> None:
    """The part is another one; the name and the other result stay; a second redaction finds nothing."""
    _, _, state = looked
    said = redact_state(state, "line 777:", "[gone]")
    assert said.count == 1
    assert [place.where for place in said.places] == ["results"]
    first, other = _wholes(said.state)
    assert first == LONG.replace("line 777:", "[gone]")
    assert other == SHELF["other"]
    old, new = (results_of(parts_of(blob)) for blob in (state, said.state))
    assert [part.entries for part in old] == [part.entries for part in new]
    assert old[1].digest == new[1].digest
    assert old[0].digest != new[0].digest
    assert redact_state(said.state, "line 777:", "[gone]").count == 0
    _check(said.state)


@pytest.mark.parametrize("retain", [False, True])
def test_a_cut_keeps_what_the_archive_keeps(face: Face, wire: str, retain: bool) -> None:
    """Without an archive the result goes with its turn. With one it stays, and an undone cut has it again."""
    SHELF.clear()
    cuts = Compactor(TurnLimit(2), KeepRecentTurns(1), retain=retain)
    script = ScriptedBackend(asks("long"), "One.", "Two.", "Three.", asks("long"), "Four.", wire=wire)
    chat = _chat(face, script, compactor=cuts)
    state = chat.run_turns(None, ["Look.", "And?", "So?"]).state
    assert inspect_state(state).results == retain
    if retain:
        assert [call.result for call in read_history(state, archived=True).tool_calls()] == [LONG]
        grown = chat.chat_with_state(state, user="Look.", compactor=None).state
        back = undo_cut(grown)
        assert _wholes(back) == [LONG, LONG]
        _check(back)
        assert _names(rewind_state(grown, 4)) == set()


@pytest.mark.parametrize("both", [False, True])
def test_a_rebase_has_the_results_of_both(looked: Any, face: Face, wire: str, both: bool) -> None:
    chat, script, base = looked
    SHELF["mine"] = LONG.replace("line", "mine")
    script.then(asks("mine"), "Mine.")
    mine = chat.chat_with_state(base, user="Mine?").state
    if both:
        SHELF["theirs"] = LONG.replace("line", "theirs")
        script.then("First.", asks("theirs"), "Theirs.")
        theirs = chat.run_turns(base, ["Well.", "Theirs?"]).state
    else:
        theirs = chat.append_to_state(base, event("It rains."))
    joined = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=both)
    wanted = [LONG, SHELF["other"], *([SHELF["theirs"]] if both else []), SHELF["mine"]]
    assert _wholes(joined) == wanted
    _check(joined)
    assert check_history(wire, state_messages(joined)) == []


# ------------------------------------------------------------------------------ faults and other answers


def test_the_whole_is_in_each_blob_that_has_the_result(face: Face, wire: str) -> None:
    """A process that dies at any checkpoint: the next one has all that the journal says is there."""
    SHELF.clear()
    script = ScriptedBackend(asks("a", "b"), asks("c"), "So it is.", wire=wire)
    blobs: list[bytes] = []
    chat = _chat(face, script)
    chat.chat(user="Look.", on_checkpoint=blobs.append)
    sizes = [len(_names(blob)) for blob in blobs]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 3
    for blob in blobs:
        _check(blob)
        status = read_history(blob).turns[-1].status if read_history(blob).turns else ""
        if status != "in_progress":
            continue
        script._steps[:] = []
        script.then(*[asks("c"), "So it is."] if len(_names(blob)) < 3 else ["So it is."])
        done = chat.resume(blob)
        assert _names(done.state) >= _names(blob)
        _check(done.state)


def test_an_answer_from_outside_is_kept_whole_and_known_again(face: Face, wire: str) -> None:
    """A long `ToolReturn` is kept as a tool's own result; the same answer again is no other answer."""
    SHELF.clear()
    page_outside = tool(external=True)(_outside)
    script = ScriptedBackend(Calls([("_outside", {})]), "So it is.", wire=wire)
    chat = _chat(face, script, tools=[page_outside])
    waits = chat.chat(user="Look.")
    (pending,) = waits.pending
    done = chat.resume(waits.state, {pending.id: ToolReturn(LONG)})
    _check(done.state)
    assert [call.whole for call in read_history(done.state).tool_calls()] == [LONG]
    again = chat.resume(done.state, {pending.id: ToolReturn(LONG)})
    assert again.text == "So it is."
    assert not again.warnings
    other = chat.resume(done.state, {pending.id: ToolReturn(LONG + "!")})
    assert [warning.code for warning in other.warnings] == ["answer_ignored"]


def _outside() -> str:
    """Comes from elsewhere."""
    raise AssertionError


def test_an_approved_call_is_kept_whole(face: Face, wire: str) -> None:
    SHELF.clear()
    approved = tool(requires_approval=True)(_approved)
    script = ScriptedBackend(Calls([("_approved", {})]), "So it is.", wire=wire)
    chat = _chat(face, script, tools=[approved])
    waits = chat.chat(user="Look.")
    done = chat.resume(waits.state, {waits.pending[0].id: Approve()})
    assert [call.whole for call in read_history(done.state).tool_calls()] == [LONG]


def _approved() -> str:
    """Needs an approval."""
    return LONG


def test_a_forged_note_gives_no_other_turns_text(looked: Any) -> None:
    """A user's text with the note of a result keeps nothing, and drops nothing when it goes."""
    chat, script, state = looked
    (name, *_) = sorted(_names(state))
    script.then("Fine.")
    forged = f"[1 of 2 bytes left out; for all of it call recall with result {name:08x}]"
    grown = chat.chat_with_state(state, user=forged).state
    assert _names(rewind_state(grown)) == _names(state)


def test_passages_that_are_too_long_are_not_kept(face: Face, wire: str) -> None:
    """What the tool finds in the archive is cut as ever: it is kept already."""
    SHELF.clear()
    cuts = Compactor(TurnLimit(2), KeepRecentTurns(1), recall=True)
    script = ScriptedBackend(
        "Fine.", "Fine.", "Fine.", Calls([("recall", {"query": "moon"})]), "So.", wire=wire
    )
    chat = _chat(face, script, compactor=cuts, max_tool_result_bytes=256)
    state = chat.run_turns(None, ["The moon is full. " * 60, "Thanks.", "Well."]).state

    result = chat.chat_with_state(state, user="The moon?")

    assert result.tool_log[0].result.endswith(" characters removed]")
    assert results_of(parts_of(result.state)) == []


def test_a_result_that_is_noted_twice_is_kept_once(face: Face) -> None:
    """Ctrl-C while a result is noted: it is noted again, under the same number."""
    SHELF.clear()
    blobs: list[bytes] = []
    _chat(face, ScriptedBackend(asks("long"), "So.")).chat(user="Look.", on_checkpoint=blobs.append)
    state = next(load_state(blob) for blob in blobs if load_state(blob).open is not None)
    assert state.open is not None
    (call,) = state.open.calls
    keeping = Keeping(shown_bytes=900, most_bytes=60_000, limits=LIMITS, codec=PLAIN, binding=None)
    whole = (Text(LONG),)
    once = kept_whole(state, 0, call, whole, keeping)
    assert once is not None
    again = kept_whole(once[0], 0, call, whole, keeping)
    assert again is not None
    assert again[0] is once[0]
    assert again[1] == once[1]
    other = kept_whole(once[0], 0, call, (Text(LONG + "!"),), keeping)
    assert other is not None
    assert len(results_of(other[0].parts)) == 1 + len(results_of(once[0].parts))
