"""A server written with the official Python SDK: 1.x speaks the older era, 2.x both.

mcp_server.py TRANSPORT PORT
"""

import sys

try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

transport, port = sys.argv[1], int(sys.argv[2])
place = {"host": "127.0.0.1", "port": port}
try:
    server = Server("peer", **place)
    place = {}
except TypeError:
    server = Server("peer")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def describe(name: str) -> dict[str, str]:
    """Answers with an object."""
    return {"name": name, "kind": "peer"}


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("this tool fails")


server.run(transport, **place)
