"""Provisional. Typed answers: the values of `output_type=`, and their options.

Owns: `Output`, the type of an answer with the options of the caller, and its checks. Must never know: a
schema, a provider API, a turn. Nothing of pydantic is imported until a type is used.

Begin with `wanted.py`, the answer that a turn is to give. `shape.py` makes a schema of a type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from ..base.values import Given
from ..types.errors import OutputError
from ..types.events import OutputDelta

__all__ = ["Output", "OutputDelta", "OutputError"]

T = TypeVar("T")

Mode = Literal["auto", "native", "prompt", "tool"]
SHORT_TOKENS: Final = 1024
"""A history of fewer tokens is short: no provider caches a prefix that is smaller."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Output(Given, Generic[T], frozen=True):
    """The type of an answer, with how it is asked for: ``output_type=Output(Verdict, retries=2)``.

    Attributes:
        of: The type: a pydantic model, dataclass, TypedDict, ``list[…]``, `Literal`, a union.
        mode: "native" uses the provider's own format for JSON answers. "prompt" puts the schema behind the
            user's message, so that the cached beginning of the request stays as it is. "auto" is "native"
            while that costs no cached prefix: the last turn had the same format, or the history is short;
            else it is "prompt". "tool" offers a tool and takes its arguments as the answer, for servers that
            know tools and no format; `keep_attempts` has no effect then.
        strict: False: the provider need not hold the model to the schema (OpenAI). The answer is checked
            here in both cases.
        retries: How often the model is told why its answer does not fit, and asked again.
        validate: Called with each answer that fits the type. It raises ValueError to refuse it; the
            error's text goes to the model. Its result is ignored. It may be async on an `AsyncChat`.
        name: The schema's name at OpenAI; "" takes the type's. In the mode "tool" the tool's name; "" is
            "final_answer".
        keep_attempts: True: answers that did not fit stay in the history.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: The mode or the name is unknown, or `retries` is below 0.
    """

    of: type[T]
    mode: Mode = "auto"
    strict: bool = True
    retries: int = 1
    validate: Callable[[T], object] | None = None
    name: str = ""
    keep_attempts: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.of, Output):
            raise TypeError("Output takes a type, not another Output")
        if self.mode not in (modes := get_args(Mode)):
            raise ValueError(f"mode must be one of {', '.join(map(repr, modes))}")
        for option in ("strict", "keep_attempts"):
            if not isinstance(value := getattr(self, option), bool):
                raise TypeError(f"{option} must be True or False, not {type(value).__name__}")
        if not isinstance(self.retries, int) or isinstance(self.retries, bool):
            raise TypeError(f"retries must be an int, not {type(self.retries).__name__}")
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, got {self.retries}")
        if self.validate is not None and not callable(self.validate):
            raise TypeError(
                f"validate must be a function of one argument, not {type(self.validate).__name__}"
            )
        if not isinstance(self.name, str):
            raise TypeError(f"name must be str, not {type(self.name).__name__}")
        if self.name and not _NAME.fullmatch(self.name):
            raise ValueError("name must have 1 to 64 letters, digits, underscores and dashes")

    @classmethod
    def given(cls, value: Any) -> Output[Any]:
        """The value of `output_type=`, as an `Output`."""
        return value if isinstance(value, Output) else cls(value)
