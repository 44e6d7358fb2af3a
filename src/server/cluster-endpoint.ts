import { accessSync, constants } from 'node:fs'
import type { KubeEndpoint } from '../kubernetes/client/kube-endpoint.ts'
import type { Environment } from '../config/environment.ts'
import { SettingError, withSetting } from '../config/setting-error.ts'

/** Where Kubernetes puts a pod's credentials. */
export const accountDirectory = '/var/run/secrets/kubernetes.io/serviceaccount'

/** The API server of the pod that this process is in, as its service account; undefined where this is no pod. */
export function podEndpoint(env: Environment): KubeEndpoint | undefined {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env
  if (host === undefined || port === undefined) return undefined
  return { from: 'service-account', host, port, directory: accountDirectory }
}

/** Where the controller's API server is. Throws SettingError where that is not said, or the kubeconfig can not be read; no connection is made. */
export function controllerEndpoint(kubeconfig: string | undefined, env: Environment): KubeEndpoint {
  const key = 'kubernetes.kubeconfig'
  if (kubeconfig !== undefined) {
    withSetting(key, kubeconfig, () => accessSync(kubeconfig, constants.R_OK))
    return { from: 'kubeconfig', file: kubeconfig }
  }
  const endpoint = podEndpoint(env)
  if (endpoint === undefined) throw new SettingError(key, undefined, new Error('expected a file, because this is not a Kubernetes pod'))
  return endpoint
}
