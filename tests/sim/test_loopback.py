"""The simulator over real sockets: keep-alive, concurrency, and every way a response can go wrong."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from goaitools_py.sim import Fault, Reply, SimServer

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
STREAM = {**HELLO, "stream": True}


@pytest.fixture
def sim() -> Iterator[SimServer]:
    with SimServer() as server:
        yield server


def client(sim: SimServer) -> httpx.Client:
    return httpx.Client(base_url=sim.base_url, trust_env=False, timeout=10.0)


def post(sim: SimServer, body: Any = HELLO) -> httpx.Response:
    with client(sim) as http:
        return http.post("chat/completions", json=body)


def read_until_it_breaks(sim: SimServer, body: Any) -> tuple[bytes, Exception | None]:
    """What came of the response, and how it ended."""
    got = b""
    try:
        with client(sim) as http, http.stream("POST", "chat/completions", json=body) as response:
            for data in response.iter_raw():
                got += data
    except httpx.TransportError as error:
        return got, error
    return got, None


# ----------------------------------------------------------------------------------------- good ways


def test_one_connection_serves_many_requests(sim: SimServer) -> None:
    """Connections are kept alive, after streams and after errors as well."""
    with client(sim) as http:
        ports = set()
        for body in (HELLO, STREAM, {"model": "m"}, HELLO):
            with http.stream("POST", "chat/completions", json=body) as response:
                response.read()
                ports.add(response.extensions["network_stream"].get_extra_info("client_addr"))

    assert len(ports) == 1
    assert [recorded.status for recorded in sim.requests] == [200, 200, 400, 200]


def test_headers_are_recorded_in_lower_case(sim: SimServer) -> None:
    """The record has the request's headers by lower-case name."""
    with client(sim) as http:
        http.post("chat/completions", json=HELLO, headers={"Authorization": "Bearer k"})

    assert sim.requests[0].headers["authorization"] == "Bearer k"
    assert sim.requests[0].parsed == HELLO


def test_many_connections_at_once(sim: SimServer) -> None:
    """64 requests are answered at the same time: none is done before all have arrived."""
    everybody = threading.Barrier(64, timeout=10)

    def model(prompt: object) -> Reply:
        everybody.wait()
        return Reply.text("done")

    with SimServer(model=model) as crowded, ThreadPoolExecutor(64) as pool, client(crowded) as http:
        http_limits = httpx.Limits(max_connections=64)
        with httpx.Client(
            base_url=crowded.base_url, trust_env=False, timeout=10.0, limits=http_limits
        ) as http:
            answers = list(
                pool.map(lambda _: http.post("chat/completions", json=HELLO).status_code, range(64))
            )

    assert answers == [200] * 64


def test_bodies_can_be_cut_at_odd_places() -> None:
    """With chunk_bytes a stream arrives in tiny pieces that say the same."""
    with SimServer() as whole, SimServer(chunk_bytes=3) as tiny:
        expected, _ = read_until_it_breaks(whole, STREAM)
        with client(tiny) as http, http.stream("POST", "chat/completions", json=STREAM) as response:
            pieces = list(response.iter_raw())

    assert b"".join(pieces) == expected
    assert max(map(len, pieces)) == 3


def test_cut_bodies_keep_their_length() -> None:
    """chunk_bytes leaves a unary response whole."""
    with SimServer() as whole, SimServer(chunk_bytes=5) as tiny:
        assert post(tiny).content == post(whole).content


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"transfer-encoding: chunked\r\n", 411),
        (b"content-length: many\r\n", 411),
        (b"content-length: 99999999999\r\n", 413),
    ],
)
def test_a_body_of_unknown_or_monstrous_length_is_refused(
    sim: SimServer, headers: bytes, status: int
) -> None:
    """A request must say its length, and it must be one that a request can have."""
    address = httpx.URL(sim.base_url)
    with socket.create_connection((address.host, address.port or 0), timeout=10) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + headers + b"\r\n")
        line = connection.makefile("rb").readline()

    assert line.split()[1] == b"%d" % status


def test_a_body_that_does_not_arrive_whole_is_no_request(sim: SimServer) -> None:
    """A client that gives up while it sends asks nothing: nothing is answered, recorded, or taken off the
    script."""
    sim.push(Reply.text("Here."))
    address = httpx.URL(sim.base_url)
    with socket.create_connection((address.host, address.port or 0), timeout=10) as connection:
        connection.sendall(
            b'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{"model":'
        )
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""

    assert not sim.requests
    assert post(sim).json()["choices"][0]["message"]["content"] == "Here."


# ------------------------------------------------------------------------------------------ bad ways


@pytest.mark.parametrize("body", [HELLO, STREAM])
def test_reset_before_the_headers(sim: SimServer, body: Any) -> None:
    """The connection is reset; the record says that nothing was answered; the next request is fine."""
    sim.push(Fault.reset())

    got, error = read_until_it_breaks(sim, body)

    assert got == b""
    assert isinstance(error, httpx.ReadError)
    assert sim.requests[0].status == 0
    assert post(sim).status_code == 200


def test_hang_up_before_the_headers(sim: SimServer) -> None:
    """The connection closes in order, but without a response."""
    sim.push(Fault.hang_up())

    _, error = read_until_it_breaks(sim, HELLO)

    assert isinstance(error, httpx.RemoteProtocolError)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(Fault.reset(after=3), httpx.ReadError), (Fault.hang_up(after=3), httpx.RemoteProtocolError)],
)
def test_a_stream_breaks_in_the_middle(sim: SimServer, fault: Fault, expected: type[Exception]) -> None:
    """Three events arrive whole, then the connection breaks."""
    sim.push(fault)

    got, error = read_until_it_breaks(sim, STREAM)

    assert got.count(b"\n\n") == 3
    assert isinstance(error, expected)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.reset(after=3), httpx.ReadError),
        (Fault.hang_up(after=3), httpx.RemoteProtocolError),
    ],
)
def test_a_body_breaks_in_the_middle(sim: SimServer, fault: Fault, expected: type[Exception]) -> None:
    """Three slices of 16 bytes arrive, then the connection breaks."""
    sim.push(fault)

    got, error = read_until_it_breaks(sim, HELLO)

    assert len(got) == 48
    assert isinstance(error, expected)


def test_a_short_body(sim: SimServer) -> None:
    """All of the JSON arrives, but more was promised."""
    sim.push(Fault.short_body(missing=1))

    got, error = read_until_it_breaks(sim, HELLO)

    assert json.loads(got)["object"] == "chat.completion"
    assert isinstance(error, httpx.RemoteProtocolError)


def test_a_stream_ends_cleanly_without_its_end(sim: SimServer) -> None:
    """HTTP is content, but finish word, usage and [DONE] are missing."""
    sim.push(Fault.cut_stream(after=3, reply=Reply.text("one two three")))

    got, error = read_until_it_breaks(sim, STREAM)

    assert error is None
    assert got.count(b"\n\n") == 3
    assert b"one" in got
    assert b"[DONE]" not in got
    assert b'"finish_reason":"' not in got


def test_an_error_in_mid_stream(sim: SimServer) -> None:
    """Two events, then an error object as an event, then a clean end."""
    sim.push(Fault.error_event(after=2))

    got, error = read_until_it_breaks(sim, STREAM)

    events = got.decode().split("\n\n")
    assert error is None
    assert len(events) == 4
    assert events[-1] == ""
    assert json.loads(events[2].removeprefix("data: "))["error"]["type"] == "server_error"


@pytest.mark.parametrize("after", [None, 0, 2])
def test_a_held_answer_comes_when_the_gate_opens(sim: SimServer, after: int | None) -> None:
    """The response waits before its headers, or in the middle, until the test opens the gate."""
    gate = threading.Event()
    sim.push(Fault.hold(gate, after=after))
    with client(sim) as http, ThreadPoolExecutor(1) as pool:
        if after is None:
            pending = pool.submit(http.post, "chat/completions", json=STREAM)
            assert not pending.done()
            gate.set()
            text = pending.result(10).text
        else:
            with http.stream("POST", "chat/completions", json=STREAM) as response:
                pieces = response.iter_raw()
                text = "".join(next(pieces).decode() for _ in range(after))
                gate.set()
                text += b"".join(pieces).decode()

    assert text.endswith("data: [DONE]\n\n")


def test_a_held_answer_is_really_held(sim: SimServer) -> None:
    """While the gate is shut nothing arrives, not even headers."""
    gate = threading.Event()
    sim.push(Fault.hold(gate))
    impatient = httpx.Timeout(10.0, read=0.05)

    http = httpx.Client(base_url=sim.base_url, trust_env=False, timeout=impatient)
    with http, pytest.raises(httpx.ReadTimeout):
        http.post("chat/completions", json=HELLO)

    gate.set()


@pytest.mark.parametrize(("body", "ping"), [(STREAM, b": ping\n\n"), (HELLO, b" \n")])
def test_pings_never_end(sim: SimServer, body: Any, ping: bytes) -> None:
    """Keep-alive bytes come for as long as the client listens, and nothing else."""
    sim.push(Fault.pings())

    with client(sim) as http, http.stream("POST", "chat/completions", json=body) as response:
        pieces = response.iter_raw()
        first = [next(pieces) for _ in range(3)]

    assert response.status_code == 200
    assert b"".join(first).replace(ping, b"") == b""


# ---------------------------------------------------------------------------------------- life cycle


def test_stop_ends_what_is_open() -> None:
    """Stopping breaks off held and endless responses and idle connections, and frees the port."""
    before = set(threading.enumerate())
    sim = SimServer().start()
    url = sim.base_url
    sim.push(Fault.pings(), Fault.hold(threading.Event(), after=1))
    with client(sim) as http:
        http.get("models")
        with http.stream("POST", "chat/completions", json=STREAM) as pings:
            next(pings.iter_raw())
            with http.stream("POST", "chat/completions", json=STREAM) as held:
                pieces = held.iter_raw()
                next(pieces)

                sim.stop()

                with pytest.raises(httpx.TransportError):
                    list(pieces)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/models", trust_env=False)
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name == "goaitools-sim"]


def test_start_and_stop_may_be_repeated() -> None:
    """A second start or stop does nothing; a stopped server starts again and keeps its record."""
    sim = SimServer()
    sim.stop()

    assert sim.start().start() is sim
    post(sim)
    sim.stop()
    sim.stop()
    with sim:
        post(sim)

    assert len(sim.requests) == 2


def test_base_url_needs_a_running_server() -> None:
    """Before start there is no address, and the error says what to do."""
    with pytest.raises(RuntimeError, match="start"):
        _ = SimServer().base_url


def test_chunk_bytes_must_be_positive() -> None:
    """Pieces of no bytes are refused at once."""
    with pytest.raises(ValueError, match="chunk_bytes"):
        SimServer(chunk_bytes=0)


def test_as_a_process_it_says_that_it_is_a_simulator() -> None:
    """The module prints one line that calls it a simulator and names its address, and serves there."""
    command = [sys.executable, "-m", "goaitools_py.sim", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = line.split()[-1]
            answer = httpx.post(url + "/chat/completions", json=HELLO, trust_env=False, timeout=10.0).json()
        finally:
            process.terminate()

    assert "simulator" in line
    assert answer["choices"][0]["message"]["content"].startswith("[simulated]")
