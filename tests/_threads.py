"""Runs a test in a thread of its own.

Owns: the thread. Must never know: what the test does.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["in_own_thread"]


def in_own_thread(test: Callable[..., None]) -> Callable[..., None]:
    """For tests whose trace function raises. At some lines that leaves behind an exception which Python 3.11
    takes for one that is being handled. It stays in its thread, as the context of every later error there."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        raised: list[BaseException] = []

        def body() -> None:
            try:
                test(*args, **fixtures)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=body, name=test.__name__)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    return run
