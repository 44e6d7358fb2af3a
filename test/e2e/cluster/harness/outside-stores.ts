import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { createAuthority, type TestAuthority } from '../../../support/parts/sign-in/authority.ts'
import { startEtcd } from '../../../support/parts/etcd.ts'
import { mountSecret } from '../../../support/parts/mounted-secret.ts'
import { registryAccount, startRegistry } from '../../../support/parts/registry.ts'
import type { Cluster } from './cluster.ts'
import { release, type Values } from './release.ts'

const names = { etcd: 'etcd.outside.test', registry: 'registry.outside.test' }
const ports = { etcd: 2479, registry: 5443 }
/** Longer than the lifetime of all certificates before the change, so that metrics distinguish them. */
const nextLifeSeconds = 8 * 3_600

/** An etcd and a registry outside the cluster, both with TLS and authentication of clients. */
export interface OutsideStores {
  /** Values of a release that uses them. */
  readonly values: Values
  /** Creates or replaces the Secrets in the values. `both` trusts the certificate authorities before and after the change. */
  putSecrets(trusted: 'first' | 'both' | 'next'): Promise<void>
  /** Replaces the certificates of both servers by those of another authority. */
  replaceCertificates(): Promise<void>
  stop(): Promise<void>
}

/** Returns whether a remaining lifetime in seconds belongs to a client certificate after the change of authority. */
export function isNextLifetime(seconds: number): boolean {
  return seconds > nextLifeSeconds / 2
}

/** Starts both on the machine. Pods reach them by names of `hostAliases`. Only one at a time. */
export async function startOutsideStores(cluster: Cluster): Promise<OutsideStores> {
  const authorities = { first: createAuthority(), next: createAuthority() }
  const both = `${authorities.first.certificate}${authorities.next.certificate}`
  const filesOf = (authority: TestAuthority): Record<string, string> => {
    const { certificate, key } = authority.issue({ name: names.etcd })
    return { 'tls.crt': certificate, 'tls.key': key, 'ca.crt': both }
  }
  const etcdFiles = await mountSecret(filesOf(authorities.first))
  const etcd = await startEtcd({ tls: { certFile: etcdFiles.path('tls.crt'), keyFile: etcdFiles.path('tls.key'), clientCaFile: etcdFiles.path('ca.crt') } })
  // Distribution reads its certificate once, so a proxy terminates TLS.
  const registry = await startRegistry({ auth: 'basic', configuration: { http: { host: `https://${names.registry}:${ports.registry}` } } })
  const relays = createRelays()
  const { certificate, key } = authorities.first.issue({ name: names.registry })
  const registryFront = createTlsServer({ cert: certificate, key }, relays.to(registry.port))
  const etcdFront = createServer(relays.to(etcd.port))
  await relays.listen(etcdFront, ports.etcd, cluster.hostAddress)
  await relays.listen(registryFront, ports.registry, cluster.hostAddress)
  return {
    values: valuesOf(cluster.hostAddress),
    putSecrets: async (trusted) => {
      const issuer = trusted === 'first' ? authorities.first : authorities.next
      const client = issuer.issue({ name: 'taproot', ...(trusted !== 'first' && { lifeSeconds: nextLifeSeconds }) })
      const ca = trusted === 'both' ? both : authorities[trusted].certificate
      const secrets = {
        'etcd-access': { 'ca.crt': ca, 'tls.crt': client.certificate, 'tls.key': client.key },
        'upstream-ca': { 'ca.crt': ca },
        'upstream-password': { password: registryAccount.password },
      }
      const items = Object.entries(secrets).map(([name, stringData]) => ({
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name, namespace: release },
        stringData,
      }))
      await cluster.kubectl(['apply', '--filename', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }))
    },
    replaceCertificates: async () => {
      await etcdFiles.replace(filesOf(authorities.next))
      const own = authorities.next.issue({ name: names.registry })
      registryFront.setSecureContext({ cert: own.certificate, key: own.key })
    },
    stop: async () => {
      relays.close()
      await Promise.all([etcd.stop(), registry.stop(), etcdFiles.remove()])
    },
  }
}

function valuesOf(address: string): Values {
  const aliased = { hostAliases: [{ ip: address, hostnames: Object.values(names) }] }
  const external = { url: `https://${names.registry}:${ports.registry}`, prefix: 'platform', username: registryAccount.username }
  return {
    etcd: { enabled: false, external: { endpoints: [`https://${names.etcd}:${ports.etcd}`], prefix: '/outside', tlsSecret: 'etcd-access' } },
    upstream: { enabled: false, external: { ...external, passwordSecret: 'upstream-password', caSecret: 'upstream-ca' } },
    api: aliased,
    registry: aliased,
    controller: aliased,
  }
}

/** Creates servers that forward bytes to ports of the loopback interface. */
function createRelays() {
  const sockets = new Set<Socket>()
  const servers: Server[] = []
  const keep = (socket: Socket): void => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  }
  return {
    to: (port: number) => (socket: Socket) => {
      const onward = connect(port, '127.0.0.1')
      const ends = [socket, onward]
      for (const end of ends) {
        keep(end)
        end.on('error', () => ends.forEach((each) => each.destroy()))
      }
      socket.pipe(onward).pipe(socket)
    },
    listen: async (server: Server, port: number, address: string): Promise<void> => {
      servers.push(server)
      await once(server.listen(port, address), 'listening')
    },
    close: (): void => {
      for (const server of servers) server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
