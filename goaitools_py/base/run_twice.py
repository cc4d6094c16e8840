"""Runs a step again after an exception, and then raises: for steps that must not stay half done.

Owns: this rule, for plain and for async code. Must never know: the step's work.

Ctrl-C, a cancellation or a lack of memory may come at any line: between a tool's result and the journal, or
while a connection is being closed. The exception has to go on, but not before the step is complete. So the
step runs a second time, from its beginning, and then the exception is raised.

A step for these functions must be safe to run twice. It sets values instead of adding to them, or checks
which part is done already. If it raises the second time, too, that exception goes on, with the first one as
its context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

__all__ = ["run_twice", "run_twice_async"]

P = ParamSpec("P")
T = TypeVar("T")


def run_twice(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a step, and return its result. If it raises, run it once more, and raise all the same."""
    try:
        return step(*args, **kwargs)
    except BaseException:
        step(*args, **kwargs)
        raise


async def run_twice_async(step: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `run_twice`, awaited."""
    try:
        return await step(*args, **kwargs)
    except BaseException:
        await step(*args, **kwargs)
        raise
