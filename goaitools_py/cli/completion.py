"""`goaitools completion`: a script that completes commands, options and files in a shell.

Owns: the three scripts. Must never know: what a command does. Everything in them comes from the parsers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["add_to"]

_HOW: Final = {
    "bash": 'eval "$(goaitools completion bash)" in ~/.bashrc',
    "zsh": "goaitools completion zsh > a folder of $fpath, as _goaitools",
    "fish": "goaitools completion fish > ~/.config/fish/completions/goaitools.fish",
}


class _Option(NamedTuple):
    names: tuple[str, ...]
    takes_value: bool
    help: str


class _Known(NamedTuple):
    """What can stand behind a command."""

    name: str
    help: str
    options: tuple[_Option, ...]
    words: tuple[str, ...]

    @property
    def all_words(self) -> str:
        return " ".join((*self.words, *(name for option in self.options for name in option.names)))


def add_to(commands: Any, table: Mapping[str, Any]) -> None:
    """Add the command to argparse's list of commands. `table`: all of them."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        description="Print a script that completes commands, options and files in a shell. "
        + "; ".join(f"{shell}: {how}" for shell, how in _HOW.items())
        + ".",
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS))
    parser.set_defaults(run=run, table=table)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(*_SCRIPTS[args.shell](list(_known(args.table))), sep="\n")
    return 0


def _known(table: Mapping[str, Any]) -> Iterator[_Known]:
    """Every command with its options, of its own parser."""
    for name, command in table.items():
        commands = argparse.ArgumentParser().add_subparsers()
        command.add(commands)
        options: dict[str, _Option] = {}
        words: list[str] = []
        _read(commands.choices[name], options, words)
        yield _Known(name, command.help, tuple(options.values()), tuple(words))


def _read(parser: argparse.ArgumentParser, options: dict[str, _Option], words: list[str]) -> None:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            help = (action.help or "").partition(";")[0].partition(" (")[0]
            takes_value = action.nargs != 0
            options.setdefault(
                action.option_strings[-1], _Option(tuple(action.option_strings), takes_value, help)
            )
        elif action.choices is not None:
            words += map(str, action.choices)
            for inner in action.choices.values() if isinstance(action.choices, dict) else ():
                _read(inner, options, words)


def _bash(known: list[_Known]) -> Iterator[str]:
    yield "_goaitools() {"
    yield '    local cur="${COMP_WORDS[COMP_CWORD]}" words=""'
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        words="{" ".join(one.name for one in known)} --help --version"'
    yield "    else"
    yield '        case "${COMP_WORDS[1]}" in'
    for one in known:
        yield f'            {one.name}) words="{one.all_words}" ;;'
    yield "        esac"
    yield "    fi"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield '    if [ ${#COMPREPLY[@]} -eq 0 ] && [ "$COMP_CWORD" -gt 1 ]; then'
    yield '        COMPREPLY=($(compgen -f -- "$cur"))'
    yield "    fi"
    yield "}"
    yield "complete -o filenames -F _goaitools goaitools"


def _quoted(text: str) -> str:
    """The text in single quotes, for zsh and fish alike."""
    return "'" + text.replace("\\", "").replace("'", "") + "'"


def _zsh(known: list[_Known]) -> Iterator[str]:
    yield "#compdef goaitools"
    yield "_goaitools() {"
    yield "    if (( CURRENT == 2 )); then"
    yield "        local -a commands=("
    for one in known:
        yield f"            {_quoted(f'{one.name}:{one.help}')}"
    yield "        )"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield '    case "$words[2]" in'
    for one in known:
        yield f"        {one.name}) compadd -- {one.all_words} ;;"
    yield "    esac"
    yield "    _files"
    yield "}"
    yield 'if [ "$funcstack[1]" = "_goaitools" ]; then _goaitools "$@"; else compdef _goaitools goaitools; fi'


def _fish(known: list[_Known]) -> Iterator[str]:
    for one in known:
        yield f"complete -c goaitools -f -n __fish_use_subcommand -a {one.name} -d {_quoted(one.help)}"
    for one in known:
        seen = f"-n '__fish_seen_subcommand_from {one.name}'"
        if one.words:
            yield f"complete -c goaitools {seen} -f -a '{' '.join(one.words)}'"
        for option in one.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            value = " -r" if option.takes_value else ""
            yield f"complete -c goaitools {seen} {names}{value} -d {_quoted(option.help)}"


_SCRIPTS: Final[dict[str, Callable[[list[_Known]], Iterator[str]]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
