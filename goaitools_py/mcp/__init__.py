"""Provisional. Tools of MCP servers as tools of a chat. Needs the extra ``[mcp]``.

Owns: `MCPTools`. Must never know: a turn, or a provider. Begin with `mcp_tools.py`.
"""

from .connection import MCPConnectionError
from .mcp_tools import MCPTools

__all__ = ["MCPConnectionError", "MCPTools"]
