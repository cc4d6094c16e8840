"""A step that an exception breaks in on is done once more, and the exception is raised all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py.base.run_twice import run_twice, run_twice_async


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def again(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Either function, called in plain code."""
    if not request.param:
        return run_twice

    def call(step: Callable[..., Any], *args: Any) -> Any:
        async def awaited(*given: Any) -> Any:
            return step(*given)

        return asyncio.run(run_twice_async(awaited, *args))

    return call


def failing(times: int, error: BaseException, done: list[str]) -> Callable[[str], str]:
    """A step that raises the first few times."""

    def step(word: str) -> str:
        done.append(word)
        if len(done) <= times:
            raise error
        return word

    return step


def test_a_step_that_succeeds_is_done_once(again: Callable[..., Any]) -> None:
    """Its value is returned."""
    done: list[str] = []

    assert again(failing(0, MemoryError(), done), "close") == "close"
    assert done == ["close"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), asyncio.CancelledError()])
def test_a_step_that_is_broken_in_on_is_done_again_and_raises(
    again: Callable[..., Any], error: BaseException
) -> None:
    """Whoever is told of the exception finds the step done."""
    done: list[str] = []

    with pytest.raises(type(error)):
        again(failing(1, error, done), "close")

    assert done == ["close", "close"]


def test_a_second_exception_goes_on_and_there_is_no_third_time(again: Callable[..., Any]) -> None:
    """It has the first one as its context."""
    done: list[str] = []

    def step() -> None:
        done.append("close")
        raise OSError(len(done))

    with pytest.raises(OSError, match="2") as caught:
        again(step)

    assert isinstance(caught.value.__context__, OSError)
    assert done == ["close", "close"]
