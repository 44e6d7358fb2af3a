import type { Environment } from '../environment.ts'
import type { HttpLoad, SignLoad } from '../load/load.ts'
import { compare } from '../measure.ts'
import { startBareSigner } from '../subjects/bare-server.ts'
import { gets } from './loads.ts'
import { blobRows } from './registry-blobs.ts'
import { moveTimeMs, writeMoves } from './registry-history.ts'
import { against, guardedPulls, pulls } from './registry-loads.ts'
import { registryWorld, type RegistryWorld } from './registry-world.ts'
import { costRow, ratioRow, type Row, type RowGroup, type RowSource } from './row.ts'

const pageSize = 1000

async function measureManifest(environment: Environment): Promise<Row> {
  const world = await registryWorld(environment)
  const comparison = await against(environment, world, await pulls(environment, world, { connections: environment.scale.connections, what: 'manifests/v1' }))
  const title = "GET of a hot manifest by tag, private repo, to the upstream's"
  return ratioRow({ id: 'registry-manifest', title, goal: { atLeast: 1 } }, comparison)
}

async function measurePolicies(environment: Environment): Promise<Row> {
  const world = await registryWorld(environment)
  const loads = await guardedPulls(environment, world)
  return environment.withGenerators(loads, async ([first, second]) => {
    const [pids, processes] = [world.hostPids, ['Taproot', 'etcd', 'distribution']]
    const comparison = await compare(
      { name: 'four policies', generator: first, pids, processes },
      { name: 'no policy', generator: second, pids, processes },
      environment.scale.rounds,
    )
    const title = 'cost of a GET of a manifest that four pull policies allow, to one without policies'
    const row = costRow({ id: 'registry-policies', title, goal: { atMost: 1.05 }, note: 'by processor time' }, comparison)
    return { ...row, value: row.cpu ?? row.value }
  })
}

/** Returns the header and claims of a token that the host issued. */
function shapeOf(token: string): Pick<SignLoad, 'header' | 'claims'> {
  const [header = '', payload = ''] = token.split('.')
  // a cast: the claims of a token are an object
  return { header, claims: JSON.parse(Buffer.from(payload, 'base64url').toString('utf8')) as Record<string, unknown> }
}

/**
 * The scopes that clients request at `/token`. Either all request the same image, as in a rollout, or each requests another one, as in a
 * first push of all images.
 */
const tokenScopes = { alike: 'repository:<path>:pull', each: 'repository:<path>-$N:pull,push' } as const

async function tokenLoad(environment: Environment, world: RegistryWorld, asked: keyof typeof tokenScopes): Promise<HttpLoad> {
  const { baseRecords: records, connections } = environment.scale
  const { port } = await environment.registryHost(records)
  const requests = gets([`/token?service=registry.example&scope=${tokenScopes[asked].replace('<path>', world.path)}`])
  return { kind: 'http', tls: false, port, connections, headers: { authorization: world.basic }, requests }
}

/** Returns a row that compares `/token` with a server that signs one token for each request. */
function signerRow(id: string, asked: keyof typeof tokenScopes, title: string): RowSource {
  return {
    id,
    async measure(environment) {
      const world = await registryWorld(environment)
      const ours = await tokenLoad(environment, world, asked)
      const server = await startBareSigner(shapeOf(await world.registryToken('pull')))
      try {
        return await environment.withGenerators([ours, { ...ours, port: server.port }], async ([first, second]) => {
          const comparison = await compare(
            { name: 'Taproot', generator: first, pids: world.hostPids },
            { name: 'bare node:http', generator: second, pids: [server.pid] },
            environment.scale.rounds,
          )
          return ratioRow({ id, title }, comparison)
        })
      } finally {
        await server.stop()
      }
    },
  }
}

/** Returns a row that compares `/token` with signing alone. */
function loopRow(id: string, asked: keyof typeof tokenScopes, about: Pick<Row, 'title' | 'goal'>): RowSource {
  return {
    id,
    async measure(environment) {
      const world = await registryWorld(environment)
      const loop: SignLoad = { kind: 'sign', ...shapeOf(await world.registryToken('pull')) }
      return environment.withGenerators([await tokenLoad(environment, world, asked), loop], async ([first, second]) => {
        const comparison = await compare(
          { name: 'Taproot', generator: first, pids: world.hostPids },
          { name: 'bare loop', generator: second, pids: [], generatorWorks: true },
          environment.scale.rounds,
        )
        return ratioRow({ id, ...about }, comparison)
      })
    },
  }
}

async function measureHistory(environment: Environment): Promise<Row> {
  const { baseRecords: records, smallRecords, largeRecords, connections, rounds } = environment.scale
  const world = await registryWorld(environment)
  const { etcd } = await environment.stored(records)
  const host = await environment.registryHost(records)
  const authorization = `Bearer ${await world.registryToken('pull')}`
  const loadOf = async (name: string, count: number): Promise<HttpLoad> => {
    await writeMoves(etcd.endpoint, { repo: world.repo, name, count }, (written) => environment.progress(`writing ${count} moves: ${written}`))
    // Requests the oldest page, for which a store might read everything after it, and the newest page.
    const newest = new Date(moveTimeMs(Math.max(0, count - pageSize))).toISOString()
    const path = `/v2/${world.path}/_service/history/${name}`
    const requests = gets([path, `${path}?start=${encodeURIComponent(newest)}`])
    return { kind: 'http', tls: false, port: host.port, connections, headers: { authorization }, requests }
  }
  const loads = [await loadOf('large', largeRecords), await loadOf('small', smallRecords)] as const
  return environment.withGenerators(loads, async ([first, second]) => {
    const pids = [host.pid, etcd.pid]
    const large = { name: `${largeRecords.toLocaleString('en')} moves`, generator: first, pids }
    const comparison = await compare(large, { name: `${smallRecords.toLocaleString('en')} moves`, generator: second, pids }, rounds)
    const title = `history of a tag, pages of 1,000, oldest and newest: cost at ${largeRecords.toLocaleString('en')} to ${smallRecords.toLocaleString('en')} moves`
    return costRow({ id: 'registry-history', title, goal: { atMost: 1.2 } }, comparison)
  })
}

/** The registry host, compared with what clients would use without it. */
export const registryRows: RowGroup = {
  name: 'registry',
  about: 'the registry host against its upstream alone, pull policies against none, /token against bare signing, a long history of a tag against a short one',
  needs: 'registry',
  rows: [
    ...blobRows,
    { id: 'registry-manifest', measure: measureManifest },
    { id: 'registry-policies', measure: measurePolicies },
    loopRow('registry-token-loop', 'alike', {
      title: '/token, all for one image, to a loop that signs the same JWT, without a server',
      goal: { atLeast: 0.7 },
    }),
    loopRow('registry-token-loop-each', 'each', { title: 'for comparison: /token, each for another image, to a loop that signs the same JWT' }),
    signerRow('registry-token', 'alike', 'for comparison: /token, all for one image, to a bare server that signs the same JWT'),
    signerRow('registry-token-each', 'each', 'for comparison: /token, each for another image, to a bare server that signs the same JWT'),
    { id: 'registry-history', measure: measureHistory },
  ],
}
