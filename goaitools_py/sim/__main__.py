"""``python -m goaitools_py.sim [--port N] [--rules HOST] [--vague]``.

Owns: the command's options. Must never know: anything else.
"""

from __future__ import annotations

import argparse

from . import serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="goaitools_py.sim", description="An offline simulator of a model provider."
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--rules", metavar="HOST", help="refuse what this host refuses, such as groq")
    parser.add_argument("--vague", action="store_true", help="refuse without the host's words")
    args = parser.parse_args()
    serve(args.port, rules=args.rules, vague=args.vague)
