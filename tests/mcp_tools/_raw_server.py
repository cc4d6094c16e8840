"""An MCP server over its standard streams that writes bytes which the package `mcp` would not write.

``python _raw_server.py DEPTH RESULT``: the schema of the tool `deep` has DEPTH objects in each other. A
call of the tool `good` answers with the structured result RESULT, as it is.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def schema(depth: int) -> dict[str, Any]:
    """The schema of an object in an object, and so on."""
    found: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}}
    return found


def answer(request: dict[str, Any]) -> str:
    """The result of a request, as JSON."""
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            server = {"name": "raw", "version": "1"}
            return json.dumps(
                {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            )
        case "tools/list":
            deep = {"name": "deep", "inputSchema": schema(int(sys.argv[1]))}
            return json.dumps({"tools": [deep, {"name": "good", "inputSchema": {"type": "object"}}]})
        case "tools/call":
            return '{"content":[],"structuredContent":' + sys.argv[2] + "}"
    return ""


def main() -> None:
    """Answer each line."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        found = answer(request)
        rest = f'"result":{found}' if found else '"error":{"code":-32601,"message":"no"}'
        print(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},{rest}}}', flush=True)


if __name__ == "__main__":
    main()
