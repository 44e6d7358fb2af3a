/** Annotation of a Secret: until when its credential is valid, as an RFC 3339 time. */
export const expiresAnnotation = 'taproot.dev/expires'

const secretName = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/** Whether a Secret may be called that. */
export function isSecretName(text: string): boolean {
  return secretName.test(text)
}

/** The type and data of a Secret by which pods sign in at one registry host: what `imagePullSecrets` name. */
export interface DockerConfigSecret {
  readonly type: 'kubernetes.io/dockerconfigjson'
  /** In base64, as in every Secret. */
  readonly data: { readonly '.dockerconfigjson': string }
}

/**
 * How a kubelet signs in at a registry (https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/). `host` is as image references
 * name it.
 */
export function dockerConfigSecret(host: string, { username, password }: { username: string; password: string }): DockerConfigSecret {
  const entry = { username, password, auth: base64(`${username}:${password}`) }
  return { type: 'kubernetes.io/dockerconfigjson', data: { '.dockerconfigjson': base64(JSON.stringify({ auths: { [host]: entry } })) } }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
