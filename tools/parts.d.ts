/** A program that tests run against, or the one-line reason why this machine can't provide it. */
export type Part = { readonly path: string; readonly built: boolean } | { readonly reason: string }

/** What tools/parts.js knows. `cni-plugins` is one of them, beside which the others are; `base-image` an OCI archive. */
export type PartName =
  | 'base-image'
  | 'buildah'
  | 'cni-plugins'
  | 'containerd'
  | 'containerd-shim-runc-v2'
  | 'coredns'
  | 'cosign'
  | 'crane'
  | 'ctr'
  | 'debootstrap'
  | 'etcd'
  | 'etcdctl'
  | 'etcdutl'
  | 'gitops-health'
  | 'grpcurl'
  | 'helm'
  | 'history-checker'
  | 'ip'
  | 'kube-apiserver'
  | 'kube-controller-manager'
  | 'kube-proxy'
  | 'kube-scheduler'
  | 'kubectl'
  | 'kubelet'
  | 'nft'
  | 'nsenter'
  | 'oci-conformance'
  | 'oras'
  | 'pause'
  | 'podman'
  | 'regctl'
  | 'registry'
  | 'runc'
  | 'scim2-tester'
  | 'skopeo'

/** Finds the part, or builds, fetches or installs it once (blocking); tools/parts.js says where. Throws TypeError on an unknown name. */
export function ensurePart(name: PartName): Part
