"""The benchmarks run, and what they claim beside times holds.

Owns: sizes, counts and structure. Must never know: a time; a busy machine must not fail a test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goaitools_py import Chat, user
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import frames_of
from goaitools_py.stores import MemoryStore
from goaitools_py.tokens import TokenEstimate
from goaitools_py.types import tokens as types_tokens

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.usefixtures("data_dir")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(ROOT / "benchmarks" / "run.py"), "--short", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))


def _figures(name: str) -> dict[str, dict[str, Any]]:
    """The figures of a benchmark: of a run whose report `GOAITOOLS_BENCHMARKS` names, or of a new one."""
    if path := os.environ.get("GOAITOOLS_BENCHMARKS"):
        text = Path(path).read_text(encoding="utf-8")
    else:
        done = _run("--json", "--only", name)
        assert done.returncode == 0, done.stderr
        text = done.stdout
    return {figure["name"]: figure for figure in json.loads(text)[name]["figures"]}


def _missed(figures: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, figure in figures.items() if not figure["timed"] and not figure["ok"]]


def test_blobs_written_turn_by_turn_are_as_small_as_promised() -> None:
    """Two messages take at most their raw JSON's size, ten 40 % of it, fifty 22 %."""
    figures = _figures("blob_size")

    assert [figures[f"{count:>2} messages: ours"]["target"] for count in (2, 10, 50)] == [100, 40, 22]
    assert not _missed(figures)


def test_a_chat_holds_none_of_its_conversations() -> None:
    """Hundreds of conversations later a chat holds no object, block or byte more than before."""
    figures = _figures("memory")

    assert len(figures) == 3
    assert not _missed(figures)


def test_the_next_request_is_known_within_three_per_cent() -> None:
    """On every wire the mean error of its predicted input tokens, against recorded usages, is below 3 %."""
    figures = _figures("tokens")

    measured = {name: figure for name, figure in figures.items() if name.endswith(": words and tools")}
    assert [figure["target"] for figure in measured.values()] == [3.0] * 3
    assert all(int(figure["note"].split()[0]) > 100 for figure in measured.values())
    assert not _missed(figures)


def test_the_recommended_compactor_costs_as_little_as_promised() -> None:
    """By the model of the prompt caches: 35 % of no compaction in a long chat, 60 % with tools, and a quarter
    of what a window costs that slides with every turn and holds as much."""
    figures = _figures("compaction")

    aims = sorted(figure["target"] for figure in figures.values() if figure["target"] is not None)
    assert aims == [4.0] * 3 + [35.0] + [60.0] * 4
    assert not _missed(figures)


def test_facts_are_kept_as_far_as_they_are_sent() -> None:
    """All are known if all is kept, next to none from the last turn alone; a summary keeps what a cut of the
    same depth loses, and collapsed tool exchanges lose nothing. A reader that knows when to search finds
    all that was cut."""
    figures = _figures("facts")

    shares = {name.partition(" (")[0]: figure["value"] for name, figure in figures.items()}
    assert shares["keep everything"] == shares["collapse tool exchanges"] == 100
    assert shares["drop everything but the last turn"] < 10
    assert shares["drop oldest, to 25 %"] + 20 < shares["summarise, keep 2 turns"] < 100
    assert shares["Compactor.never_forgets; careful reader"] == 100


def test_recall_gives_back_what_was_planted() -> None:
    """A page of 1,000 tokens holds 95 % of the facts, of an English conversation and in twelve languages, and
    99 % of 200 facts with an identifier, whether the query has it or not."""
    figures = _figures("recall")

    aims = [figure["target"] for figure in figures.values() if figure["target"] is not None]
    assert sorted(aims) == [95.0] * 2 + [99.0] * 4
    assert len(figures) == 2 + 1 + 4 + 12
    assert not _missed(figures)


def test_recall_costs_as_little_as_promised() -> None:
    """40 % of no compaction at most, answers left out, if a third of the turns search; and the tool that is
    offered and never called costs a point."""
    figures = _figures("recall_cost")

    assert sum(figure["target"] == 40.0 for figure in figures.values()) == 3
    assert not _missed(figures)
    shares = {name.partition(": ")[2]: figure["value"] for name, figure in figures.items()}
    assert shares["keep 2 turns, recall, no turn asks"] < shares["keep 2 turns"] + 1


def test_the_import_loads_no_provider_sdk() -> None:
    """`import goaitools_py` in a fresh process leaves both provider SDKs unloaded."""
    figures = _figures("imports")

    assert figures["provider SDKs that it loads"]["value"] == 0


@pytest.mark.parametrize("name", ["codec", "seal", "sse", "first_delta", "whole_turn"])
def test_a_timed_benchmark_runs_and_reports(name: str) -> None:
    """Every figure of a timed benchmark is a positive number; whether it is good enough is not asked here."""
    figures = _figures(name)

    assert figures
    assert all(figure["value"] > 0 for figure in figures.values())


def test_the_cost_of_an_archive_is_measured() -> None:
    """Both ways to keep one are compared with a turn that has none."""
    figures = _figures("archive")

    assert sorted(figure["target"] for figure in figures.values() if figure["target"]) == [10.0, 40.0]
    assert all(figure["value"] > 0 for figure in figures.values() if not figure["target"])


def test_written_bytes_are_those_of_the_turn_itself() -> None:
    """Each store that can be had is measured in both ways, at two sizes. A short row costs the same in both,
    and a turn that writes all of its row writes more in a long conversation."""
    figures = _figures("writes")

    stores = {name.partition(",")[0] for name in figures}
    assert "SQLite" in stores
    for store in stores:
        at = {
            (size, way): figures[f"{store}, {size:>5,} messages, {way}"]["value"]
            for size in (10, 1_000)
            for way in ("inline", "store")
        }
        assert all(value > 0.1 for value in at.values())
        assert at[10, "store"] < 1.5 * at[10, "inline"]
        assert at[1_000, "inline"] > 4 * at[10, "inline"]
        assert figures[f"{store}, {1_000:>5,} messages, store"]["target"] is not None


def test_a_load_of_many_workers_loses_and_doubles_nothing() -> None:
    """On PostgreSQL and on Redis Cluster, and a turn sends two statements, with those of new connections."""
    figures = _figures("load")

    if not figures:
        pytest.skip("neither PostgreSQL nor Redis is installed")
    assert not _missed(figures)
    sent = [figure["value"] for name, figure in figures.items() if name.endswith("scripts, a turn")]
    assert all(2 <= each < 5 for each in sent)


def test_the_load_notices_what_is_lost_and_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that was accepted and is not stored is lost. A turn or a model call too many is doubled."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    load, store = import_module("load"), MemoryStore()
    monkeypatch.setitem(load.STORES, "memory", SimpleNamespace(open=lambda *_, **__: nullcontext(store)))
    one = load.Load("memory", "", "", 1, 1, 1.0, 1, 0.0, seed=1)
    head, _ = load.prepared(load.length_of(0))
    store.save_parts("chat-0", head.blob, head.parts, (), expected=None)
    chat = Chat(load.WIRES["openai"].backend(load.Model(0.0)))
    kept = chat.conversation(store, "chat-0", parts="store")
    for id in ("a", "b"):
        kept.send(f"Hello.\n\n{id}", turn_id=id)

    def found(*ids: str, turns: int, calls: int) -> object:
        answer = {"accepted": [[0, id] for id in ids], "took": [0.1] * turns, "calls": calls}
        return load.held_against(one, [answer])

    assert found("a", "b", turns=2, calls=2) == (0, 0)
    assert found("a", "b", "c", turns=3, calls=3) == (1, 0)
    assert found("a", "b", turns=2, calls=3) == (0, 1)
    kept.send("Hello.\n\nb", turn_id="again")
    assert found("a", "b", turns=2, calls=2) == (0, 1)


def test_the_table_of_sizes_follows_from_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the conversations need ten times the cores, the log and the space."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    load = import_module("load")
    found = load.Found(client=2.0, server=0.5, written=2e3, first=3e3, commands=2.0, stored=25e3)

    rows = [line.strip("| ").split(" | ") for line in load.sizing({"Store": found}).splitlines()[2:]]

    assert ["**computed, turns a second**: one core of workers", "500"] in rows
    assert ["one core of the servers", "2,000"] in rows
    values = dict(map(tuple, rows[-6:]))  # of 10 million: a million a day used, 10 turns each, peak 5
    assert values["stored"] == "250 GB"
    assert values["log of a day"] == "30 GB"
    assert values["cores of workers, peak"] == "1.16"


def test_a_missed_target_is_printed_and_fails_only_under_strict(tmp_path: Path) -> None:
    """The table says MISSED for a target out of reach; the exit code says so under --strict only."""
    script = tmp_path / "unreachable.py"
    script.write_text(
        "import sys, types\n"
        f"sys.path.insert(0, {str(ROOT / 'benchmarks')!r})\n"
        "import run\n"
        "from _report import Report, at_most\n"
        "made = types.ModuleType('sse')\n"
        "made.run = lambda short: Report(title='T', method='m', figures=[at_most(1.0, 'it', 2.0, 's')])\n"
        "sys.modules['sse'] = made\n"
        "sys.exit(run.main(['--only', 'sse', *sys.argv[1:]]))\n"
    )

    lenient, strict = (
        subprocess.run([sys.executable, str(script), *more], capture_output=True, text=True, timeout=60)
        for more in ([], ["--strict"])
    )

    assert "MISSED" in lenient.stdout
    assert (lenient.returncode, strict.returncode) == (0, 1)


def test_a_fit_changes_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers that `token_fit.py` puts in place are those that the estimate reads."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    fit = import_module("token_fit")
    monkeypatch.setattr(types_tokens, "RATES", types_tokens.RATES)
    for wire in fit.FILES:
        monkeypatch.setattr(type(dialect_of(wire)), "frames", frames_of(dialect_of(wire)))
    words, message = b"They open the door.", user("They open the door.")
    shipped = types_tokens.text_tokens(words), TokenEstimate(frames_of(dialect_of("openai"))).count(message)

    fit._Numbers().put()

    fitted = types_tokens.text_tokens(words), TokenEstimate(frames_of(dialect_of("openai"))).count(message)
    assert shipped[0] != fitted[0]
    assert shipped[1] != fitted[1]


def test_a_page_gets_the_ranges_of_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands around the table stays; a page without its marks is refused and stays as it is."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    report = numbers = import_module("_report")
    runs = [
        {
            "one": report.Report(
                title="One", method="", figures=[report.at_most(60, " 2 messages", value, "%")]
            )
        }
        for value in (51.5, 49.0, 50.0)
    ]
    page = tmp_path / "page.md"
    page.write_text(f"above\n{numbers.BEGIN}\nold\n{numbers.END}\nbelow\n")

    for _ in range(2):
        numbers.put_into(page, numbers.markdown(runs))

    row = "| 2 messages | 49 to 51.5 % | at most 60 % |"
    table = f"| what | measured | aim |\n|---|---|---|\n{row}"
    text = f"above\n{numbers.BEGIN}\n\n{table}\n\n{numbers.END}\nbelow\n"
    assert page.read_text() == text
    page.write_text("nothing here")
    with pytest.raises(ValueError, match="measured: begin"):
        numbers.put_into(page, "")
    assert page.read_text() == "nothing here"
    assert numbers.BEGIN in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
