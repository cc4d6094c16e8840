"""The README of tests/independent/frontends names all scenarios that the clients' tests run, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from ..independent.frontends import test_agui_page, test_aisdk_page, test_killed, test_page

PAGE = Path(__file__).resolve().parents[1] / "independent" / "frontends" / "README.md"
KILLED = "killed"
RUN = {
    "`ai` 6 and 7": {*test_aisdk_page.SCRIPTS, *test_aisdk_page.STEERS, KILLED},
    "`@ag-ui/client`": {*test_agui_page.SCRIPTS, *test_agui_page.STEERS, KILLED},
    "the page": {*test_page.SCENARIOS, KILLED},
}


def test_the_table_names_each_scenario() -> None:
    """A scenario that is new, or has another name, is in the table under its client."""
    page = PAGE.read_text(encoding="utf-8")
    heading, _, *rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("|")]
    named = {
        client: {name for row in rows for name in re.findall(r"`(\w+)`", row[column])}
        for column, client in enumerate(RUN, 1)
    }

    assert [one.strip()[: len(client)] for one, client in zip(heading[1:], RUN, strict=True)] == [*RUN]
    assert named == RUN
    assert {"ai6", "ai7", "agui"} == test_killed.CLIENTS.keys()
