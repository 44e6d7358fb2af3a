import { once } from 'node:events'
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Cluster } from './cluster.ts'
import { edgePort } from './servers.ts'

/** A reverse proxy at the edge of a cluster: routes plain HTTP by host name as the Ingresses say. Only one at a time. */
export interface IngressProxy {
  readonly url: string
  stop(): Promise<void>
}

interface Backend {
  readonly host: string
  readonly port: number
}

/** The fields of Ingresses and Services that the proxy uses. */
interface Ingress {
  readonly spec: { readonly rules: readonly { host: string; http: { paths: readonly { path: string; pathType: string; backend: ServiceBackend }[] } }[] }
}
interface ServiceBackend {
  readonly service: { readonly name: string; readonly port: { readonly name: string } }
}
interface Service {
  readonly spec: { readonly clusterIP: string; readonly ports: readonly { name: string; port: number }[] }
}

/** Follows the Ingresses of a namespace in which all requests of a host have one Service. Throws for other rules. */
export async function startIngressProxy(cluster: Cluster, namespace: string): Promise<IngressProxy> {
  const backends = await readBackends(cluster, namespace)
  const server = createServer((asked, answer) => {
    const backend = backends.get(asked.headers.host ?? '')
    if (backend === undefined) answer.writeHead(404).end()
    else forward(backend, asked, answer)
  })
  await once(server.listen(edgePort, cluster.hostAddress), 'listening')
  return {
    url: `http://${cluster.hostAddress}:${edgePort}`,
    stop: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function forward({ host, port }: Backend, asked: IncomingMessage, answer: ServerResponse): void {
  // A client that treats it as a forward proxy sends complete URLs.
  const { pathname, search } = new URL(asked.url ?? '/', 'http://any')
  const sent = request({ host, port, method: asked.method, path: `${pathname}${search}`, headers: asked.headers, agent: false }, (response) => {
    answer.writeHead(response.statusCode ?? 502, response.headers)
    response.pipe(answer)
    response.on('error', () => answer.destroy())
  })
  sent.on('error', () => answer.destroy())
  answer.on('close', () => sent.destroy())
  asked.pipe(sent)
}

async function readBackends(cluster: Cluster, namespace: string): Promise<Map<string, Backend>> {
  const read = async <T>(...what: string[]): Promise<T> =>
    JSON.parse(await cluster.kubectl(['--namespace', namespace, 'get', ...what, '--output', 'json'])) as T // a cast: kinds of known shape
  const { items } = await read<{ items: readonly Ingress[] }>('ingresses')
  const backends = new Map<string, Backend>()
  for (const { host, http } of items.flatMap(({ spec }) => spec.rules)) {
    const [path, ...more] = http.paths
    if (path === undefined || path.path !== '/' || path.pathType !== 'Prefix' || more.length > 0) throw new Error(`not all of ${host} goes to one Service`)
    const { name, port } = path.backend.service
    const { spec } = await read<Service>('service', name)
    const found = spec.ports.find((candidate) => candidate.name === port.name)
    if (found === undefined) throw new Error(`${name} has no port ${port.name}`)
    backends.set(host, { host: spec.clusterIP, port: found.port })
  }
  return backends
}
