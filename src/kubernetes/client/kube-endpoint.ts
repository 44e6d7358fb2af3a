import { join } from 'node:path'
import { readKubeconfig, type ExecVariables, type KubeAccess } from './kubeconfig.ts'

/**
 * Address of the API server, and the credential to use:
 * - `service-account`: inside a pod. `directory` contains `ca.crt`, and `token`, which is read again because it rotates.
 * - `kubeconfig`: a context of a kubeconfig file; the current one if none is named. Exec plugins get the variables of `environment`.
 * - `token`: a URL and a bearer token; `ca` is PEM.
 */
export type KubeEndpoint =
  | { readonly from: 'service-account'; readonly host: string; readonly port: string; readonly directory: string }
  | { readonly from: 'kubeconfig'; readonly file: string; readonly context?: string; readonly environment: ExecVariables }
  | { readonly from: 'token'; readonly server: string; readonly ca: string; readonly token: string }

/** Returns the API server of an endpoint, and the credentials. Throws if they cannot be read, or the URL or proxy is not one that works. */
export function accessOf(endpoint: KubeEndpoint): KubeAccess {
  const access = read(endpoint)
  const { server, proxyUrl } = access.cluster
  if (URL.parse(server)?.protocol !== 'https:') throw new Error('the URL of the API server is not https')
  if (proxyUrl !== undefined && !/^https?:/i.test(proxyUrl)) throw new Error('the proxy of the API server is not an HTTP proxy')
  return access
}

function read(endpoint: KubeEndpoint): KubeAccess {
  switch (endpoint.from) {
    case 'service-account': {
      const { host, port, directory } = endpoint
      const server = `https://${host.includes(':') ? `[${host}]` : host}:${port}`
      return { cluster: { server, ca: { file: join(directory, 'ca.crt') }, skipTlsVerify: false }, user: { token: { file: join(directory, 'token') } } }
    }
    case 'kubeconfig':
      return readKubeconfig(endpoint)
    case 'token': {
      const server = endpoint.server.replace(/\/+$/, '')
      return {
        cluster: { server, ca: endpoint.ca === '' ? undefined : { text: endpoint.ca }, skipTlsVerify: false },
        user: { token: { text: endpoint.token } },
      }
    }
  }
}
