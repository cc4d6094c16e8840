"""Writes the tables of rules and of known hosts into `docs/servers.md`.

    python docs/write_hosts.py          # a test fails while the page does not say what the package does

Owns: how the tables look. Must never know: a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from goaitools_py.backends.host_rules import RULES
from goaitools_py.backends.known_hosts import ROWS, KnownHost

PAGE = Path(__file__).resolve().parent / "servers.md"

APIS = {"openai": "Chat Completions", "openai-responses": "Responses", "anthropic": "Messages"}
OWN = {
    "openai": "OpenAI",
    "anthropic": "Anthropic",
    "azure": "Azure",
    "aws": "Bedrock, Anthropic at AWS",
    "foundry": "Azure (Foundry)",
}
"""Names of endpoint families that are no host names."""


def written(page: str) -> str:
    """The page with both tables as the package has them now."""
    return _put(_put(page, "rules", _rules()), "hosts", _hosts())


def _put(page: str, name: str, lines: Iterator[str]) -> str:
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = page.split(begin)
    return before + begin + "\n" + "".join(f"{line}\n" for line in lines) + "\n" + end + rest.split(end)[1]


def _rules() -> Iterator[str]:
    yield "| rule | what is done |"
    yield "|---|---|"
    for letter, words in sorted(RULES.items()):
        yield f"| `{letter}` | {words} |"


def _hosts() -> Iterator[str]:
    yield "| API | host | models | rules | since | source |"
    yield "|---|---|---|---|---|---|"
    for row in sorted(ROWS, key=_order):
        rules = ", ".join(f"`{letter}`" for letter in row.letters)
        host = OWN.get(row.host, f"`{row.host}`")
        models = "all" if row.model == "*" else f"`{row.model}`"
        yield f"| {APIS[row.wire]} | {host} | {models} | {rules} | {row.since} | {row.source} |"


def _order(row: KnownHost) -> tuple[int, str, str]:
    return list(APIS).index(row.wire), row.host.lstrip("*."), row.model


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
