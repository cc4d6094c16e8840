"""A process that is killed while it saves parts leaves the head and its parts of one save."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from goaitools_py.cli import main
from goaitools_py.stores import SQLiteStore

ROOT = Path(__file__).resolve().parents[2]

WRITER = """
import hashlib, random, sys
from goaitools_py.stores import SQLiteStore, StoredPart

rng = random.Random(int(sys.argv[2]))
with SQLiteStore(sys.argv[1], busy_timeout=60.0) as store:
    while True:
        found = store.load_head("ada")
        names = [found.blob[at : at + 32] for at in range(0, len(found.blob), 32)]
        gone = [name for name in names if rng.random() < 0.5]
        new = [rng.randbytes(20_000) for _ in range(3)]
        parts = [StoredPart(name=hashlib.sha256(one).digest(), kind=64, data=one) for one in new]
        head = b"".join([name for name in names if name not in gone] + [part.name for part in parts])
        store.save_parts("ada", head, parts, gone, expected=found.version)
        print("saved", flush=True)
"""


@pytest.mark.parametrize("saves", [1, 2, 3, 5, 8])
def test_a_killed_writer_leaves_no_orphan_and_no_hole(tmp_path: Path, saves: int) -> None:
    """Killed at whatever instant follows its n-th save: the head names exactly the parts that are there."""
    path = tmp_path / "states.db"
    assert main(["store", "init", f"sqlite:///{path}"]) == 0
    with SQLiteStore(path) as store:
        store.save_parts("ada", b"", (), (), expected=None)

    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(saves)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(saves):
            assert writer.stdout.readline() == "saved\n"
        writer.kill()

    with SQLiteStore(path) as store:
        found = store.load_head("ada")
    assert found is not None
    named = {found.blob[at : at + 32] for at in range(0, len(found.blob), 32)}
    assert named
    assert {part.name for part in found.parts} == named
