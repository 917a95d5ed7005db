#!/usr/bin/env bash
# What becomes of a field that the schema of a Binding does not have, client by client. KUBECONFIG leads to the server; KUBECTL
# and HELM4 are the programs. Each row is printed as it was found, and the first that differs ends the script with 1. Without
# Helm 4 its row is not tried: the script says so, and ends with 0 only if ALLOW_MISSING_HELM is set.
set -euo pipefail
cd "$(dirname "$0")"
kubectl=${KUBECTL:-kubectl}
helm=${HELM4:-helm4}
namespace=unknown-fields-$$
chart=../../charts/kourier-config
here=(-n "$namespace")

"$kubectl" create namespace "$namespace" >/dev/null
trap '"$kubectl" delete namespace "$namespace" --wait=false >/dev/null' EXIT

fail() { # text, output
  printf 'error: %s\n%s\n' "$1" "$2" >&2
  exit 1
}

row() { # client, result
  printf '%-46s %s\n' "$1" "$2"
}

stored() {
  "$kubectl" "${here[@]}" get akbinding "$1" -o name >/dev/null 2>&1
}

refused() { # text, command…
  local text=$1 output
  shift
  if output=$("$@" 2>&1); then fail "$* was not refused" "$output"; fi
  [[ $output == *"$text"* ]] || fail "$* was refused, but not with: $text" "$output"
  if stored unknown-field; then fail "$* stored the object" "$output"; fi
}

accepted() { # the text it must print beside its result, or nothing; command…
  local text=$1 output
  shift
  output=$("$@" 2>&1) || fail "$* was refused" "$output"
  if [[ -n $text ]]; then
    [[ $output == *"$text"* ]] || fail "$* does not print: $text" "$output"
  elif [[ $output != "binding.agentkourier.dev/unknown-field created" ]]; then
    fail "$* prints more than its result" "$output"
  fi
  output=$("$kubectl" "${here[@]}" get akbinding unknown-field -o 'jsonpath={.spec.chat}')
  [[ $output == '{"channel":"C0123ABCD"}' ]] || fail "$* stored" "$output"
  "$kubectl" "${here[@]}" delete akbinding unknown-field >/dev/null
}

strict='strict decoding error: unknown field "spec.chat.bogusField"'
refused "$strict" "$kubectl" "${here[@]}" apply -f unknown-field.yaml
refused "$strict" "$kubectl" "${here[@]}" create -f unknown-field.yaml
row "kubectl apply, kubectl create" "Refused: $strict"

undeclared='.spec.chat.bogusField: field not declared in schema'
refused "$undeclared" "$kubectl" "${here[@]}" apply --server-side -f unknown-field.yaml
row "kubectl apply --server-side" "Refused: $undeclared"

warning='Warning: unknown field "spec.chat.bogusField"'
accepted "$warning" "$kubectl" "${here[@]}" apply --validate=warn -f unknown-field.yaml
row "kubectl apply --validate=warn" "Stored without the field, with $warning"

accepted "" "$kubectl" "${here[@]}" apply --validate=false -f unknown-field.yaml
row "kubectl apply --validate=false" "Stored without the field, and no message"

if ! command -v "$helm" >/dev/null; then
  echo "SKIPPED: Helm 4 ($helm) not found: its row was not tried (\`make reference-tools\` builds it)" >&2
  [[ -n ${ALLOW_MISSING_HELM:-} ]] || exit 1
  exit 0
fi
"$helm" "${here[@]}" install kourier $chart --set config.source=files >/dev/null
undeclared='field not declared in schema'
refused "$undeclared" "$helm" "${here[@]}" upgrade kourier $chart --set config.source=crds --values helm-values.yaml
status=$("$helm" "${here[@]}" status kourier -o json | sed -n 's/.*"status":"\([a-z-]*\)".*/\1/p')
[[ $status == failed ]] || fail "the release is not failed" "$status"
source=$("$kubectl" "${here[@]}" get deployment kourier -o 'jsonpath={.spec.template.spec.containers[0].env[0].value}')
[[ $source == crds ]] || fail "the Deployment was not applied ahead of the Binding" "$source"
row "helm upgrade, with the field in a config.* value" "Refused: $undeclared, and the release goes to failed"
