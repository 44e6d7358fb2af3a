/** Name of the annotation of a Kubernetes Secret that holds the expiry time of its credential, in RFC 3339 form. */
export const expiresAnnotation = 'taproot.dev/expires'

const secretName = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/** True if the text is a valid name of a Kubernetes Secret. */
export function isSecretName(text: string): boolean {
  return secretName.test(text)
}

/** Type and data of a Kubernetes Secret with which pods pull images from one registry host. Pods refer to it in `imagePullSecrets`. */
export interface DockerConfigSecret {
  readonly type: 'kubernetes.io/dockerconfigjson'
  /** Base64, as in every Secret. */
  readonly data: { readonly '.dockerconfigjson': string }
}

/**
 * Returns the Secret with which a kubelet signs in to a registry (https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/).
 * `host` is the registry host as in image references.
 */
export function dockerConfigSecret(host: string, { username, password }: { username: string; password: string }): DockerConfigSecret {
  const entry = { username, password, auth: base64(`${username}:${password}`) }
  return { type: 'kubernetes.io/dockerconfigjson', data: { '.dockerconfigjson': base64(JSON.stringify({ auths: { [host]: entry } })) } }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
