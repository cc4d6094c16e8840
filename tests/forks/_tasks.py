"""The same application as a task of Celery, over a broker in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery

from . import _service

FOLDER = Path(os.environ["GOAITOOLS_TEST_FOLDER"])
for part in ("queue", "control", "results"):
    (FOLDER / part).mkdir(exist_ok=True)

app = Celery(
    "tests.forks._tasks", broker="filesystem://", backend=f"file://{FOLDER / 'results'}", set_as_current=False
)
app.conf.broker_transport_options = {
    "data_folder_in": str(FOLDER / "queue"),
    "data_folder_out": str(FOLDER / "queue"),
    "control_folder": str(FOLDER / "control"),
}
app.conf.worker_prefetch_multiplier = 1


@app.task(name="say")  # type: ignore[untyped-decorator]
def say(key: str, text: str) -> dict[str, Any]:
    """One turn."""
    return _service.say(key, text)


if __name__ == "__main__":
    import sys

    keys, turns = map(int, sys.argv[1:])
    asked = [(f"user-{n % keys}", f"text-{n}") for n in range(keys * turns)]
    sent = [(text, say.delay(key, text)) for key, text in asked]
    pids = set()
    for text, answer in sent:
        found = answer.get(timeout=60, interval=0.05)
        assert found["reply"] == f"[simulated] {text}", (found, text)
        assert found["pid"] != found["parent"]
        pids.add(found["pid"])
    assert len(pids) > 1, "one process did all the work"
