"""The table of commands: name, one line of help, and the module that has it.

Owns: the table, and when a command's module is imported. Must never know: an option of a command.

Only the module of the command that runs is imported, so ``goaitools --help`` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """One command.

    Attributes:
        help: A description, for the list of commands.
        add: Imports the command's module, and adds its parser to argparse's list of commands.
    """

    help: str
    add: Callable[[Any], None]


def _demo(commands: Any) -> None:
    from .demo import add_to

    add_to(commands)


def _chat(commands: Any) -> None:
    from .chat_command import add_to

    add_to(commands)


def _inspect(commands: Any) -> None:
    from .inspect import add_to

    add_to(commands)


def _store(commands: Any) -> None:
    from .store import add_to

    add_to(commands)


def _sim(commands: Any) -> None:
    from .demo import add_sim

    add_sim(commands)


def _serve(commands: Any) -> None:
    from .serve import add_to

    add_to(commands)


def _export(commands: Any) -> None:
    from .conversions import add_export

    add_export(commands)


def _import(commands: Any) -> None:
    from .conversions import add_import

    add_import(commands)


def _diff(commands: Any) -> None:
    from .branching import add_to

    add_to(commands)


def _rewind(commands: Any) -> None:
    from .branching import add_rewind

    add_rewind(commands)


def _fork(commands: Any) -> None:
    from .branching import add_fork

    add_fork(commands)


def _redact(commands: Any) -> None:
    from .redact import add_to

    add_to(commands)


def _convert(commands: Any) -> None:
    from .conversions import add_convert

    add_convert(commands)


def _cost(commands: Any) -> None:
    from .cost import add_to

    add_to(commands)


def _upgrade(commands: Any) -> None:
    from .upgrading import add_to

    add_to(commands)


def _doctor(commands: Any) -> None:
    from .doctor import add_to

    add_to(commands)


def _completion(commands: Any) -> None:
    from .completion import add_to

    add_to(commands, COMMANDS)


COMMANDS: Final[dict[str, Command]] = {
    "demo": Command("show a conversation that survives a restart, offline", _demo),
    "chat": Command("talk with a model: in an app on a terminal, else line by line", _chat),
    "serve": Command("serve a page for conversations, until Ctrl-C", _serve),
    "inspect": Command("say what is in a state", _inspect),
    "export": Command("write a whole conversation as JSON or Markdown", _export),
    "import": Command("make a state of an export, or of a Go state", _import),
    "diff": Command("compare two states of a conversation", _diff),
    "rewind": Command("take the newest turns out of a conversation", _rewind),
    "fork": Command("copy a conversation under a new id", _fork),
    "redact": Command("take a text out of a conversation", _redact),
    "convert": Command("write a conversation for another provider API", _convert),
    "cost": Command("say what conversations have consumed", _cost),
    "upgrade": Command("write states in the newest format, with the newest key", _upgrade),
    "store": Command("make or migrate the tables of a store; list, prune or erase conversations", _store),
    "doctor": Command("check versions, keys, servers, a store and the clock; or a model", _doctor),
    "sim": Command("run the offline simulator as a server", _sim),
    "completion": Command("print a script for completion in a shell", _completion),
}
