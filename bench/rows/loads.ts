import type { HttpLoad, HttpRequest } from '../load/load.ts'
import type { BareServer } from '../subjects/bare-server.ts'
import type { Kube } from '../subjects/kube.ts'
import type { Taproot } from '../subjects/taproot.ts'

/** Returns the path of a page of identities with filter, order and total count. */
export function listPath(parameters: Readonly<Record<string, string>> = {}): string {
  return `/iam/v2/identities?${String(new URLSearchParams({ relationshipType: 'RELATIONSHIP_TYPE_CLAIM_MATCH', orderBy: 'name', pageSize: '50', ...parameters }))}`
}

/** Returns GET requests for these paths. */
export function gets(paths: readonly string[]): HttpRequest[] {
  return paths.map((path) => ({ method: 'GET', path }))
}

/** Returns a load of requests to Taproot, sent as `subject`. */
export async function taprootLoad(server: Taproot, subject: string, load: Pick<HttpLoad, 'connections' | 'requests'>): Promise<HttpLoad> {
  return { kind: 'http', port: server.port, tls: server.tls, headers: { authorization: `Bearer ${await server.tokenOf(subject)}` }, ...load }
}

/** Returns a load with the same requests, including headers, to a bare server. */
export function bareLoad(server: BareServer, load: HttpLoad): HttpLoad {
  return { ...load, port: server.port, tls: false }
}

/** Returns a load of requests to kube-apiserver. */
export function kubeLoad({ server }: Kube, load: Pick<HttpLoad, 'connections' | 'requests'>): HttpLoad {
  return { kind: 'http', port: server.port, tls: true, headers: { authorization: `Bearer ${server.token}`, accept: 'application/json' }, ...load }
}
