"""A backend around a backend, which measures each request.

A backend posts a finished request and hands out the response. This one passes both on to another backend,
and notes sizes and times.
Install: pip install goaitools-py
"""

import os
import time

from goaitools_py import Chat
from goaitools_py.backends import Backend, Dialect, Exchange, ModelRequest, OpenAIChatBackend
from goaitools_py.sim import SimServer


class Metered:
    """Any backend for `Chat`, with a line for each request: bytes, status, milliseconds, never content."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.dialect: Dialect = (
            inner.dialect
        )  # the provider API's JSON; pure functions, so both backends may use it
        self.model = inner.model
        self.max_retries = inner.max_retries
        self.context_window = inner.context_window
        self.lines: list[str] = []

    def send(self, request: ModelRequest) -> Exchange:
        """Post a request; return once the headers of a good response are there."""
        began = time.perf_counter()
        exchange = self._inner.send(request)
        took = (time.perf_counter() - began) * 1000
        self.lines.append(f"{request.path} {len(request.body)} bytes, {exchange.head.status}, {took:.1f} ms")
        return exchange

    def close(self) -> None:
        """Close the connections of the inner backend."""
        self._inner.close()


def main() -> None:
    """Have two turns through the wrapper."""
    wire, _, model = os.environ.get("GOAITOOLS_MODEL", "sim").partition(":")
    with SimServer() as sim:
        if wire == "sim":
            print("(simulated: no language model is asked)")
            inner = OpenAIChatBackend("sim-game-master", base_url=sim.base_url, api_key="sim")
        else:
            inner = OpenAIChatBackend(model)
        metered = Metered(inner)
        with Chat(metered) as chat:
            print(chat.run_turns(None, ["My name is Ada.", "What is my name?"]).text)
    print(*metered.lines, sep="\n")


if __name__ == "__main__":
    main()
