// The official JavaScript client: typed and custom objects, an informer with its cache, a watch, errors.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { PassThrough } from "node:stream";
import * as k8s from "@kubernetes/client-node";

const configuration = new k8s.KubeConfig();
configuration.loadFromFile(process.argv[2]);
const core = configuration.makeApiClient(k8s.CoreV1Api);
const custom = configuration.makeApiClient(k8s.CustomObjectsApi);
const namespace = `node-${randomUUID().slice(0, 8)}`;
const kind = { group: "omnia.altairalabs.ai", version: "v1alpha1", plural: "providers", namespace };

const within = (what, seconds, promise) =>
  Promise.race([
    promise,
    new Promise((_, reject) => {
      setTimeout(() => reject(new Error(`${what} did not happen within ${seconds} s`)), seconds * 1000).unref();
    }),
  ]);

await core.createNamespace({ body: { metadata: { name: namespace } } });

// An informer keeps a copy of what is there.
const list = () => core.listNamespacedConfigMap({ namespace });
const informer = k8s.makeInformer(configuration, `/api/v1/namespaces/${namespace}/configmaps`, list);
const seen = [];
const changed = new Map();
for (const event of ["add", "update", "delete"]) {
  informer.on(event, (object) => {
    seen.push(`${event} ${object.metadata.name}`);
    changed.get(`${event} ${object.metadata.name}`)?.();
  });
}
informer.on("error", (error) => {
  // Its end is an error to the informer.
  if (error.name !== "AbortError") throw error;
});
const happens = (what) => within(what, 20, new Promise((resolve) => changed.set(what, resolve)));
await informer.start();

let next = happens("add a");
await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: "a" }, data: { k: "1" } } });
await next;
assert.equal(informer.get("a", namespace).data.k, "1");

next = happens("update a");
const read = await core.readNamespacedConfigMap({ name: "a", namespace });
await core.replaceNamespacedConfigMap({ name: "a", namespace, body: { ...read, data: { k: "2" } } });
await next;
assert.equal(informer.get("a", namespace).data.k, "2");

next = happens("delete a");
await core.deleteNamespacedConfigMap({ name: "a", namespace });
await next;
assert.equal(informer.get("a", namespace), undefined);
await informer.stop();
assert.deepEqual(seen.filter((entry) => entry.endsWith(" a")), ["add a", "update a", "delete a"]);

// Errors are the server's own.
await assert.rejects(core.readNamespacedConfigMap({ name: "absent", namespace }), (error) => {
  assert.equal(error.code, 404);
  assert.match(String(error.body), /configmaps \\?"absent\\?" not found/);
  return true;
});

// A custom resource, and a watch of it up to what its controller makes of it.
const watch = new k8s.Watch(configuration);
const ready = within(
  "a ready Provider",
  20,
  new Promise((resolve, reject) => {
    watch
      .watch(
        `/apis/${kind.group}/${kind.version}/namespaces/${namespace}/${kind.plural}`,
        {},
        (_type, object) => {
          if (object.status?.phase === "Ready") resolve(object);
        },
        (error) => {
          if (error && error.name !== "AbortError") reject(error);
        },
      )
      .then((request) => {
        ready.finally(() => request.abort()).catch(() => {});
      }, reject);
  }),
);
const provider = {
  apiVersion: `${kind.group}/${kind.version}`,
  kind: "Provider",
  metadata: { name: "model" },
  spec: { type: "mock", model: "m" },
};
await custom.createNamespacedCustomObject({ ...kind, body: provider });
assert.equal((await ready).spec.model, "m");
await assert.rejects(
  custom.createNamespacedCustomObject({ ...kind, body: { ...provider, spec: { type: "crystal-ball" } } }),
  (error) => error.code === 422,
);

const objects = k8s.KubernetesObjectApi.makeApiClient(configuration);
const applied = await objects.patch(
  { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "applied", namespace }, data: { k: "v" } },
  undefined,
  undefined,
  "node",
  true,
  k8s.PatchStrategy.ServerSideApply,
);
assert.equal(applied.data.k, "v");

// A port of a Pod, by the channels of a WebSocket.
const orders = await core.listNamespacedPod({ namespace: "default", labelSelector: "app=orders" });
const [input, output] = [new PassThrough(), new PassThrough()];
const answered = new Promise((resolve) => {
  let text = "";
  output.on("data", (piece) => {
    text += piece;
    if (text.includes("Harbour Express")) resolve(text);
  });
});
const forward = new k8s.PortForward(configuration);
await forward.portForward("default", orders.items[0].metadata.name, [8080], output, null, input);
input.write("GET /orders/1017 HTTP/1.1\r\nHost: orders\r\n\r\n");
assert.match(await within("an answer through a forwarded port", 20, answered), /^HTTP\/1.1 200/);

await core.deleteNamespace({ name: namespace });
console.log("ok");
// Keep-alive connections would hold the process.
process.exit(0);
