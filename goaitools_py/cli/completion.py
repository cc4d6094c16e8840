"""`goaitools completion`: a script that completes commands, options and files in a shell.

Owns: the three scripts. Must never know: the effect of a command. All contents come from the parsers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from .text_output import add_json, show_json

__all__ = ["add_to"]

_HOW: Final = {
    "bash": 'eval "$(goaitools completion bash)" in ~/.bashrc',
    "zsh": "goaitools completion zsh > a folder of $fpath, as _goaitools",
    "fish": "goaitools completion fish > ~/.config/fish/completions/goaitools.fish",
}


class _OptionWords(NamedTuple):
    """An option. `values`: all that may follow it; empty if anything may, such as a file."""

    names: tuple[str, ...]
    takes_value: bool
    help: str
    values: tuple[str, ...] = ()


class _CommandWords(NamedTuple):
    """The possible words after a command."""

    name: str
    help: str
    options: tuple[_OptionWords, ...]
    words: tuple[str, ...]

    @property
    def all_words(self) -> str:
        return " ".join((*self.words, *(name for option in self.options for name in option.names)))

    def before_values(self) -> Iterator[tuple[str, str]]:
        """Pairs for a shell: a pattern of options that take a value, and the values; "" for files."""
        valued = [option for option in self.options if option.takes_value]
        for values in dict.fromkeys(option.values for option in valued):
            names = (name for option in valued if option.values == values for name in option.names)
            yield "|".join(f'"{self.name} {name}"' for name in names), " ".join(values)


def add_to(commands: Any, table: Mapping[str, Any]) -> None:
    """Add the command to argparse's list of commands. `table`: all commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        description="Print a script that completes commands, options and files in a shell. "
        + "; ".join(f"{shell}: {how}" for shell, how in _HOW.items())
        + ".",
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS))
    add_json(parser)
    parser.set_defaults(run=run, table=table)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    script = "\n".join(_SCRIPTS[args.shell](list(_known(args.table))))
    if args.json:
        show_json({"shell": args.shell, "script": f"{script}\n"})
    else:
        print(script)
    return 0


def _known(table: Mapping[str, Any]) -> Iterator[_CommandWords]:
    """Every command with its options, from its own parser."""
    for name, command in table.items():
        commands = argparse.ArgumentParser().add_subparsers()
        command.add(commands)
        options: dict[str, _OptionWords] = {}
        words: list[str] = []
        _read(commands.choices[name], options, words)
        yield _CommandWords(name, command.help, tuple(options.values()), tuple(words))


def _read(parser: argparse.ArgumentParser, options: dict[str, _OptionWords], words: list[str]) -> None:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            option = _OptionWords(
                tuple(action.option_strings),
                action.nargs != 0,
                (action.help or "").partition(";")[0].partition(" (")[0].partition(":")[0],
                tuple(map(str, action.choices or ())),
            )
            options.setdefault(action.option_strings[-1], option)
        elif action.choices is not None:
            words += map(str, action.choices)
            for inner in action.choices.values() if isinstance(action.choices, dict) else ():
                _read(inner, options, words)


def _bash(known: list[_CommandWords]) -> Iterator[str]:
    yield "_goaitools() {"
    yield '    local cur="${COMP_WORDS[COMP_CWORD]}" words="" IFS=$' + r"' \t\n'"
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        words="{" ".join(one.name for one in known)} --help --version"'
    yield "    else"
    yield '        case "${COMP_WORDS[1]}" in'
    for one in known:
        yield f'            {one.name}) words="{one.all_words}" ;;'
    yield "        esac"
    yield '        case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in'
    for one in known:
        for pattern, values in one.before_values():
            yield f'            {pattern}) words="{values}" ;;'
    yield "        esac"
    yield "    fi"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield '    if [ ${#COMPREPLY[@]} -eq 0 ] && [ "$COMP_CWORD" -gt 1 ]; then'
    yield r"        IFS=$'\n'  # names may have spaces"
    yield '        COMPREPLY=($(compgen -f -- "$cur"))'
    yield "    fi"
    yield "}"
    yield "complete -o filenames -F _goaitools goaitools"


def _quoted(text: str) -> str:
    """The text in single quotes, for zsh and fish alike."""
    return "'" + text.replace("\\", "").replace("'", "") + "'"


def _zsh(known: list[_CommandWords]) -> Iterator[str]:
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
    yield '    case "$words[2] $words[CURRENT-1]" in'
    for one in known:
        for pattern, values in one.before_values():
            yield f"        {pattern}) {f'compadd -- {values}' if values else '_files'}; return ;;"
    yield "    esac"
    yield '    case "$words[2]" in'
    for one in known:
        yield f"        {one.name}) compadd -- {one.all_words} ;;"
    yield "    esac"
    yield "    _files"
    yield "}"
    yield 'if [ "$funcstack[1]" = "_goaitools" ]; then _goaitools "$@"; else compdef _goaitools goaitools; fi'


def _fish(known: list[_CommandWords]) -> Iterator[str]:
    yield "function __goaitools_runs"
    yield "    set -l words (commandline -opc)"
    yield '    test (count $words) -ge 2; and test "$words[2]" = $argv[1]'
    yield "end"
    yield "complete -c goaitools -f -n __fish_use_subcommand -l help -d 'show the commands'"
    yield "complete -c goaitools -f -n __fish_use_subcommand -l version -d 'print the version'"
    for one in known:
        yield f"complete -c goaitools -f -n __fish_use_subcommand -a {one.name} -d {_quoted(one.help)}"
    for one in known:
        seen = f"-n '__goaitools_runs {one.name}'"
        if one.words:
            yield f"complete -c goaitools {seen} -f -a '{' '.join(one.words)}'"
        for option in one.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            value = " -r" if option.takes_value else ""
            value += f" -f -a '{' '.join(option.values)}'" if option.values else ""
            yield f"complete -c goaitools {seen} {names}{value} -d {_quoted(option.help)}"


_SCRIPTS: Final[dict[str, Callable[[list[_CommandWords]], Iterator[str]]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
