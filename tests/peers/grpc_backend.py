"""Orders by the Tool protocol, with the official grpcio, over mutual TLS.

Writes the manifests of an agent that calls it into the folder given, prints its address, and serves until it is ended. It
answers only a caller that shows its certificate, its bearer token, the context of its call, and a delegation token that the keys of
the server described by the given endpoints.json verify; the first call of all is refused with
UNAVAILABLE, so that an answer proves a retry too.
"""

import concurrent.futures
import json
import pathlib
import sys

import grpc
import jwt
import trustme

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "api/proto"))
messages, services = grpc.protos_and_services("tools/v1/tools.proto")

ORDER = {"id": 1017, "status": "shipped", "customer": "Linus", "carrier": "Harbour Express", "expected": "Friday"}
TOKEN = "token-of-the-order-service"
AUDIENCE = "default/helpdesk-python/get-order"
refused_once = False


class Orders(services.ToolServiceServicer):
    def Execute(self, request, context):
        global refused_once
        metadata = dict(context.invocation_metadata())
        if metadata.get("authorization") != f"Bearer {TOKEN}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
        if metadata.get("x-omnia-tool-name") != request.tool_name or "traceparent" not in metadata:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no context in {sorted(metadata)}")
        key = keys.get_signing_key_from_jwt(metadata["x-omnia-delegation"]).key
        claims = jwt.decode(
            metadata["x-omnia-delegation"], key, algorithms=["ES256"], audience=AUDIENCE, issuer=front_door
        )
        if claims["sub"] != "agent:default/helpdesk-python" or claims["omnia.agent"] != "helpdesk-python":
            context.abort(grpc.StatusCode.PERMISSION_DENIED, f"on behalf of {claims['sub']}")
        if context.time_remaining() is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no deadline")
        if not refused_once:
            refused_once = True
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again")
        arguments = json.loads(request.arguments_json)
        if request.tool_name != "get_order" or arguments != {"id": ORDER["id"]}:
            return messages.ToolResponse(is_error=True, error_message="there is no such order")
        return messages.ToolResponse(result_json=json.dumps(ORDER))


def manifests(address, authority, client):
    name = {"name": "helpdesk-python", "namespace": "default"}
    group = "omnia.altairalabs.ai/v1alpha1"
    secret = {
        "ca.pem": authority.cert_pem.bytes().decode(),
        "client.pem": b"".join(blob.bytes() for blob in client.cert_chain_pems).decode(),
        "client.key": client.private_key_pem.bytes().decode(),
        "token": TOKEN,
    }
    handler = {
        "name": "get-order",
        "type": "grpc",
        "grpcConfig": {
            "endpoint": address,
            "tls": True,
            "tlsCAPath": "/etc/orders/ca.pem",
            "tlsCertPath": "/etc/orders/client.pem",
            "tlsKeyPath": "/etc/orders/client.key",
            "retryPolicy": {"maxAttempts": 2},
        },
        "delegation": {"enabled": True},
        "auth": {"type": "bearer", "secretRef": {"name": name["name"], "key": "token"}},
        "tool": {
            "name": "get_order",
            "description": "Reads one order by its number.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        },
        "timeout": "10s",
    }
    agent = {
        "promptPackRef": {"name": "helpdesk"},
        "toolRegistryRef": {"name": name["name"]},
        "providers": [{"name": "default", "providerRef": {"name": "helpdesk-model"}}],
        "facades": [{"type": "websocket"}],
        "runtime": {
            "volumes": [{"name": "orders", "secret": {"secretName": name["name"]}}],
            "volumeMounts": [{"name": "orders", "mountPath": "/etc/orders"}],
        },
    }
    policy = {"selector": {"registry": name["name"]}, "rules": [{"name": "reading", "permit": {"cel": "has(body.id)"}}]}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": name, "stringData": secret},
        {"apiVersion": group, "kind": "ToolRegistry", "metadata": name, "spec": {"handlers": [handler]}},
        {"apiVersion": group, "kind": "ToolPolicy", "metadata": name, "spec": policy},
        {"apiVersion": group, "kind": "AgentRuntime", "metadata": name, "spec": agent},
    ]


front_door = json.loads(pathlib.Path(sys.argv[2]).read_text())["http"]
keys = jwt.PyJWKClient(f"{front_door}/.well-known/jwks.json")
authority = trustme.CA()
certificate = authority.issue_cert("127.0.0.1")
credentials = grpc.ssl_server_credentials(
    [(certificate.private_key_pem.bytes(), b"".join(blob.bytes() for blob in certificate.cert_chain_pems))],
    root_certificates=authority.cert_pem.bytes(),
    require_client_auth=True,
)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4))
services.add_ToolServiceServicer_to_server(Orders(), server)
port = server.add_secure_port("127.0.0.1:0", credentials)
server.start()
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True)
written = manifests(f"127.0.0.1:{port}", authority, authority.issue_cert("agent"))
(folder / "manifests.yaml").write_text("\n---\n".join(json.dumps(manifest) for manifest in written))
print(f"orders at 127.0.0.1:{port}", flush=True)
server.wait_for_termination()
