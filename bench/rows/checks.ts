import type { Profiler } from 'node:inspector'
import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import { gets, listPath, taprootLoad } from './loads.ts'
import type { Row, RowGroup } from './row.ts'

const verifications = 1000
const lanes = 20
const profileMs = 2000

/** Returns true for source files and functions whose processor time, including their callees, counts as checks of roles and role bindings. */
function isCheck({ functionName, url }: Profiler.ProfileNode['callFrame']): boolean {
  return /\/src\/(?:authz\/|resources\/authorize\.ts)/.test(url) || functionName === 'isVisible'
}

/** Returns the share of a profile's busy time that is spent in frames for which `counts` is true, or in their callees. */
function shareOf({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile, counts: (frame: Profiler.ProfileNode['callFrame']) => boolean): number {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const counted = new Set<number>()
  const visit = (id: number, inside: boolean): void => {
    const node = byId.get(id)
    if (node === undefined) return
    const here = inside || counts(node.callFrame)
    if (here) counted.add(id)
    for (const child of node.children ?? []) visit(child, here)
  }
  const [root] = nodes
  if (root !== undefined) visit(root.id, false)
  let busy = 0
  let share = 0
  for (const [at, id] of samples.entries()) {
    const frame = byId.get(id)?.callFrame
    // The start of the profiler itself does not count.
    if (frame === undefined || frame.functionName === '(idle)' || frame.url === 'node:inspector') continue
    const micros = timeDeltas[at] ?? 0
    busy += micros
    if (counted.has(id)) share += micros
  }
  return share / busy
}

async function measureChecks(environment: Environment): Promise<Row> {
  const { baseRecords: records, connections } = environment.scale
  const server = await environment.taproot({ records })
  const { plan } = await environment.stored(records)
  const load = await taprootLoad(server, subjects.member, { connections, requests: gets([listPath({ pageSize: '200', 'uidp.descendantsOf': plan.root })]) })
  return environment.withGenerators([load], async ([generator]) => {
    await generator.round(profileMs / 2)
    const profile = await server.profiled(() => generator.round(profileMs))
    return {
      id: 'checks',
      title: 'share of a list of 200 spent in role and binding checks',
      unit: '%',
      value: 100 * shareOf(profile, isCheck),
      goal: { atMost: 10 },
      measured: [],
      note: 'from a processor profile of the server',
    }
  })
}

async function measureTokens(environment: Environment): Promise<Row> {
  const { baseRecords: records } = environment.scale
  const server = await environment.taproot({ records })
  const { plan } = await environment.stored(records)
  const token = await server.tokenOf(subjects.member)
  const before = await server.metric('taproot_token_signature_checks_total')
  const lane = async (): Promise<void> => {
    for (let sent = 0; sent < verifications / lanes; sent++) await server.call(token, `/iam/v2/identities/${plan.someIdentities[0] ?? ''}`)
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  const value = (await server.metric('taproot_token_signature_checks_total')) - before
  return {
    id: 'tokens',
    title: `signature checks for ${verifications.toLocaleString('en')} requests with one token`,
    unit: '',
    value,
    goal: { atMost: 1 },
    measured: [],
  }
}

/** Cost of authenticating and authorizing requests. */
export const checksRows: RowGroup = {
  name: 'checks',
  about: 'share of role and binding checks in a list of 200, and signature checks per token',
  needs: 'etcd',
  rows: [
    { id: 'checks', measure: measureChecks },
    { id: 'tokens', measure: measureTokens },
  ],
}
