#!/usr/bin/env bash
# Puts a snapshot in place of what the bundled etcd of a release holds; what it held stays beside it, under data-before-<time>. Needs kubectl and jq.
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

# The pod that restores one member: the snapshot comes in by the first container, and is unpacked on the member's volume by etcd's own tool.
pod_of() {
  jq --arg pod "$1-restore" --arg member "$1" --arg image "$image" --arg members "$members" --arg stamp "$(date -u +%Y%m%dT%H%M%SZ)" '
    .spec.template.spec as $spec | $spec.containers[0] as $etcd
    | ($members | split(",") | map(split("=") | {key: .[0], value: .[1]}) | from_entries) as $peers
    | [$etcd.args[] | select(startswith("--initial-cluster-token="))][0] as $token
    | [{name: "data", mountPath: "/var/lib/etcd"}, {name: "snapshot", mountPath: "/snapshot"}] as $mounts
    | ($etcd | {securityContext, imagePullPolicy, resources, volumeMounts: $mounts}) as $common
    | {
        apiVersion: "v1", kind: "Pod",
        metadata: {name: $pod, namespace: .metadata.namespace},
        spec: (($spec | {securityContext, tolerations, nodeSelector, affinity, imagePullSecrets, priorityClassName} | with_entries(select(.value != null))) + {
          restartPolicy: "Never", automountServiceAccountToken: false, enableServiceLinks: false,
          volumes: [{name: "data", persistentVolumeClaim: {claimName: ("data-" + $member)}}, {name: "snapshot", emptyDir: {}}],
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

kube scale statefulset "$name" --replicas 0
for ((i = 0; i < count; i++)); do
  kube wait --for=delete "pod/$name-$i" --timeout 5m
done
for ((i = 0; i < count; i++)); do
  pod=$name-$i-restore
  kube delete pod "$pod" --ignore-not-found
  pod_of "$name-$i" | kube create -f -
  kube wait "pod/$pod" --for='jsonpath={.status.initContainerStatuses[0].started}=true' --timeout 5m
  kube exec -i "$pod" -c receive -- node --eval "$take" < "$snapshot"
  kube wait "pod/$pod" --for='jsonpath={.status.phase}=Succeeded' --timeout 10m
  kube delete pod "$pod"
done
kube scale statefulset "$name" --replicas "$count"
kube rollout status statefulset "$name" --timeout 5m
