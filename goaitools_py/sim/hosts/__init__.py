"""The rules of hosts: one host of a provider API refuses a request that others take.

Owns: the names of hosts, and the provider APIs as one host serves them. Must never know: the rules that this
package itself has for hosts, because the simulator checks them independently.

A row of a table has its source and a date; no rule is there without one. Begin with `chat_hosts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..wire import Wire
from .chat_hosts import CHAT_HOSTS
from .host import Host, HostRule, HostWire
from .messages_hosts import MESSAGES_HOSTS
from .responses_hosts import RESPONSES_HOSTS

__all__ = ["HOSTS", "HostRule", "wires_of"]

HOSTS: Mapping[str, Mapping[str, Host]] = {
    wire: {host.name: host for host in hosts}
    for wire, hosts in (
        ("openai", CHAT_HOSTS),
        ("openai-responses", RESPONSES_HOSTS),
        ("anthropic", MESSAGES_HOSTS),
    )
}
"""The hosts of each provider API, by name."""


def wires_of(name: str, wires: Sequence[Wire]) -> tuple[Wire, ...]:
    """The provider APIs of a host.

    Raises:
        ValueError: The host is unknown.
    """
    known = sorted({host for hosts in HOSTS.values() for host in hosts})
    if name not in known:
        raise ValueError(f"the simulator has no rules of {name!r}, only of {', '.join(known)}")
    return tuple(HostWire(wire, HOSTS[wire.name][name]) for wire in wires if name in HOSTS[wire.name])
