"""The recipes of CONTRIBUTING.md, carried out: small additions to a copy of the project.

Owns: what each recipe adds to which file, and the tests that prove it. Must never know: how a copy is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["RECIPES", "Edit", "Recipe"]


class Edit(NamedTuple):
    """Text that is put behind the first place where `after` stands; a new file if `after` is empty."""

    file: str
    after: str
    text: str

    def apply(self, root: Path) -> None:
        """Change a copy of the project."""
        path = root / self.file
        if not self.after:
            assert not path.exists(), f"{self.file} is there already"
            path.parent.mkdir(exist_ok=True)
            path.write_text(self.text, encoding="utf-8")
            return
        old = path.read_text(encoding="utf-8")
        assert self.after in old, f"{self.file} has changed: renew the recipe, which looks for {self.after!r}"
        path.write_text(old.replace(self.after, self.after + self.text, 1), encoding="utf-8")


class Recipe(NamedTuple):
    """One section of CONTRIBUTING.md. `tests`: what a contributor runs, beside the files' own tests."""

    heading: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """Every file that the recipe touches, once."""
        return sorted({edit.file for edit in self.edits})


TRIGGER = Recipe(
    "A trigger",
    (
        Edit("goaitools_py/compaction/triggers.py", '    "ColdCache",\n', '    "LongTurns",\n'),
        Edit(
            "goaitools_py/compaction/triggers.py",
            "        return request.is_cold\n",
            '''

class LongTurns(OwnTrigger, frozen=True):
    """Fires if closed turns have more than `max_messages` neutral messages on average."""

    max_messages: int

    def __post_init__(self) -> None:
        _positive("LongTurns", self.max_messages)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.message_count > self.max_messages * max(1, request.turn_count)
''',
        ),
        Edit(
            "goaitools_py/compaction/__init__.py",
            "from .triggers import ByteLimit, ColdCache, ",
            "LongTurns, ",
        ),
        Edit(
            "goaitools_py/compaction/__init__.py",
            '    "KeepRecentTurns",\n    "Kept",\n',
            '    "LongTurns",\n',
        ),
        Edit(
            "docs/strategies.md",
            "| `TurnLimit(n)` | the history has more turns |\n",
            "| `LongTurns(n)` | turns have more messages on average |\n",
        ),
        Edit(
            "tests/compaction/test_long_turns.py",
            "",
            '''"""Facts about `LongTurns`."""

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns
from goaitools_py.compaction import LongTurns
from goaitools_py.testing import ScriptedBackend


@pytest.mark.parametrize(("most", "fires"), [(1, True), (3, False)])
def test_it_fires_above_the_average(most: int, fires: bool) -> None:
    """Two turns of a question and an answer, and a new question: five messages."""
    chat = Chat(ScriptedBackend("One.", "Two.", "Three."))
    state = chat.run_turns(None, ["First?", "Second?"]).state

    result = chat.chat_with_state(
        state, user="Third?", compactor=Compactor(LongTurns(most), KeepRecentTurns(1))
    )

    assert (result.compaction is not None) == fires
''',
        ),
    ),
    ("tests/compaction/test_long_turns.py", "tests/test_imports.py::test_imports_are_those_of_the_table"),
)

SETTING = Recipe(
    "A setting",
    (
        Edit(
            "goaitools_py/types/options.py",
            "    context_management: Sequence[ContextEdit] | Unset | None = UNSET\n",
            "    service_tier: str | Unset | None = UNSET\n",
        ),
        Edit(
            "goaitools_py/types/options.py",
            "            `ProviderCompaction`. None asks for no cut.\n",
            '        service_tier: The provider\'s word for how fast it answers, such as "auto".\n',
        ),
        Edit(
            "goaitools_py/types/options.py",
            '    "context_management": check_edits,\n',
            '    "service_tier": checks.text,\n',
        ),
        Edit(
            "goaitools_py/backends/openai_chat/dialect.py",
            '    "prompt_cache_key": "prompt_cache_key",\n',
            '    "service_tier": "service_tier",\n',
        ),
        Edit(
            "goaitools_py/backends/openai_responses/dialect.py",
            '_SETTINGS: Final = frozenset({"max_output_tokens", "temperature", "top_p", ',
            '"service_tier", ',
        ),
        Edit(
            "goaitools_py/backends/anthropic/dialect.py",
            '                values["thinking"] = thinking_member(value)\n',
            '            elif name == "service_tier":\n                values["service_tier"] = value\n',
        ),
        Edit(
            "goaitools_py/testing/_contract_writing.py",
            '    "prompt_cache_key": "contract-key",\n',
            '    "service_tier": "contract-tier",\n',
        ),
        Edit(
            "tests/backends/test_every_setting.py",
            """        {"context_management": {"edits": [CLEARING]}},
    ),
""",
            """    "service_tier": ("auto", *[{"service_tier": "auto"}] * 3),
""",
        ),
    ),
    (
        "tests/backends/test_every_setting.py",
        "tests/testing/test_dialect_contract.py",
        "tests/types/test_options.py",
    ),
)

STORE = Recipe(
    "A store",
    (
        Edit(
            "goaitools_py/stores/folder.py",
            "",
            '''"""Blobs as files of one folder.

Owns: the files and their lock. Must never know: what is in a blob.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from ..types.errors import StateConflictError
from . import common
from .base import Stored

__all__ = ["FolderStore"]


class FolderStore:
    """A store for the processes of one machine: a file for each key, written anew and put in its place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        path = self._path(key)
        try:
            data, seconds = path.read_bytes(), path.stat().st_mtime
        except FileNotFoundError:
            return None
        version = int.from_bytes(data[:8], "big")
        return Stored(blob=data[8:], version=version, updated_at=datetime.fromtimestamp(seconds, UTC))

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        path = self._path(key)
        with self._locked():
            found = self.load(key)
            if (found.version if found else None) != expected:
                raise StateConflictError("the row has another version: load it again")
            version = (expected or 0) + 1
            new = path.with_suffix(".new")
            new.write_bytes(version.to_bytes(8, "big") + blob)
            os.replace(new, path)
        return version

    def _path(self, key: str) -> Path:
        return self._folder / sha256(common.check_key(key).encode()).hexdigest()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
''',
        ),
        Edit(
            "goaitools_py/stores/__init__.py",
            "    from .django import AsyncDjangoStore, DjangoStore\n",
            "    from .folder import FolderStore\n",
        ),
        Edit("goaitools_py/stores/__init__.py", '    "DjangoStore",\n', '    "FolderStore",\n'),
        Edit(
            "goaitools_py/stores/__init__.py",
            "        return getattr(memory, name)\n",
            """    if name == "FolderStore":
        from . import folder

        return getattr(folder, name)
""",
        ),
        Edit(
            "tests/stores/test_folder.py",
            "",
            '''"""Facts about `FolderStore`."""

from pathlib import Path

from goaitools_py.stores import FolderStore
from goaitools_py.testing import store_contract


def test_it_keeps_the_contract(tmp_path: Path) -> None:
    """Bytes, keys, versions and rivals are as the protocol wants them."""
    store_contract(lambda: FolderStore(tmp_path))
''',
        ),
    ),
    ("tests/stores/test_folder.py", "tests/test_imports.py::test_imports_are_those_of_the_table"),
)

QUIRK = Recipe(
    "A server's quirk",
    (
        Edit(
            "goaitools_py/backends/openai_chat/reply.py",
            "``function_call``          not a call                    "
            "deprecated, never asked for; 6 of 6 were hollow\n",
            "``trace_id``               always                        a made-up gateway refuses its trace\n",
        ),
        Edit(
            "goaitools_py/backends/openai_chat/reply.py",
            '    "function_call": _is_no_call,\n',
            '    "trace_id": lambda value: True,\n',
        ),
        Edit(
            "tests/backends/test_trace_id.py",
            "",
            '''"""A gateway's trace is left out of what is stored; what it answered stays as it came."""

from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect


def test_a_trace_is_left_out() -> None:
    """The next request does not have it."""
    message = b\'{"role":"assistant","content":"Hi","trace_id":"t"}\'
    body = b\'{"choices":[{"message":%s,"finish_reason":"stop"}]}\' % message

    (entry,) = OpenAIChatDialect("llm.example.org").reply(body).entries

    assert entry == b\'{"role":"assistant","content":"Hi"}\'
''',
        ),
    ),
    ("tests/backends/test_trace_id.py", "tests/backends/test_openai_chat_reply.py"),
)

API = Recipe(
    "A fourth provider API",
    (
        Edit("goaitools_py/backends/dialects.py", '"anthropic"', ', "echo"'),
        Edit(
            "goaitools_py/backends/dialects.py",
            '            return AnthropicDialect(family=family or "anthropic", model=model, host=host)\n',
            """        case "echo":
            from .echo.dialect import EchoDialect

            return EchoDialect(family or "echo", host=host)
""",
        ),
        Edit(
            "goaitools_py/backends/by_name.py",
            '    "anthropic": "ANTHROPIC_BASE_URL",\n',
            '    "echo": "ECHO_BASE_URL",\n',
        ),
        Edit(
            "goaitools_py/backends/by_name.py",
            "            return OpenAIResponsesBackend\n",
            """        case "echo":
            from .echo.backends import EchoBackend

            return EchoBackend
""",
        ),
        Edit(
            "goaitools_py/backends/by_name.py",
            "            return AsyncOpenAIResponsesBackend\n",
            """        case "echo":
            from .echo.backends import AsyncEchoBackend

            return AsyncEchoBackend
""",
        ),
        Edit(
            "goaitools_py/backends/__init__.py",
            "from .gate import gated\n",
            "from .echo.backends import AsyncEchoBackend, EchoBackend\n",
        ),
        Edit(
            "goaitools_py/backends/__init__.py",
            '    "AsyncBackend",\n',
            '    "AsyncEchoBackend",\n',
        ),
        Edit(
            "goaitools_py/backends/__init__.py",
            '    "Dialect",\n',
            '    "EchoBackend",\n',
        ),
        Edit(
            "goaitools_py/backends/echo/__init__.py",
            "",
            '''"""The provider API "echo", a made-up variant of Chat Completions.

Owns: all that is known of this API alone. Must never know: a turn, or another provider API.
"""
''',
        ),
        Edit(
            "goaitools_py/backends/echo/dialect.py",
            "",
            '''"""The Echo dialect: as Chat Completions, with another name.

Owns: where the API differs. Must never know: a socket, an SDK, a turn.
"""

from __future__ import annotations

from typing import ClassVar

from ..openai_chat.dialect import OpenAIChatDialect

__all__ = ["EchoDialect"]


class EchoDialect(OpenAIChatDialect, frozen=True):
    """``POST /chat/completions`` as Echo speaks it."""

    wire: ClassVar[str] = "echo"
''',
        ),
        Edit(
            "goaitools_py/backends/echo/backends.py",
            "",
            '''"""The public backends for Echo.

Owns: their names. Must never know: the SDK (until one is made).
"""

from __future__ import annotations

from ..base import Dialect
from ..openai.backends import AsyncOpenAIChatBackend, OpenAIChatBackend

__all__ = ["AsyncEchoBackend", "EchoBackend"]


class EchoBackend(OpenAIChatBackend):
    """Echo, for `Chat`. The arguments are those of `OpenAIChatBackend`."""

    def _dialect(self, family: str, host: str) -> Dialect:
        from .dialect import EchoDialect

        return EchoDialect(family, host=host)


class AsyncEchoBackend(AsyncOpenAIChatBackend):
    """Echo, for `AsyncChat`."""

    def _dialect(self, family: str, host: str) -> Dialect:
        from .dialect import EchoDialect

        return EchoDialect(family, host=host)
''',
        ),
        Edit(
            "tests/backends/test_echo.py",
            "",
            '''"""Facts about the provider API "echo"."""

from goaitools_py import Chat
from goaitools_py.backends import EchoBackend
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.states import convert_state, inspect_state
from goaitools_py.testing import ScriptedBackend, dialect_contract
from goaitools_py.testing._reply_shapes import SHAPES

from ..testing.test_dialect_contract import samples_of


def test_it_keeps_the_contract() -> None:
    """With the four protocols that repair, views of hosts, conversion and fallbacks need."""
    found = dialect_contract(dialect_of("echo"), samples_of("openai"))

    assert {"ChecksHistory", "ViewsHistory", "TranslatesReplies"} <= set(found)


def test_it_has_a_name_and_its_states_are_converted() -> None:
    """A string makes its backend, and a conversation goes there and back."""
    assert isinstance(EchoBackend("m", api_key="k").dialect, type(dialect_of("echo")))
    assert Chat("echo:m")._backend.dialect.wire == "echo"
    backend = ScriptedBackend("Hello.", dialect=dialect_of("echo"), shape=SHAPES["openai"])

    state = Chat(backend).chat_with_state(None, user="Hello?").state

    there = convert_state(state, "anthropic").state
    assert inspect_state(convert_state(there, "echo").state).wire == "echo"
''',
        ),
    ),
    ("tests/backends/test_echo.py", "tests/test_imports.py::test_no_import_at_all_leads_back"),
)

RECIPES = (TRIGGER, SETTING, STORE, QUIRK, API)
