import { accessSync, constants } from 'node:fs'
import type { KubeEndpoint } from '../kubernetes/client/kube-endpoint.ts'
import type { Environment } from '../config/environment.ts'
import { SettingError, withSetting } from '../config/setting-error.ts'

/** The folder where Kubernetes puts the credentials of a pod. */
export const accountDirectory = '/var/run/secrets/kubernetes.io/serviceaccount'

/** Returns the API server of the pod in which this process runs, with its service account; undefined outside a pod. */
export function podEndpoint(env: Environment): KubeEndpoint | undefined {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env
  if (host === undefined || port === undefined) return undefined
  return { from: 'service-account', host, port, directory: accountDirectory }
}

/**
 * Returns the API server for the controller, without connecting. Throws SettingError if it is not configured and this is not a pod, or if
 * the kubeconfig cannot be read.
 */
export function controllerEndpoint(kubeconfig: string | undefined, env: Environment): KubeEndpoint {
  const key = 'kubernetes.kubeconfig'
  if (kubeconfig !== undefined) {
    withSetting(key, kubeconfig, () => accessSync(kubeconfig, constants.R_OK))
    return { from: 'kubeconfig', file: kubeconfig, environment: env }
  }
  const endpoint = podEndpoint(env)
  if (endpoint === undefined) throw new SettingError(key, undefined, new Error('expected a file, because this is not a Kubernetes pod'))
  return endpoint
}
