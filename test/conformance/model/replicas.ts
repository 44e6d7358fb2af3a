import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { randomBytes } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { JsonObject } from '@bufbuild/protobuf'
import type { Store } from '../../../src/store/store.ts'
import type { Options, Reply } from '../../support/api-clients.ts'
import { freshName, ok, startTestServer, type TestServer, type TestServerOptions } from '../../support/test-server.ts'
import { shareEtcd } from '../../support/parts/etcd.ts'

/** Someone who calls any replica over any transport, in turn. */
export interface Client {
  call(rpc: string, request: JsonObject, options?: Options): Promise<Reply>
  /** Calls the replica of this number over REST. */
  at(replica: number, rpc: string, request: JsonObject, options?: Options): Promise<Reply>
}

/** Servers on one store: two replicas on etcd, the one process that sqlite allows. */
export interface Replicas {
  readonly servers: readonly TestServer[]
  /** The store itself, past all caches. */
  readonly store: Store
  readonly operator: Client
  clientOf(identity: string): Promise<Client>
  stop(): Promise<void>
}

/** Starts the replicas; `stop` leaves nothing behind. */
export async function startReplicas(kind: 'sqlite' | 'etcd', options: Pick<TestServerOptions, 'keepsContent'> = {}): Promise<Replicas> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-replicas-'))
  const keyFile = join(directory, 'encryption.key')
  await writeFile(keyFile, `${randomBytes(32).toString('hex')}\n`)
  const env = { TAPROOT_ENCRYPTION_KEY_FILE: keyFile }
  const etcd = kind === 'etcd' ? await shareEtcd() : undefined
  const servers = [await startTestServer({ ...options, store: kind, env, ...(etcd === undefined ? {} : { etcd }) })]
  if (etcd !== undefined) servers.push(await startTestServer({ ...options, store: kind, env, etcd }))
  const [first] = servers
  if (first === undefined) throw new Error('no server')
  let turn = 0
  const clientFor = async (tokenAt: (server: TestServer) => Promise<string>): Promise<Client> => {
    const tokens = await Promise.all(servers.map(tokenAt))
    const send = (replica: number, transport: 'rest' | 'grpc', what: { rpc: string; request: JsonObject; options?: Options | undefined }): Promise<Reply> => {
      const at = replica % servers.length
      return (servers[at] ?? first)[transport].call(what.rpc, what.request, { ...what.options, token: tokens[at] })
    }
    return {
      call: (rpc, request, options) => {
        turn += 1
        return send(turn, turn % 3 === 0 ? 'grpc' : 'rest', { rpc, request, options })
      },
      at: (replica, rpc, request, options) => send(replica, 'rest', { rpc, request, options }),
    }
  }
  return {
    servers,
    store: first.running.engine.store,
    operator: await clientFor((server) => server.operatorToken()),
    clientOf: (identity) => clientFor((server) => server.tokenFor(identity)),
    async stop() {
      for (const server of servers) await server.stop()
      await rm(directory, { recursive: true, force: true })
    },
  }
}

/** What an identity is created with. */
export function identityFields(name = 'member'): JsonObject {
  return { name, claimMatch: { issuer: 'https://issuer.example', subject: freshName('subject') } }
}

/** Creates through the API and returns the uid. */
export async function make(client: Client, rpc: string, request: JsonObject): Promise<string> {
  return String(ok(await client.call(rpc, request))['uid'])
}

/** All records of a list, over all its pages. */
export async function listAll(client: Client, rpc: string, request: JsonObject): Promise<JsonObject[]> {
  const found: JsonObject[] = []
  let pageToken = ''
  do {
    const body = ok(await client.call(rpc, { ...request, pageSize: 200, ...(pageToken === '' ? {} : { pageToken }) }))
    // Every list answer has one array.
    found.push(...(Object.values(body).find((value) => Array.isArray(value)) as JsonObject[]))
    pageToken = String(body['nextPageToken'] ?? '')
  } while (pageToken !== '')
  return found
}
