"""`goaitools doctor --live`: each check against a good host, and against one that misbehaves in its row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.cli import live as running
from goaitools_py.cli import main
from goaitools_py.cli.live_checks import CHECKS
from goaitools_py.cli.live_model import Live, LiveCheck
from goaitools_py.sim import Fault, Reply, Response, SimServer
from goaitools_py.types.usage import cost

ROOT = Path(__file__).resolve().parents[2]
WIRES = ("openai", "openai-responses", "anthropic")
KEY = "sk-Harrogate-4711"
BY_NAME = {check.asked: check for check in CHECKS}
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
NO_SUCH = "goaitools-doctor-no-such-model"


class Host(SimServer):
    """The simulator, with the manners of a real host: it knows its key, its models and its context.

    Attributes:
        script: What answers instead of the model, one for each request; the last one stays. None: the model.
        counts: What answers a request for a count of tokens; None: the simulator.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Any] = []
        self.counts: Response | None = None
        self.is_strict = True

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """One request."""
        if "tokens" in path and self.counts is not None:
            return self.counts
        if "tokens" not in path and (found := self._instead(headers, body)) is not None:
            self.push(found)
        return super().respond(method, path, headers, body)

    def _instead(self, headers: Mapping[str, str], body: bytes) -> Any:
        if self.script:
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if not self.is_strict:
            return None
        if KEY not in headers.get("authorization", headers.get("x-api-key", "")):
            return Fault.unauthorized()
        if json.loads(body)["model"] == NO_SUCH:
            return Fault.not_found()
        return Fault.context_length() if len(body) > 8_000 else None


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host that the environment names, with a key."""
    with Host() as found:
        monkeypatch.setenv("OPENAI_BASE_URL", found.base_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", found.base_url_for("anthropic"))
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        yield found


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each provider API."""
    return str(request.param)


def row(wire: str, *asked: str, window: int | None = None) -> running.LiveRow:
    """The last of these checks, after the others."""
    live = Live(f"{wire}:some-model", max_output=64, timeout=20, window=window)
    try:
        return list(running.run_checks(live, [BY_NAME[name] for name in asked]))[-1]
    finally:
        live.close()


def good(wire: str) -> dict[str, str]:
    """What comes of each row at a good host."""
    lacks = {"thinking": "not offered", "thinking sent back": "skipped", "a count of tokens": "not offered"}
    return {check.asked: "ok" for check in CHECKS} | (lacks if wire == "openai" else {})


# ------------------------------------------------------------------------------------------ a good host


def test_a_good_host_is_found_good(wire: str, host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row is ok, or not offered by that provider API; the run stays within what it announces."""
    code = main(["doctor", "--live", f"{wire}:some-model", "--yes", "--overflow", "4000", "--json"])
    raw = capsys.readouterr()
    found = json.loads(raw.out)
    came = {one["asked"]: one["came"] for one in found["rows"]}

    assert (code, came) == (0, good(wire))
    assert host.problems == []
    assert KEY not in raw.out + raw.err
    assert (found["tokens_in"], found["tokens_out"]) == tuple(
        sum(one[name] for one in found["rows"]) for name in ("tokens_in", "tokens_out")
    )

    live = Live(f"{wire}:some-model", max_output=None, timeout=20, window=4000)
    most = running.most(live)
    answered = [one for one in host.requests if one.status == 200 and "tokens" not in one.path]
    assert len(answered) <= most.requests
    assert found["tokens_in"] <= most.input_tokens
    assert found["tokens_out"] <= most.output_tokens
    asked_for = [one.parsed[name] for one in answered for name in LIMITS if one.parsed and name in one.parsed]
    assert len(asked_for) == len(answered)
    assert sum(asked_for) <= most.output_tokens


def test_the_report_is_a_table_to_paste(wire: str, host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Markdown with the same number of cells in each row, and nothing of what was said."""
    host.is_strict = False
    assert main(["doctor", "--live", f"{wire}:gpt-4o-mini", "--yes"]) == 0
    out = capsys.readouterr().out
    table = [line for line in out.splitlines() if line.startswith("| ")]
    assert out.startswith(f"### goaitools doctor --live {wire}:gpt-4o-mini\n")
    assert len(table) == len(CHECKS) + 2
    assert {line.count("|") for line in table[:-1]} == {8}
    assert table[-1].count("|") == 6
    assert table[-1].endswith("| all that the package relies on holds |")
    assert "[simulated]" not in out
    assert "Ada" not in out
    assert KEY not in out
    assert re.search(r"tokens in, \d+ out: price unknown\.", out)


def test_the_simulator_needs_no_question(wire: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It costs nothing, and it has no keys and no models."""
    assert main(["doctor", "--live", f"sim:{wire}"]) == 0
    assert ", 0 differ." in capsys.readouterr().out


# ---------------------------------------------------------------------------------------- bad manners


GREETED = Reply.text("Hello, Ada.")
HELLO = Reply.text("Hello.")
REFUSED = Fault.bad_request()
CALL = ("get-score_V2", '{"team":"Red"}')
CALLS = (CALL, ("get-score_V2", '{"team":"Blue"}'))
THOUGHT = Reply.text("4", thinking="Let me see.")
CUT = Reply.text("The lamps", finish="length")

MISBEHAVES: tuple[tuple[str, str, list[Any], str], ...] = (
    ("plain text", "forgets the message", [HELLO], "differs"),
    ("plain text", "refuses", [REFUSED], "differs"),
    ("plain text", "is cut off", [CUT], "differs"),
    ("usage of a reply", "counts nothing", [Reply.text("Ada", usage=False)], "differs"),
    ("a stream", "says nothing", [Reply.text("")], "differs"),
    ("a stream", "breaks off", [Fault.cut_stream(2, reply=GREETED)], "differs"),
    ("usage in a stream", "counts nothing", [Reply.text("Zoë", usage=False)], "differs"),
    ("Unicode and emoji", "loses them", [Reply.text("Hello, Zo? ?? ?.")], "differs"),
    ("a second turn", "forgets the first", [GREETED, HELLO], "differs"),
    ("a second turn", "refuses its own reply", [GREETED, REFUSED], "differs"),
    ("a system text", "ignores it", [HELLO], "differs"),
    ("a speaker's odd name", "refuses it", [REFUSED], "differs"),
    ("one tool call", "calls nothing", [HELLO], "differs"),
    ("one tool call", "calls another tool", [Reply.calls(("get", '{"team":"Red"}'))], "differs"),
    ("one tool call", "has other arguments", [Reply.calls(("get-score_V2", '{"team":7}'))], "differs"),
    ("one tool call", "has no tools", [REFUSED], "not offered"),
    ("one tool call", "forbids it", [Fault.error(403, "No.")], "differs"),
    ("its result", "refuses it", [Reply.calls(CALL), REFUSED], "differs"),
    ("its result", "does not read it", [Reply.calls(CALL), HELLO], "differs"),
    ("its result", "had no call", [HELLO], "skipped"),
    ("two calls at once", "makes one", [Reply.calls(CALL)], "not offered"),
    ("two calls at once", "makes none", [HELLO], "differs"),
    ("two calls at once", "has no tools", [REFUSED], "not offered"),
    ("both results", "refuses them", [Reply.calls(*CALLS), REFUSED], "differs"),
    ("both results", "reads one", [Reply.calls(*CALLS), Reply.text("42")], "differs"),
    ("a typed answer", "does not fit", [Reply.text('{"team":"Red"}')], "differs"),
    ("a typed answer", "has another value", [Reply.text('{"team":"Red","points":7}')], "differs"),
    ("a typed answer", "has no format", [REFUSED], "not offered"),
    ("a picture", "takes none", [REFUSED], "not offered"),
    ("a picture", "is cut off", [CUT], "differs"),
    ("thinking", "takes none", [REFUSED], "not offered"),
    ("thinking", "is cut off", [CUT], "differs"),
    ("thinking sent back", "refuses it", [THOUGHT, REFUSED], "differs"),
    ("a cache", "counts no cached tokens", [Reply.text("Hello.", usage=False)], "not offered"),
    ("a cache", "refuses the long text", [REFUSED], "differs"),
    ("a limit of 16 tokens", "ignores it", [HELLO], "differs"),
    ("a turn after it", "refuses the cut reply", [CUT, REFUSED], "differs"),
    ("an empty message", "is stuck after it", [REFUSED], "differs"),
    ("a cancelled stream", "has no text", [Reply.calls(CALL)], "differs"),
    ("a turn after that", "refuses", [GREETED, REFUSED], "differs"),
    ("a turn after that", "has forgotten it", [GREETED, HELLO], "differs"),
    ("a wrong key", "takes any", [HELLO], "not offered"),
    ("a wrong key", "has another error", [REFUSED], "differs"),
    ("an unknown model", "takes any", [HELLO], "not offered"),
    ("an unknown model", "blames the key", [Fault.unauthorized()], "differs"),
    ("a context overflow", "answers", [HELLO], "differs"),
    ("a context overflow", "has another error", [REFUSED], "differs"),
)
"""For each row: how a host misbehaves, what it answers, and what the report says."""


@pytest.mark.parametrize(
    ("wire", "asked", "script", "came"),
    [
        pytest.param(wire, asked, script, came, id=f"{asked}: {how}-{wire}")
        for asked, how, script, came in MISBEHAVES
        for wire in WIRES
        if not (wire == "openai" and script[0] is THOUGHT)  # the simulator's Chat Completions do not think
    ],
)
def test_bad_manners_are_found(asked: str, script: list[Any], came: str, wire: str, host: Host) -> None:
    """In the row that looks for them, on each provider API."""
    assert row(wire, asked, window=4000).came == good(wire)[asked]
    host.script = list(script)

    found = row(wire, asked, window=4000)

    assert found.came == came, found
    assert not found.note or found.note.isascii()


def test_a_count_that_is_none(wire: str, host: Host) -> None:
    """Of no tokens, or no JSON; a host without the endpoint does not offer it."""
    if wire == "openai":
        assert row(wire, "a count of tokens").came == "not offered"
        return
    host.counts = Reply.raw(b'{"input_tokens": 0, "object": "response.input_tokens"}')
    assert row(wire, "a count of tokens").came == "differs"
    host.counts = Reply.raw(b"[]")
    assert row(wire, "a count of tokens").came == "differs"
    host.counts = Reply.raw(b'{"error": {"message": "no"}}', status=404)
    assert row(wire, "a count of tokens").came == "not offered"


def test_each_check_can_fail() -> None:
    """The table above has each row that can differ, with an answer for which it does."""
    seen = {asked for asked, _, _, came in MISBEHAVES if came == "differs"} | {"a count of tokens"}
    assert seen == set(BY_NAME)


def test_a_check_that_breaks_is_a_row(wire: str, host: Host) -> None:
    """With the name of its error, and without its text, which may quote something."""

    def broken(live: Live) -> str:
        raise RuntimeError(KEY)

    live = Live(f"{wire}:some-model", max_output=64, timeout=20, window=None)
    checks = [LiveCheck("a", "b", broken), BY_NAME["plain text"]]
    first, second = running.run_checks(live, checks)
    live.close()
    assert first[:4] == ("a", "b", "differs", "RuntimeError")
    assert second.came == "ok"


def test_what_fails_once_is_not_asked_again(wire: str, host: Host) -> None:
    """The row that builds on it is skipped: the row above says why."""
    host.script = [REFUSED]
    assert row(wire, "one tool call", "its result").came == "skipped"
    assert len(host.requests) == 1


# ------------------------------------------------------------------------------------- the command line


def test_without_a_model_that_answers_nothing_else_is_asked(
    wire: str, host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong key of the reader's own: one request, and exit code 1. It is not in the report."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mistyped")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-mistyped")
    assert main(["doctor", "--live", f"{wire}:some-model", "--yes"]) == 1
    raw = capsys.readouterr()
    assert len(host.requests) == 1
    assert "| **differs** | AuthenticationError 401" in raw.out
    assert raw.out.count("| skipped | the first check has no whole reply |") == len(CHECKS) - 1
    assert "Answered as: no model." in raw.out
    assert "sk-mistyped" not in raw.out + raw.err


def test_a_model_that_fills_its_room_with_thoughts(
    wire: str, host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each reply would be cut off: the report says what helps, after one request."""
    host.script = [CUT]
    assert main(["doctor", "--live", f"{wire}:some-model", "--yes", "--json"]) == 1
    first, *others = json.loads(capsys.readouterr().out)["rows"]
    assert first["note"] == "the reply is truncated: a larger --max-output may help"
    assert {one["came"] for one in others} == {"skipped"}
    assert len(host.requests) == 1


def test_a_missing_key_is_told(
    wire: str, host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error of authentication, without a request."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert main(["doctor", "--live", f"{wire}:some-model", "--yes"]) == 1
    assert "| **differs** | AuthenticationError |" in capsys.readouterr().out
    assert host.requests == []


class Keyboard:
    """Standard input of a person, or of a pipe."""

    def __init__(self, typed: str, *, is_terminal: bool = True) -> None:
        self.readline: Callable[[], str] = lambda: typed
        self.isatty: Callable[[], bool] = lambda: is_terminal


@pytest.mark.parametrize(("typed", "code", "asks"), [("y\n", 0, True), ("n\n", 1, False), ("", 1, False)])
def test_it_asks_before_it_spends(
    typed: str,
    code: int,
    asks: bool,
    host: Host,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the most that it may cost; only a yes goes on."""
    monkeypatch.setattr("sys.stdin", Keyboard(typed))
    assert main(["doctor", "--live", "openai:gpt-4o-mini"]) == code
    raw = capsys.readouterr()
    assert bool(host.requests) == asks
    assert bool(raw.out) == asks
    assert "with your key" in raw.err
    assert raw.err.rstrip().endswith("Go on? [y/N]")


@pytest.mark.parametrize(
    "options",
    [
        ["--live", "openai:m"],  # nobody can answer
        ["--live", "gpt-4o-mini", "--yes"],
        ["--live", "openai:", "--yes"],
        ["--live", "openai:m", "--yes", "--contract"],
        ["--live", "openai:m", "--yes", "--max-output", "0"],
        ["--live", "openai:m", "--yes", "--timeout", "-1"],
        ["--overflow"],
        ["--yes"],
        ["--max-output", "9"],
    ],
)
def test_wrong_usage(
    options: list[str], host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and no request."""
    monkeypatch.setattr("sys.stdin", Keyboard("y\n", is_terminal=False))
    assert main(["doctor", *options]) == 2
    assert capsys.readouterr().out == ""
    assert host.requests == []


@pytest.mark.parametrize(
    "name",
    [
        "openai:gpt-4o-mini",
        "openai:gpt-5-nano",
        "openai-responses:gpt-4.1-nano",
        "anthropic:claude-3-haiku-20240307",
    ],
)
def test_a_small_model_costs_less_than_a_cent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most, whatever it answers."""
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    pytest.importorskip("genai_prices")
    live = Live(name, max_output=None, timeout=20, window=None)
    price = cost(running.most(live), live.model, wire=live.wire, family=live.family)
    assert price is not None
    assert price < Decimal("0.01")


def test_a_model_that_always_thinks_gets_room() -> None:
    """And as little thinking as it takes."""
    rooms = {
        name: Live(name, max_output=None, timeout=20, window=None).max_output
        for name in ("openai:gpt-5-nano", "openai:o4-mini", "anthropic:claude-haiku-4-5", "openai:unheard-of")
    }
    assert list(rooms.values()) == [64, 512, 64, 64]


def test_the_price_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If each call that consumed something has one."""
    live = Live("sim", max_output=64, timeout=20, window=None)
    live.costs = [Decimal("0.0012"), Decimal("0.0003")]
    assert "about $0.0015 at list prices." in "\n".join(running._report(live, []))
    live.costs.append(None)
    assert "price unknown." in "\n".join(running._report(live, []))
    live.close()


def test_the_page_has_each_check() -> None:
    """With what is expected, in the same order."""
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    table = page.partition("| asked | expected |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [tuple(line.strip("| ").split(" | ")) for line in table.splitlines()]
    assert rows == [(check.asked, check.expected) for check in CHECKS]


def test_what_is_said_of_runs_is_what_the_page_has() -> None:
    """As long as nobody has reported a run, the README and the page say so; with a first row they do not."""
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = page.partition("| date | model | host | version | result |\n|---|---|---|---|---|\n")[2]
    rows = [line for line in table.partition("\n\n")[0].splitlines() if line.strip("| ")]
    is_empty = not rows
    assert ("Nobody has reported a run yet" in page) == is_empty
    assert ("no run against one is reported yet" in readme) == is_empty
