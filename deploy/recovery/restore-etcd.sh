#!/usr/bin/env bash
# Replaces the data of a release's bundled etcd by a snapshot. The old data stays under data-before-<time>. Needs kubectl and jq.
# Usage: restore-etcd.sh <namespace> <release> <snapshot>
set -euo pipefail
[ $# -eq 3 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
namespace=$1 name=$2-etcd snapshot=$3
[ -s "$snapshot" ] || { echo "$snapshot: no snapshot" >&2; exit 1; }

kube() { kubectl --namespace "$namespace" "$@"; }

etcd=$(kube get statefulset "$name" -o json)
image=$(kube get deployment "$2-api" -o json | jq -r '.spec.template.spec.containers[0].image')
members=$(jq -r '[.spec.template.spec.containers[0].args[] | select(startswith("--initial-cluster="))][0] | ltrimstr("--initial-cluster=")' <<< "$etcd")
count=$(tr ',' '\n' <<< "$members" | grep -c .)
jq -e '.spec.volumeClaimTemplates' <<< "$etcd" > /dev/null || { echo "$name keeps nothing on volumes (etcd.persistence.enabled is false)" >&2; exit 1; }

# A pod that unpacks the snapshot by etcd's own tool: it comes in by the first container. `kind` is "restore", onto the member's volume, or "check", onto nothing that stays.
pod_of() {
  jq --arg kind "$1" --arg member "$2" --arg image "$image" --arg members "$members" --arg stamp "$(date -u +%Y%m%dT%H%M%SZ)" '
    .spec.template.spec as $spec | $spec.containers[0] as $etcd
    | ($members | split(",") | map(split("=") | {key: .[0], value: .[1]}) | from_entries) as $peers
    | [$etcd.args[] | select(startswith("--initial-cluster-token="))][0] as $token
    | (if $kind == "check" then {emptyDir: {}} else {persistentVolumeClaim: {claimName: ("data-" + $member)}} end) as $volume
    | [{name: "data", mountPath: "/var/lib/etcd"}, {name: "snapshot", mountPath: "/snapshot"}] as $mounts
    | ($etcd | {securityContext, imagePullPolicy, resources, volumeMounts: $mounts}) as $common
    | {
        apiVersion: "v1", kind: "Pod",
        metadata: {name: ($member + "-" + $kind), namespace: .metadata.namespace},
        spec: (($spec | {securityContext, tolerations, nodeSelector, affinity, imagePullSecrets, priorityClassName}
          | with_entries(select(.value != null)) | if $kind == "check" then del(.affinity) else . end) + {
          restartPolicy: "Never", automountServiceAccountToken: false, enableServiceLinks: false,
          volumes: [({name: "data"} + $volume), {name: "snapshot", emptyDir: {}}],
          initContainers: [$common + {name: "receive", image: $image, command: ["node", "--eval", (
            "const timer = setInterval(() => { if (!fs.existsSync(\"/snapshot/whole\")) return; clearInterval(timer);"
            + " if (fs.existsSync(\"/var/lib/etcd/data\")) fs.renameSync(\"/var/lib/etcd/data\", \"/var/lib/etcd/data-before-" + $stamp + "\") }, 200)")]}],
          containers: [$common + {name: "restore", image: $etcd.image, command: ["etcdutl"], args: [
            "snapshot", "restore", "/snapshot/whole", "--data-dir=/var/lib/etcd/data", ("--name=" + $member),
            ("--initial-cluster=" + $members), ("--initial-advertise-peer-urls=" + $peers[$member]), $token]}]
        })
      }' <<< "$etcd"
}

# What is written to standard input, at the end of it.
take='const part = "/snapshot/part"
process.stdin.pipe(fs.createWriteStream(part)).on("finish", () => fs.renameSync(part, "/snapshot/whole"))'

# Runs such a pod to its end. Fails, with what etcdutl said, where the snapshot can't be unpacked.
unpack() {
  local pod=$2-$1 phase='' deadline=$((SECONDS + 600))
  kube delete pod "$pod" --ignore-not-found || return 1
  pod_of "$1" "$2" | kube create -f - || return 1
  kube wait "pod/$pod" --for='jsonpath={.status.initContainerStatuses[0].started}=true' --timeout 5m || return 1
  kube exec -i "$pod" -c receive -- node --eval "$take" < "$snapshot" || return 1
  until [ "$phase" = Succeeded ]; do
    phase=$(kube get pod "$pod" -o jsonpath='{.status.phase}')
    if [ "$phase" = Failed ] || [ "$SECONDS" -gt "$deadline" ]; then
      kube logs "$pod" -c restore >&2 || true
      echo "$pod: the snapshot was not unpacked ($phase)" >&2
      return 1
    fi
    sleep 0.5
  done
  kube delete pod "$pod"
}

unpack check "$name-0" || { kube delete pod "$name-0-check" --ignore-not-found; echo "$snapshot can not be restored; nothing was changed" >&2; exit 1; }
trap '[ $? -eq 0 ] || echo "etcd is stopped, and not all of its members are restored: run this again" >&2' EXIT
kube scale statefulset "$name" --replicas 0
for ((i = 0; i < count; i++)); do
  kube wait --for=delete "pod/$name-$i" --timeout 5m
done
for ((i = 0; i < count; i++)); do
  unpack restore "$name-$i"
done
kube scale statefulset "$name" --replicas "$count"
trap - EXIT
kube rollout status statefulset "$name" --timeout 5m
