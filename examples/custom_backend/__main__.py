"""A whole provider of your own: a dialect, a backend, and the contract that proves them.

Run the folder. A fake of Ollama in this file answers; set OLLAMA_MODEL to ask a real server.
Install: pip install goaitools-py
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ollama_backend import OllamaBackend
from ollama_dialect import OllamaDialect

from goaitools_py import Chat
from goaitools_py.states import inspect_state
from goaitools_py.testing import DialectSamples, SampleError, SampleReply, dialect_contract

CALL = (
    b'{"role":"assistant","content":"","tool_calls":'
    b'[{"function":{"name":"get_score","arguments":{"team": "Red"}}}]}'
)
DONE = b'"done":true,"done_reason":"stop","prompt_eval_count":20,"eval_count":9}'

SAMPLES = DialectSamples(
    replies=(
        SampleReply(
            body=b'{"model":"m","message":{"role":"assistant","content":"Hello, Ada."},' + DONE,
            stream=b'{"message":{"role":"assistant","content":"Hello, "},"done":false}\n'
            b'{"message":{"role":"assistant","content":"Ada."},"done":false}\n'
            b'{"message":{"role":"assistant","content":""},' + DONE + b"\n",
            text="Hello, Ada.",
        ),
        SampleReply(
            body=b'{"model":"m","message":' + CALL + b"," + DONE,
            stream=b'{"message":' + CALL + b',"done":false}\n{"message":{"content":""},' + DONE + b"\n",
            calls=("get_score",),
            kept=(b'{"team": "Red"}',),
        ),
    ),
    errors=(
        SampleError(status=404, body=b'{"error":"model \\"m\\" not found"}', kind="rejected"),
        SampleError(body=b'{"error":"an error was encountered"}', kind="unavailable"),
        SampleError(streamed=True, body=b'{"error":"an error was encountered"}\n', kind="unavailable"),
    ),
)


class FakeOllama(BaseHTTPRequestHandler):
    """Speaks Ollama's API. It is no model: it looks for two words in the request."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = asked["messages"][-1]
        message = {"role": "assistant", "content": f"[fake] {last['content']}"}
        if "score" in last["content"] and last["role"] == "user":
            message = json.loads(CALL)
        elif "my name?" in last["content"]:
            said = " ".join(entry["content"] for entry in asked["messages"][:-1])
            message["content"] = f"[fake] Your name is {'Ada' if 'Ada' in said else 'unknown'}."
        whole = {"message": message, "done": True, "done_reason": "stop"}
        pieces = [{"message": message, "done": False}]
        if "tool_calls" not in message:
            words = message["content"].split(" ")
            pieces = [{"message": {"content": word + " "}, "done": False} for word in words]
        sent = [*pieces, {**whole, "message": {"content": ""}}] if asked["stream"] else [whole]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson" if asked["stream"] else "application/json")
        self.end_headers()
        self.wfile.write("".join(json.dumps(line) + "\n" for line in sent).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing on the terminal."""


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Give a model's name and a server's URL: of a real Ollama if OLLAMA_MODEL is set, else of the fake."""
    if model := os.environ.get("OLLAMA_MODEL"):
        yield model, "http://127.0.0.1:11434"
        return
    print("(simulated: no language model is asked)")
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeOllama) as fake:
        threading.Thread(target=fake.serve_forever, args=(0.01,), daemon=True).start()
        yield "fake", f"http://127.0.0.1:{fake.server_port}"
        fake.shutdown()


def get_score(team: str) -> str:
    """Current score of one team."""
    return f"{team} has 30 points."


def main() -> None:
    """Have two turns with a restart between them, then prove the dialect."""
    with server() as (model, url):
        with Chat(OllamaBackend(model, url), system="You keep the score.", tools=[get_score]) as chat:
            result = chat.chat(user="I am Ada. What is the score of Red?")
            print(result.text)
        saved = result.state  # only this value outlives the process
        print(f"{len(saved)} bytes of the wire {inspect_state(saved).wire!r}")
        again = Chat(OllamaBackend(model, url), system="You keep the score.", tools=[get_score])
        with again as chat, chat.start(saved, user="What is my name?") as turn:
            print(*turn.text_deltas(), sep="|")
    dialect_contract(OllamaDialect(), SAMPLES)
    print("the dialect keeps the contract")


if __name__ == "__main__":
    main()
