#!/usr/bin/env bash
# Saves what the bundled etcd of a release holds into a file. Needs kubectl, jq and etcdctl, and the rights to read the release's Secrets and to forward ports to its pods.
# Usage: backup-etcd.sh <namespace> <release> <file>
set -euo pipefail
[ $# -eq 3 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
namespace=$1 name=$2-etcd file=$3

kube() { kubectl --namespace "$namespace" "$@"; }

work=$(mktemp -d)
forward=
trap '[ -z "$forward" ] || kill "$forward" 2>/dev/null || true; rm -rf "$work"' EXIT
secret=$(kube get statefulset "$name" -o json | jq -r '.spec.template.spec.volumes[] | select(.name == "tls").secret.secretName')
for entry in ca.crt tls.crt tls.key; do
  kube get secret "$secret" -o json | jq -r --arg entry "$entry" '.data[$entry]' | base64 -d > "$work/$entry"
done
# A free port of this machine; the certificate is good for localhost.
kubectl --namespace "$namespace" port-forward "pod/$name-0" :2379 > "$work/port" &
forward=$!
until port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$work/port") && [ -n "$port" ]; do
  kill -0 "$forward" || exit 1
  sleep 0.2
done
etcdctl --endpoints "https://localhost:$port" --cacert "$work/ca.crt" --cert "$work/tls.crt" --key "$work/tls.key" snapshot save "$file"
