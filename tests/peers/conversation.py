"""A WebSocket client by somebody else holds the help desk conversation by the protocol alone (OM-505…OM-526)."""

import asyncio
import json
import sys
import uuid

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


async def receive(socket, *, within=20):
    return json.loads(await asyncio.wait_for(socket.recv(), within))


async def turn(socket, content, **extra):
    """Sends one message; gives the streamed pieces and the frame that ends the turn."""
    await socket.send(json.dumps({"type": "message", "content": content, **extra}))
    pieces = []
    while True:
        frame = await receive(socket)
        assert frame["session_id"], frame
        assert frame["timestamp"], frame
        if frame["type"] == "chunk":
            pieces.append(frame["content"])
        else:
            return pieces, frame


async def conversation(base, token):
    url = f"{base}/agents/default/helpdesk/ws"
    headers = {"Authorization": f"Bearer {token}"}
    async with connect(url, additional_headers=headers) as socket:
        hello = await receive(socket)
        assert hello["type"] == "connected", hello
        session = hello["session_id"]
        uuid.UUID(session)

        pieces, end = await turn(socket, "Where is order 1017?")
        assert end["type"] == "done", end
        assert "Harbour Express" in end["content"], end
        assert len(pieces) > 1 and end["content"].endswith("".join(pieces)[-20:]), pieces

        _, end = await turn(socket, "Delete order 1017")
        assert end["type"] == "done", end
        assert "back office" in end["content"], end

        # Nothing that is not JSON, has no known type or lacks its fields ends the connection.
        for broken in ("{", "[]", '{"type": "nonsense"}', '{"type": "message"}'):
            await socket.send(broken)
            frame = await receive(socket)
            assert frame["type"] == "error", frame
            assert frame["error"]["code"] == "INVALID_MESSAGE", frame
        _, end = await turn(socket, "Where is order 1016?")
        assert end["type"] == "done" and "1016" in end["content"], end

    # The session goes on over another connection.
    async with connect(f"{url}?resume={session}", additional_headers=headers) as socket:
        hello = await receive(socket)
        assert hello["session_id"] == session, hello
        assert hello["connected"]["resumed"] is True, hello
        _, end = await turn(socket, "Where is order 1017?")
        assert end["type"] == "done", end

    # An unknown session is reported as expired, and the connection stays.
    async with connect(url, additional_headers=headers) as socket:
        await receive(socket)
        _, end = await turn(socket, "hello", session_id=str(uuid.uuid4()))
        assert end["type"] == "error" and end["error"]["code"] == "SESSION_EXPIRED", end

    # By the query form of the protocol.
    async with connect(f"{base}/ws?agent=helpdesk&namespace=default", additional_headers=headers) as socket:
        assert (await receive(socket))["type"] == "connected"


async def refusals(base, token):
    """What must not be let in."""
    url = f"{base}/agents/default/helpdesk/ws"
    bearer = {"Authorization": f"Bearer {token}"}
    cases = [
        ("a page of another origin", url, {**bearer, "Origin": "https://evil.example"}, {401, 403}),
        ("a page of another origin without a token", url, {"Origin": "https://evil.example"}, {401, 403}),
        ("a name that was rebound", url, {**bearer, "Host": "evil.example"}, {400, 403, 421}),
        ("a wrong token", url, {"Authorization": "Bearer wrong"}, {401}),
        ("an unknown agent", f"{base}/agents/default/nobody/ws", bearer, {404}),
        ("no agent named", f"{base}/ws", bearer, {400}),
    ]
    for what, target, headers, expected in cases:
        try:
            async with connect(target, additional_headers=headers):
                raise AssertionError(f"{what} was let in")
        except InvalidStatus as refused:
            assert refused.response.status_code in expected, f"{what}: {refused.response.status_code}"


async def main():
    endpoints = json.load(open(sys.argv[1]))
    base = endpoints["http"].replace("http", "ws", 1)
    await conversation(base, endpoints["token"])
    await refusals(base, endpoints["token"])


asyncio.run(main())
