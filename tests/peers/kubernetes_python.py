"""The official Python client: typed and dynamic objects, apply, patches, watches with a break in between, waits, errors."""

import sys
import threading
import time
import uuid

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import portforward

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
apps = client.AppsV1Api()
custom = client.CustomObjectsApi()
namespace = "python-" + uuid.uuid4().hex[:8]
GROUP = "omnia.altairalabs.ai"


def until(what, check, within=30):
    ends = time.monotonic() + within
    while not check():
        assert time.monotonic() < ends, f"{what} did not happen"
        time.sleep(0.05)


def provider(name, model):
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Provider",
        "metadata": {"name": name},
        "spec": {"type": "mock", "model": model},
    }


def typed_objects():
    made = core.create_namespaced_config_map(
        namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"x": "1"}), data={"k": "v"})
    )
    made.data["k"] = "w"
    core.replace_namespaced_config_map("a", namespace, made)
    try:
        # The version that was read is not the newest any more.
        core.replace_namespaced_config_map("a", namespace, made)
        raise AssertionError("a stale version was replaced")
    except ApiException as error:
        assert (error.status, error.reason) == (409, "Conflict"), error
    patched = core.patch_namespaced_config_map("a", namespace, {"data": {"l": "m"}})
    assert patched.data == {"k": "w", "l": "m"}, patched.data
    names = [item.metadata.name for item in core.list_namespaced_config_map(namespace, label_selector="x=1").items]
    assert names == ["a"], names
    try:
        core.read_namespaced_config_map("absent", namespace)
        raise AssertionError("an absent object was read")
    except ApiException as error:
        assert error.status == 404 and '"reason":"NotFound"' in error.body, error


def pages():
    for number in range(7):
        core.create_namespaced_config_map(
            namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"page-{number}", labels={"page": "1"}))
        )
    found, token = [], None
    while True:
        page = core.list_namespaced_config_map(namespace, label_selector="page=1", limit=3, _continue=token)
        found += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert found == [f"page-{number}" for number in range(7)], found


def informer():
    """A list and a watch that is broken off and taken up where it ended: every change is seen once."""
    seen = []
    listed = custom.list_namespaced_custom_object(GROUP, "v1alpha1", namespace, "providers")
    version = listed["metadata"]["resourceVersion"]
    for number in range(3):
        custom.create_namespaced_custom_object(
            GROUP, "v1alpha1", namespace, "providers", provider(f"p{number}", "m")
        )
    for _ in range(2):
        follower = watch.Watch()
        for event in follower.stream(
            custom.list_namespaced_custom_object,
            GROUP,
            "v1alpha1",
            namespace,
            "providers",
            resource_version=version,
            timeout_seconds=20,
        ):
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] == "MODIFIED":
                # The controller's status.
                continue
            seen.append((event["type"], event["object"]["metadata"]["name"]))
            if len(seen) in (3, 6):
                follower.stop()
        if len(seen) == 3:
            for number in range(3):
                custom.delete_namespaced_custom_object(GROUP, "v1alpha1", namespace, "providers", f"p{number}")
    expected = [("ADDED", f"p{number}") for number in range(3)] + [("DELETED", f"p{number}") for number in range(3)]
    assert seen == expected, seen


def workloads():
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "orders", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "orders"}},
            "template": {
                "metadata": {"labels": {"app": "orders"}},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "mainstay",
                            "args": ["demo", "orders"],
                            "ports": [{"name": "http", "containerPort": 8080}],
                        }
                    ]
                },
            },
        },
    }
    ready = threading.Event()

    def follow():
        for event in watch.Watch().stream(apps.list_namespaced_deployment, namespace, timeout_seconds=30):
            if event["object"].status.ready_replicas == 2:
                ready.set()
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    utils.create_from_dict(client.ApiClient(), deployment)
    assert ready.wait(30), "the Deployment has not two ready Pods"
    pods = core.list_namespaced_pod(namespace, label_selector="app=orders").items
    assert len(pods) == 2, pods
    line = "the order service is ready"
    assert line in core.read_namespaced_pod_log(pods[0].metadata.name, namespace)
    forwarded_port(pods[0].metadata.name)
    apps.patch_namespaced_deployment_scale("orders", namespace, {"spec": {"replicas": 0}})
    until("scaling to none", lambda: not core.list_namespaced_pod(namespace, label_selector="app=orders").items)


def forwarded_port(pod):
    """Requests over a forwarded port, the end of the connection, and a port that nothing listens on."""
    forwards = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports="8080,4000")
    socket = forwards.socket(8080)
    socket.setblocking(True)
    socket.settimeout(20)
    for connection in ("keep-alive", "close"):
        socket.sendall(f"GET /orders/1017 HTTP/1.1\r\nHost: orders\r\nConnection: {connection}\r\n\r\n".encode())
        answer = b""
        while b"1017" not in answer.partition(b"\r\n\r\n")[2]:
            piece = socket.recv(65536)
            assert piece, answer
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200"), answer
    until("an error for a port that nothing listens on", lambda: forwards.error(4000))
    assert "it listens on 8080 (http)" in forwards.error(4000), forwards.error(4000)
    assert forwards.error(8080) is None, forwards.error(8080)
    try:
        core.connect_get_namespaced_pod_exec(pod, namespace, command=["ls"])
        raise AssertionError("a command was run in a Pod")
    except ApiException as error:
        assert error.status == 405 and "kubectl port-forward" in error.body, error


def dynamic_apply():
    resources = dynamic.DynamicClient(client.ApiClient())
    bindings = resources.resources.get(api_version="agentkourier.dev/v1alpha1", kind="Binding")
    body = {
        "apiVersion": "agentkourier.dev/v1alpha1",
        "kind": "Binding",
        "metadata": {"name": "support"},
        "spec": {"connectionRef": {"name": "a"}, "backendRef": {"name": "b"}, "chat": {"channel": "C1"}},
    }
    applied = bindings.server_side_apply(body=body, namespace=namespace, field_manager="python")
    assert applied.spec.suspend is False, applied
    body["spec"]["chat"]["channel"] = "general"
    try:
        bindings.server_side_apply(body=body, namespace=namespace, field_manager="python")
        raise AssertionError("a channel that is none was accepted")
    except ApiException as error:
        assert error.status == 422 and "spec.chat.channel" in str(error.body), error


core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
for check in (typed_objects, pages, informer, workloads, dynamic_apply):
    check()
    print("ok", check.__name__)
core.delete_namespace(namespace)


def gone():
    try:
        core.read_namespace(namespace)
        return False
    except ApiException as error:
        return error.status == 404


until("the end of the namespace", gone)
