"""Do it once more, and then raise: for steps that an exception must not leave undone.

Owns: this rule, once per colour. Must never know: what is done.

Ctrl-C, a cancellation or a lack of memory may come at any line: between a tool's result and the journal, or
while a connection is being closed. Such an exception has to go on, but not before the step is done. So the
step is done a second time, from its beginning, and then the exception is raised.

A step that is given to these functions must bear being done twice. It sets values instead of adding to them,
or sees for itself what is done already. If it raises the second time, too, that exception goes on, with the
first one as its context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

__all__ = ["once_more", "once_more_async"]

P = ParamSpec("P")
T = TypeVar("T")


def once_more(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do a step, and return what it returns. If it raises, do it once more, and raise all the same."""
    try:
        return step(*args, **kwargs)
    except BaseException:
        step(*args, **kwargs)
        raise


async def once_more_async(step: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `once_more`, awaited."""
    try:
        return await step(*args, **kwargs)
    except BaseException:
        await step(*args, **kwargs)
        raise
