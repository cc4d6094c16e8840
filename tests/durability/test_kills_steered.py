"""Workers of the same conversations are killed at random moments, on each store that has leases.

The kills are real. They meet a worker whose turn has claimed messages of others, a sender that waits for
another worker's turn, an append, and a withdrawal; a turn whose long results are kept; an edit, and the copy
of the branch that it leaves. ``GOAITOOLS_KILLS=10000`` makes so many on each store instead of 10,
``GOAITOOLS_KILLS_SEED`` draws others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat
from goaitools_py.state.media_rows import results_of
from goaitools_py.state.parts import RESULT
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import ScriptedBackend, check_history

from ..stores._places import Place, opened, place_of
from ._steered import HOW, Steered, long_result, said_in, wire_of

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("GOAITOOLS_KILLS", "10"))
SEED = int(os.environ.get("GOAITOOLS_KILLS_SEED", "1"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for the kind that the test names as its parameter."""
    with place_of(request.param, tmp_path) as made:
        yield made


def run(work: str, place: Place, folder: Path, **how: Any) -> Steered:
    """Run a campaign to its end: no worker is blocked."""
    made = Steered(work, place.kind, place.url, str(folder), workers=4, kills=KILLS, seed=SEED, **how)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.durability._steered", json.dumps(made._asdict())],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120 + KILLS,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return made


def lines(folder: str, pattern: str) -> list[list[str]]:
    """The lines of all logs of a kind, in words."""
    paths = Path(folder).glob(pattern)
    return [line.split() for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def check(place: Place, folder: str) -> str:
    """Hold the store against the logs. Gives the numbers of the run."""
    said: dict[str, str] = {}
    ends: dict[str, str] = {}
    for what, key, id in lines(folder, "worker-*.log"):
        said[id] = key
        if what != "begin":
            ends[id] = what
    taking = {id for what, _, id in lines(folder, "worker-*.log") if what == "taking"}
    asked = {id for words in lines(folder, "asked-*.log") for id in words}
    stored: Counter[str] = Counter()
    taken_in = 0
    with opened(place) as store:
        for key in sorted(set(said.values())):
            wire = wire_of(key)
            conversation = Chat(ScriptedBackend("Last.", wire=wire)).conversation(store, key, gate="steer")
            assert conversation.send("The last one.", timeout=10).text == "Last.", "a conversation is blocked"
            blob = conversation.state()
            assert blob is not None
            assert check_history(wire, state_messages(blob)) == []
            history = read_history(blob)
            for turn in history.turns:
                stored.update(ids := said_in(turn))
                taken_in += len(ids) - 1 if ids else 0
            assert not history.waiting

    gone = {id for id, end in ends.items() if end == "gone"}
    # A worker that was killed in a withdrawal appends the event again, and takes it back again.
    wanted = said.keys() - taking
    assert not (lost := wanted - stored.keys()), f"lost {len(lost)} of {len(wanted)}"
    assert not (doubled := [id for id, times in stored.items() if times > 1]), f"{len(doubled)} doubled"
    assert not stored.keys() - said.keys(), "something is stored that no worker delivered"
    assert not {id for id, end in ends.items() if end == "kept"} - stored.keys(), "a withdrawal lost an event"
    assert not gone & stored.keys(), "a withdrawn event is stored"
    assert not gone & asked, "a withdrawn event was sent"
    assert said.keys() == ends.keys() - {id for id, end in ends.items() if end == "taking"}, "not answered"
    assert taken_in, "no turn took a message in"
    return f"{len(said)} deliveries, {len(gone)} withdrawn, {taken_in} taken in, {KILLS} kills"


@pytest.mark.parametrize("place", ["sqlite", "postgres", "mariadb", "redis"], indirect=True)
def test_nothing_is_lost_or_doubled(place: Place, tmp_path: Path) -> None:
    """No message is lost or doubled, no withdrawn one is sent, and no conversation is blocked."""
    folder = tmp_path / "logs"
    folder.mkdir()
    run("steer", place, folder)
    print("seed", SEED, check(place, str(folder)))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_check_sees_a_doubled_message(place: Place, tmp_path: Path) -> None:
    """A worker that is started again delivers its messages without ids."""
    folder = tmp_path / "logs"
    folder.mkdir()
    run("steer", place, folder, forgets=True)
    with pytest.raises(AssertionError, match="doubled"):
        check(place, str(folder))


# ------------------------------------------------------------------------------------ kept results, and edits


def ended(conversation: Any, wire: str) -> Any:
    """The history of a conversation after one more message, which shows that it is not blocked."""
    assert conversation.send("The last one.", timeout=10).text == "Last.", "a conversation is blocked"
    blob = conversation.state()
    assert check_history(wire, state_messages(blob)) == []
    return read_history(blob)


def answered(folder: str) -> tuple[dict[str, str], set[str]]:
    """The conversations of all deliveries, and those deliveries that were answered by the end."""
    log = lines(folder, "worker-*.log")
    said = {id: key for _, key, id, *_ in log}
    done = {id for what, _, id, *_ in log if what == "done"}
    assert said.keys() == done | {id for what, _, id, *_ in log if what == "void"}, "not answered"
    return said, done


def check_results(place: Place, folder: str) -> str:
    """Hold the store against the logs: messages, keys of effects, and each result from its store."""
    said, done = answered(folder)
    stored: Counter[str] = Counter()
    results = read = 0
    with opened(place) as store:
        for key in sorted(set(said.values())):
            wire = wire_of(key)
            conversation = Chat(ScriptedBackend("Last.", wire=wire), **HOW["results"]).conversation(
                store, key, parts="store"
            )
            for turn in ended(conversation, wire).turns:
                stored.update(ids := said_in(turn))
                calls = [call for one in turn.iterations for call in one.calls]
                booked = [call for call in calls if call.name == "book"]
                # A call whose worker was killed has no result if another message came then.
                for call in booked:
                    id = json.loads(call.arguments)["order"]
                    assert id in ids
                    whole = f"{id} is booked\n{long_result(id)}"
                    assert call.whole == whole or call.synthetic, "a result is not whole"
                    results += call.flag == "ok"
                pages = [call for call in calls if call.name == "recall"]
                pages = [page for page in pages if not page.synthetic]
                assert all("[page 2 of" in (page.result or "") for page in pages), "a page was not read"
                read += len(pages)
            # The store has the parts of the results in the row, and no others.
            rows = {part.name for part in store.load_head(key).parts if part.kind == RESULT}
            assert rows == {part.digest for part in results_of(parts_of(store.load(key).blob))}
    assert stored == Counter(done), "messages are lost or doubled"
    keys: dict[str, set[str]] = {}
    for idempotency_key, order in lines(folder, "effects-*.log"):
        keys.setdefault(order, set()).add(idempotency_key)
    assert all(len(found) == 1 for found in keys.values()), "an effect has two keys"
    assert read, "no page was read"
    return f"{len(done)} deliveries, {results} whole results, {read} pages read, {KILLS} kills"


@pytest.mark.parametrize("place", ["sqlite", "postgres", "mariadb", "redis"], indirect=True)
def test_each_kept_result_can_be_read_whole(place: Place, tmp_path: Path) -> None:
    """Each message stands once, each of its results is whole, and no effect has a second key."""
    folder = tmp_path / "logs"
    folder.mkdir()
    run("results", place, folder)
    print("seed", SEED, check_results(place, str(folder)))


def check_edits(place: Place, folder: str) -> str:
    """Hold the store against the logs: each answered message stands once, or is in a branch that was left."""
    said, done = answered(folder)
    log = lines(folder, "worker-*.log")
    again = {id for what, _, id, *more in log if what == "begin" and more[:1] == ["again"]}
    edits = {id for what, _, id, *more in log if what == "begin" and more}
    stored: Counter[str] = Counter()
    left: dict[str, set[str]] = {}
    with opened(place) as store:
        for key in sorted(set(said.values())):
            wire = wire_of(key)
            chat = Chat(ScriptedBackend(*["Last."] * 500, wire=wire))
            for turn in ended(chat.conversation(store, key, parts="store"), wire).turns:
                stored.update(said_in(turn))
            page = store.list(f"{key}.branch.", limit=1_000)
            for row in page.keys:
                turns = ended(chat.conversation(store, row.key, parts="store"), wire).turns
                left[row.key] = {id for turn in turns for id in said_in(turn)}
    wanted = done - again  # the text of these has the id of the message that they ask again
    kept = set().union(*left.values())
    assert not (lost := wanted - stored.keys() - kept), f"lost {len(lost)} of {len(wanted)}"
    # Who is killed before the answer to a message delivers it once more. If it was replaced by the same text
    # meanwhile, it is a new message.
    same = {more[2] for what, _, _, *more in log if what == "begin" and more[:1] == ["again"]}
    doubled = [id for id, times in stored.items() if times > 1 and id not in same]
    assert not doubled, f"{len(doubled)} doubled"
    assert not (stored.keys() | kept) - said.keys(), "something is stored that no worker delivered"
    branches = [line[1:] for line in log if line[0] == "branch"]
    for key, id, end, gone in branches:
        assert gone in left[key + end], "a branch does not have the message that was replaced"
        assert id not in left[key + end], "a branch has the new message"
    assert wanted - stored.keys(), "no edit took a message out"
    assert branches
    assert again & done
    return f"{len(done)} deliveries, {len(edits & done)} edits, {len(left)} branches, {KILLS} kills"


@pytest.mark.parametrize("place", ["sqlite", "postgres", "mariadb", "redis"], indirect=True)
def test_an_edit_loses_no_message(place: Place, tmp_path: Path) -> None:
    """Each answered message stands once in its conversation, or in a branch that an edit has left."""
    folder = tmp_path / "logs"
    folder.mkdir()
    run("edits", place, folder)
    print("seed", SEED, check_edits(place, str(folder)))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("work", "checked", "words"),
    [("results", check_results, "not whole"), ("edits", check_edits, "lost")],
)
def test_the_checks_see_what_is_missing(
    place: Place, tmp_path: Path, work: str, checked: Any, words: str
) -> None:
    """Results are cut, or branches are not kept."""
    folder = tmp_path / "logs"
    folder.mkdir()
    run(work, place, folder, forgets=True)
    with pytest.raises(AssertionError, match=words):
        checked(place, str(folder))
