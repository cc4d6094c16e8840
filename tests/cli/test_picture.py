"""What `goaitools inspect` draws: within 80 columns, in colour on a terminal only; and its page."""

from __future__ import annotations

import html.parser
import io
import json
import os
import random
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import PLAIN, UNBOUND, Chat, Compactor, KeepRecentTurns, TurnLimit, event, tool, user
from goaitools_py.base.values import replace
from goaitools_py.cli import main
from goaitools_py.cli.inspect import page
from goaitools_py.cli.state_report import Style, TurnBar, bars_of, info_facts, picture_lines, style_for
from goaitools_py.history.info import StateInfo
from goaitools_py.seal import Encrypted, Key, Keyring, Signed, rewrap
from goaitools_py.states import inspect_state, read_history
from goaitools_py.testing import Calls, ScriptedBackend

HOSTILE = (
    "\"><script>alert(1)</script><img src=x onerror=alert(2)>'</pre><!-- \u202egnp.exe \x1b[31m &lt;b&gt;"
)
START = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@tool(requires_approval=True)
def pay(note: str) -> str:
    """Pay."""
    return note


@tool
def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


@pytest.fixture
def blob() -> bytes:
    """A conversation whose every text is hostile: cuts, an archive, a waiting call, events, a speaker."""
    script = [
        "One.",
        "Two.",
        "Three.",
        Calls([("look", {"at": HOSTILE})]),
        HOSTILE,
        Calls([("pay", {"note": HOSTILE})]),
    ]
    with Chat(ScriptedBackend(*script, model="gpt-4o"), tools=[look, pay]) as chat:
        state = chat.run_turns(None, ["1", "2", "3"]).state
        cut = Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True)
        state = chat.compact_state(state, cut).state
        said = user(HOSTILE, speaker=HOSTILE)
        state = chat.chat_with_state(
            state, messages=[said], context=HOSTILE, metadata={HOSTILE: HOSTILE}
        ).state
        state = chat.chat_with_state(state, user="Pay.").state
        return chat.append_to_state(state, event(HOSTILE, topic=HOSTILE))


@pytest.fixture
def file(blob: bytes, tmp_path: Path) -> Path:
    """The blob in a file."""
    path = tmp_path / "state.bin"
    path.write_bytes(blob)
    return path


class Terminal(io.StringIO):
    """A terminal, or a file, of an encoding."""

    def __init__(self, *, is_terminal: bool = True, encoding: str = "utf-8") -> None:
        super().__init__()
        self._is_terminal, self._encoding = is_terminal, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._is_terminal


# -------------------------------------------------------------------------------------------- characters


def test_the_picture_shows_gauge_turns_and_cuts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below the facts: how full the context is, a bar for each turn, a line of time with the cut."""
    assert main(["inspect", str(file)]) == 0

    lines = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert re.fullmatch(r"context +[█░]+ \d+% of 128,000 tokens", lines[0])
    turns = [line.split()[:2] for line in lines if line.startswith("turn ")]
    assert turns == [["turn", "2"], ["turn", "3"], ["turn", "4"], ["turn", "5"]]
    line = next(line for line in lines if line.startswith("time "))
    assert "×" in line
    assert all("\x1b" not in line and len(line) <= 80 for line in lines)


def info_of(blob: bytes, **fields: Any) -> StateInfo:
    return replace(inspect_state(blob), **fields)


@pytest.mark.parametrize("seed", range(20))
def test_any_state_fits_80_columns(blob: bytes, seed: int) -> None:
    """Whatever the numbers are: none, huge ones, hundreds of turns, all at one instant."""
    r = random.Random(f"picture/{seed}")
    most = r.choice([0, 9, 10**4, 10**12])
    at = START
    bars = []
    for number in range(r.choice([0, 1, 5, 300])):
        at += timedelta(seconds=r.choice([0, 1, 10**6]))
        bars.append(
            TurnBar(
                number * 997, at, r.randint(0, most), r.randint(0, most), r.choice(["complete", "failed"])
            )
        )
    info = info_of(
        blob,
        tokens=r.randint(0, most),
        context_window=r.choice([None, 1, 200_000]),
        filled={"tokens": r.random() * 3, "blob_bytes": r.random(), "entries": r.random() * 2},
        created_at=START,
        updated_at=at,
        cuts=tuple((START + timedelta(seconds=n), "Any", 1, 2) for n in range(r.choice([0, 3, 64]))),
    )

    lines = list(picture_lines(info, bars, Style()))
    colored = list(picture_lines(info, bars, Style(has_color=True)))

    assert max(map(len, lines)) <= 80
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in colored] == lines
    shown = [line for line in lines if line.startswith(("turn ", "note"))]
    assert len(shown) == min(12, len(bars))
    assert (len(bars) <= 12) is not any(f"{len(bars) - 12:,} earlier turns" in line for line in lines)


def test_longer_turns_have_longer_bars(blob: bytes) -> None:
    """The bar is in proportion; a reply is never without a mark."""
    bars = [TurnBar(n, START, n * 1000, 1, "complete") for n in (1, 2, 4)]

    lines = [line for line in picture_lines(inspect_state(blob), bars, Style()) if line.startswith("turn ")]
    assert len(lines) == 3

    lengths = [line.count("▒") for line in lines]
    assert lengths[0] * 4 == pytest.approx(lengths[2], abs=4)
    assert lengths == sorted(lengths)
    assert all("█" in line for line in lines)


@pytest.mark.parametrize(
    ("is_terminal", "env", "has_color"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals(
    is_terminal: bool, env: dict[str, str], has_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for pipes, not for dumb terminals, and not where NO_COLOR says so."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    assert style_for(Terminal(is_terminal=is_terminal)).has_color is has_color


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_plain_terminal_gets_plain_characters(blob: bytes, encoding: str) -> None:
    """Where block characters cannot be written, there are others."""
    style = style_for(Terminal(encoding=encoding))
    bars = [TurnBar(1, START, 5, 5, "complete")]

    drawn = "\n".join(picture_lines(inspect_state(blob), bars, style))

    assert drawn.isascii()
    assert "#" in drawn


# -------------------------------------------------------------------------------------------------- page


class Tags(html.parser.HTMLParser):
    """The tags, attributes and texts that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


USED = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "i", "table", "tr", "th", "td",
    "pre", "details", "summary", "span",
}  # fmt: skip


def test_hostile_text_stays_text(file: Path, tmp_path: Path) -> None:
    """Everything that was said stands in the page as text: no tag, no attribute, no control character."""
    out = tmp_path / "page.html"

    assert main(["inspect", str(file), "--show", "--html", str(out)]) == 0

    whole = out.read_text("utf-8")
    seen = Tags()
    seen.feed(whole)
    assert set(seen.tags) <= USED
    assert {name for name, _ in seen.attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "style", "title", "open"
    }  # fmt: skip
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", whole)
    assert seen.text.count("<script>alert(1)</script>") >= 5  # said, spoken, called, answered, waiting
    assert "saw " in seen.text
    assert "waits: approval" in seen.text
    assert "<!--" not in whole


def test_the_page_needs_nothing_beside_it(file: Path, tmp_path: Path) -> None:
    """No script, no link, no address, and a policy that forbids them."""
    out = tmp_path / "page.html"

    assert main(["inspect", str(file), "--html", str(out)]) == 0

    whole = out.read_text("utf-8")
    assert not re.search(r"https?:|url\(|@import|<script|<link|<img|<iframe|src=|href=", whole)
    assert "default-src &#x27;none&#x27;" in whole or "default-src 'none'" in whole
    assert whole.startswith("<!DOCTYPE html>")


def test_the_page_has_content_only_with_show(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As all of `inspect`."""
    out = tmp_path / "page.html"

    assert main(["inspect", str(file), "--html", str(out)]) == 0

    whole = out.read_text("utf-8")
    assert "alert" not in whole
    assert "What was said" not in whole
    assert "Tokens by turn" in whole
    assert '<table class="bars">' in whole
    assert 'class="cut"' in whole
    assert capsys.readouterr().out == f"written: {out}\n"


def test_the_page_is_written_in_one_step_for_its_owner(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mode 600, or that of the old page; and where the write fails the old page is as it was."""
    out = tmp_path / "page.html"
    out.write_text("old")
    os.chmod(out, 0o644)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        assert main(["inspect", str(file), "--html", str(out)]) == 1
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "state.bin"]

    assert main(["inspect", str(file), "--html", str(out)]) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    assert main(["inspect", str(file), "--html", str(tmp_path / "new.html")]) == 0
    assert stat.S_IMODE((tmp_path / "new.html").stat().st_mode) == 0o600
    assert main(["inspect", str(file), "--html", str(out), "--json"]) == 2
    assert "one of them" in capsys.readouterr().err


def test_a_page_of_an_empty_state() -> None:
    """Nothing was said yet."""
    with Chat(ScriptedBackend()) as chat:
        state = chat.append_to_state(None, event("It rains."))
    info = inspect_state(state)

    whole = page(info, info_facts(info), bars_of(read_history(state)), read_history(state))

    assert "Tokens by turn" not in whole
    assert "waiting, not yet seen by a model" in whole


# ---------------------------------------------------------------------------------------------- --json


def test_json_has_what_the_picture_shows(file: Path, blob: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens by turn, limits, roles; the history as `to_dict` with --show only."""
    assert main(["inspect", str(file), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["inspect", str(file), "--json", "--show"]) == 0
    shown = json.loads(capsys.readouterr().out)

    assert [bar["number"] for bar in facts["tokens_by_turn"]] == [2, 3, 4, 5]
    assert facts["roles"] == inspect_state(blob).roles
    assert facts["warning_level"] == ""
    assert facts["filled"].keys() == {"tokens", "blob_bytes", "decoded_bytes", "entries"}
    assert facts["archive_records"] == 1
    assert "topics" not in facts
    assert "transcript" not in facts
    assert shown["topics"] == [HOSTILE]
    assert shown["transcript"] == read_history(blob).to_dict()


# ---------------------------------------------------------------------------------------------- sealed

RING = Keyring(Key(bytes(range(32))))


@pytest.mark.parametrize("codec", [Signed(RING), Encrypted(RING)], ids=["signed", "encrypted"])
def test_a_sealed_state_is_described_without_its_key(
    blob: bytes, codec: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Header and directory, and how to see the rest; as lines, as JSON, and as a page."""
    path, out = tmp_path / "sealed.bin", tmp_path / "page.html"
    path.write_bytes(rewrap(blob, PLAIN, to=codec, to_binding=UNBOUND))
    kind = {0x11: "signed", 0x21: "encrypted"}[codec.suite]

    assert main(["inspect", str(path)]) == 0
    lines = capsys.readouterr().out
    assert main(["inspect", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["inspect", str(path), "--html", str(out)]) == 0

    assert f"  status        {kind}; name the environment variable with its key: --key-env" in lines
    assert f"{RING.primary.id:08x}" in lines
    assert "in 1 record" in lines
    assert (facts["status"], facts["suite"], facts["key_id"]) == ("sealed", kind, RING.primary.id)
    assert facts["created_at"] is None
    assert facts["tokens_by_turn"] == facts["pending"] == []
    assert kind in out.read_text("utf-8")
    assert max(map(len, lines.splitlines())) <= 80
