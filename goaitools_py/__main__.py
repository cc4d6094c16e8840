"""``python -m goaitools_py``: the `goaitools` command without its script.

Owns: the exit. Must never know: a command.
"""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
