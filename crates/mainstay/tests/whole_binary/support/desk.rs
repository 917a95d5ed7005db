//! Manifests of an agent `desk` with a scripted model and three tools of the test's own service.

use std::net::SocketAddr;

use super::world::World;

/// What the model says where a test does not say otherwise.
pub(crate) const SCENARIO: &str = r#"
delay: 2ms
turns:
  - match: '^ship (?P<id>\d+)'
    steps:
      - text: "I look at order {{id}} first. "
        calls: [{tool: get_order, arguments: {id: "{{id | number}}"}}]
      - text: "It is {{tool.get_order.status}}. Now it goes. "
        calls: [{tool: ship_order, arguments: {id: "{{id | number}}"}}]
        onError: [{text: "Order {{id}}: {{tool.ship_order}}"}]
      - text: "Order {{id}} is {{tool.ship_order.status}}, have a nice day."
  - match: '^wait for (?P<id>\d+)'
    steps:
      - calls: [{tool: silent_order, arguments: {id: "{{id | number}}"}}]
        onError: [{text: "Order {{id}}: {{tool.silent_order}}"}]
      - text: "There it is."
  - match: '^overload'
    steps: [{fail: {status: 500, message: the engine is on fire}}]
  - match: '^again'
    position: 2
    steps: [{text: "This is your second message."}]
  - default: true
    steps: [{text: "Hello."}]
"#;

/// Writes the manifests into the folder `desk` of `world`; the tools are those of the service at `orders`.
pub(crate) fn write(world: &World, orders: SocketAddr, scenario: &str) {
    let scenario = indented(scenario);
    world.write("desk/desk.yaml", &manifests(orders, &scenario));
}

fn indented(text: &str) -> String {
    text.trim().lines().map(|line| format!("    {line}\n")).collect()
}

fn handler(name: &str, method: &str, path: &str, timeout: &str) -> String {
    let host = "http://orders.default.svc.cluster.local";
    format!(
        "    - name: {name}
      type: http
      httpConfig: {{endpoint: {host}, urlTemplate: '{host}{path}', method: {method}}}
      tool:
        name: {name}_order
        description: Handles an order.
        inputSchema: {{type: object, properties: {{id: {{type: integer}}}}, required: [id]}}
      timeout: {timeout}
"
    )
}

fn manifests(orders: SocketAddr, scenario: &str) -> String {
    let handlers = [
        handler("get", "GET", "/orders/{id}", "30s"),
        handler("ship", "POST", "/orders/{id}/ship", "30s"),
        handler("silent", "POST", "/silent/{id}", "300ms"),
    ]
    .concat();
    format!(
        r#"apiVersion: omnia.altairalabs.ai/v1alpha1
kind: AgentRuntime
metadata: {{name: desk}}
spec:
  promptPackRef: {{name: desk}}
  toolRegistryRef: {{name: desk}}
  providers: [{{name: default, providerRef: {{name: desk}}}}]
  facades: [{{type: websocket}}]
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: PromptPack
metadata: {{name: desk}}
spec:
  packName: desk
  version: 1.0.0
  source: {{type: configmap, configMapRef: {{name: desk-pack}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: desk-pack}}
data:
  pack.json: |
    {{"id": "desk", "name": "Desk", "version": "1.0.0",
     "template_engine": {{"version": "v1", "syntax": "{{{{variable}}}}"}},
     "prompts": {{"default": {{"id": "default", "name": "Desk", "version": "1.0.0", "system_template": "Answer.",
       "tools": ["get_order", "ship_order", "silent_order"]}}}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: desk-scenario}}
data:
  scenario.yaml: |
{scenario}---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: Provider
metadata: {{name: desk, annotations: {{mainstay.dev/scenario: desk-scenario/scenario.yaml}}}}
spec: {{type: mock}}
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolPolicy
metadata: {{name: desk}}
spec:
  selector: {{registry: desk}}
  rules: [{{name: real-orders, deny: {{cel: "body.id < 1", message: there is no such order}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: orders, annotations: {{mainstay.dev/local-address: "{orders}"}}}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolRegistry
metadata: {{name: desk}}
spec:
  handlers:
{handlers}"#
    )
}
