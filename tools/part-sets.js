/** The real parts that each command needs beside the packages (design: tests run against the real thing). */
export const partSets = {
  test: ['crane', 'etcd', 'etcdutl', 'grpcurl', 'helm', 'history-checker', 'kube-apiserver', 'kube-controller-manager', 'kubectl', 'registry', 'scim2-tester'],
  cluster: [
    ...['base-image', 'buildah', 'cni-plugins', 'containerd', 'containerd-shim-runc-v2', 'coredns', 'crane', 'ctr', 'debootstrap'],
    ...['etcd', 'etcdctl', 'etcdutl', 'helm', 'ip', 'kube-apiserver', 'kube-controller-manager', 'kube-proxy', 'kube-scheduler'],
    ...['kubectl', 'kubelet', 'nft', 'nsenter', 'pause', 'registry', 'runc'],
  ],
  faults: ['etcd', 'etcdutl', 'history-checker', 'ip', 'nft'],
  bench: ['etcd', 'kube-apiserver'],
}
