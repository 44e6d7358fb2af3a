/** A program that tests run against, or the one-line reason why this machine can't provide it. */
export type Part = { readonly path: string; readonly built: boolean } | { readonly reason: string }

/** Finds the part, or builds it once (blocking); tools/parts.js says where. Throws TypeError on an unknown name. */
export function ensurePart(name: 'crane' | 'etcd' | 'etcdutl' | 'grpcurl' | 'history-checker' | 'kube-apiserver' | 'registry'): Part
