"""Our names beside the constants of the package ``opentelemetry-semantic-conventions``: another repository's
copy of the same tables, so a name that we misspell, or that is renamed there, is found."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.semconv")

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from goaitools_py.telemetry import conventions

from ._tables import METRICS, SPANS

NEWER = {
    "gen_ai.conversation.compacted": "added after the package's last release",
    "gen_ai.request.reasoning.level": "added after the package's last release",
    "gen_ai.usage.cache_write.input_tokens": "the package has the older cache_creation",
    "gen_ai.invoke_agent.duration": "added after the package's last release",
    "gen_ai.invoke_agent.inference_calls": "added after the package's last release",
    "gen_ai.invoke_agent.tool_calls": "added after the package's last release",
    "gen_ai.execute_tool.duration": "added after the package's last release",
}
"""Names of the conventions' repository that the installed package does not have yet."""


def _texts(*modules: object) -> set[str]:
    return {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }


KNOWN = _texts(gen_ai_attributes, gen_ai_metrics, error_attributes, server_attributes)


def test_what_is_written_is_what_the_package_names() -> None:
    """Each attribute and metric of the tables, but for those that are newer."""
    written = {*METRICS}.union(*(must | may for _, must, may in SPANS.values()))

    assert written - KNOWN == set(NEWER)


def test_each_constant_has_a_name_of_the_conventions() -> None:
    """No constant is misspelt, and what is ours says so."""
    own = {name for name in _texts(conventions) if name.startswith(("gen_ai.", "error.", "server."))}
    own |= set(conventions.REQUEST_SETTINGS.values())

    assert own - KNOWN <= set(NEWER)
    assert len(own & KNOWN) > 25
    others = {name for name in _texts(conventions) if "." in name} - own - {conventions.SCHEMA_URL}
    assert {name.partition(".")[0] for name in others} == {"goaitools"}


@pytest.mark.parametrize(
    ("family", "wire", "name"),
    [
        ("azure", "openai", "azure.ai.openai"),
        ("api.groq.com", "openai-responses", "openai"),
        ("host", "anthropic", "anthropic"),
        ("ollama", "ollama", "ollama"),
        ("", "ollama", "ollama"),
    ],
)
def test_a_provider_api_of_ones_own_has_its_own_name(family: str, wire: str, name: str) -> None:
    """The conventions allow other names: a provider that is neither company must not be told as one."""
    assert conventions.provider_name(family, wire) == name
