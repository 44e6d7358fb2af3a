import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { KubeConfig } from '@kubernetes/client-node'

/**
 * Address of the API server, and the credential to use:
 * - `service-account`: inside a pod. `directory` contains `ca.crt`, and `token`, which is read again because it rotates.
 * - `kubeconfig`: a context of a kubeconfig file; the current one if none is named.
 * - `token`: a URL and a bearer token; `ca` is PEM.
 */
export type KubeEndpoint =
  | { readonly from: 'service-account'; readonly host: string; readonly port: string; readonly directory: string }
  | { readonly from: 'kubeconfig'; readonly file: string; readonly context?: string }
  | { readonly from: 'token'; readonly server: string; readonly ca: string; readonly token: string }

const cluster = 'cluster'
const user = 'user'

const tokenFileProvider = 'taproot-token-file'

type KubeAuthenticator = Parameters<KubeConfig['addAuthenticator']>[0]

/**
 * Reads the token file for every request. The library's own authenticator caches a token for a minute, even if the server no longer
 * accepts it.
 */
function tokenFile(file: string): KubeAuthenticator {
  return {
    isAuthProvider: (user) => user.authProvider?.name === tokenFileProvider,
    applyAuthentication: async (_, options) => {
      options.headers = { ...options.headers, Authorization: `Bearer ${(await readFile(file, 'utf8')).trim()}` }
    },
  }
}

/** Converts an endpoint into the library's configuration. Throws if it cannot be read or names no server. */
export function configOf(endpoint: KubeEndpoint): KubeConfig {
  const config = new KubeConfig()
  switch (endpoint.from) {
    case 'service-account': {
      const { host, port, directory } = endpoint
      const server = `https://${host.includes(':') ? `[${host}]` : host}:${port}`
      const authProvider = { name: tokenFileProvider }
      config.addAuthenticator(tokenFile(join(directory, 'token')))
      config.loadFromClusterAndUser({ name: cluster, server, skipTLSVerify: false, caFile: join(directory, 'ca.crt') }, { name: user, authProvider })
      break
    }
    case 'kubeconfig':
      config.loadFromFile(endpoint.file)
      if (endpoint.context !== undefined) config.setCurrentContext(endpoint.context)
      break
    case 'token': {
      const caData = Buffer.from(endpoint.ca).toString('base64')
      config.loadFromClusterAndUser({ name: cluster, server: endpoint.server, skipTLSVerify: false, caData }, { name: user, token: endpoint.token })
    }
  }
  const named = config.getCurrentCluster()
  if (named === null || config.getCurrentUser() === null) throw new Error('the kubeconfig has no such context, or one without cluster or user')
  if (!named.server.startsWith('https:')) throw new Error('the URL of the API server is not https')
  if (named.proxyUrl !== undefined && !/^https?:/.test(named.proxyUrl)) throw new Error('the proxy of the API server is not an HTTP proxy')
  return config
}
