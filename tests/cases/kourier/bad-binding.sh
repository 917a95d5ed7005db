#!/usr/bin/env bash
# `kubectl apply` names both faults of a Binding in one answer. KUBECTL is the program, KUBECONFIG leads to the server. With
# FOREIGN set it is not ours: since Kubernetes 1.35 the refused object is not called by its type.
set -euo pipefail
cd "$(dirname "$0")"
kubectl=${KUBECTL:-kubectl}

# kubectl writes a blank behind `is invalid:`.
expected='The Binding "bad" is invalid: 
* spec.chat.channel: Invalid value: "general": spec.chat.channel in body should match '\''^[CG][A-Z0-9]+$'\''
* spec.identity: Invalid value: "object": set userId, tokenSecretRef, or both'

if [[ -n ${FOREIGN:-} ]]; then expected=${expected/'"object": '/}; fi

if printed=$("$kubectl" apply -f bad-binding.yaml 2>&1); then
  echo "error: it was accepted: $printed" >&2
  exit 1
fi
if [[ $printed != "$expected" ]]; then
  echo "error: not what was expected:" >&2
  diff <(echo "$expected") <(echo "$printed") >&2 || true
  exit 1
fi
echo "$printed"
