import { setTimeout as delay } from 'node:timers/promises'
import type { JsonObject } from '@bufbuild/protobuf'
import { ensurePart } from '../../../tools/parts.js'
import { bodyOf } from '../cluster/api-call.ts'
import type { ApiProcess } from '../cluster/api-process.ts'
import type { Member } from '../cluster/member.ts'
import { until } from '../cluster/until.ts'
import { allLocks, type Action, type ActionContext, type Heal } from './action.ts'
import { etcdOf } from './actions-cluster.ts'
import { expectNoRoom } from './probes.ts'

const needs = ['cluster'] as const

/** Forgets etcd's history up to now. */
async function compact(context: ActionContext): Promise<void> {
  const member = await etcdOf(context.installation).anyHealthy()
  const revision = (await member.status())?.revision
  if (revision === undefined) return
  // Another compaction may have come further.
  await member.call('kv/compaction', { revision, physical: true }).catch((error: unknown) => {
    if (!String(error).includes('compacted')) throw error
  })
}

/** Keys outside of Taproot's prefix that take etcd's room away. */
const fillerKey = (index: number): string => Buffer.from(`filler/${index}`).toString('base64')
const fillerRange = { key: Buffer.from('filler/').toString('base64'), range_end: Buffer.from('filler0').toString('base64') }
const fillerBytes = 1 << 20

/** Writes until etcd raises the alarm about space. */
async function fillUp(context: ActionContext): Promise<void> {
  const value = Buffer.alloc(fillerBytes).toString('base64')
  for (let index = 0; ; index += 1) {
    context.signal.throwIfAborted()
    try {
      await (await etcdOf(context.installation).anyHealthy()).call('kv/put', { key: fillerKey(index), value })
    } catch (error) {
      if (String(error).includes('database space exceeded')) return
      // A leader that changes under the load.
      await delay(200)
    }
  }
}

async function alarmsOf(member: Member): Promise<readonly { readonly memberID: string; readonly alarm: string }[]> {
  // The gateway's answer, see etcd's rpc.proto.
  const { alarms = [] } = (await member.call('maintenance/alarm', { action: 'GET' })) as { alarms?: { memberID: string; alarm: string }[] }
  return alarms
}

/** As etcd's manual says: delete, compact, defragment each member, disarm. */
async function makeRoom(context: ActionContext): Promise<void> {
  const etcd = etcdOf(context.installation)
  const attempt = async (): Promise<boolean> => {
    try {
      const member = await etcd.anyHealthy()
      await member.call('kv/deleterange', fillerRange)
      await compact(context)
      for (const each of etcd.members) await each.call('maintenance/defragment', {})
      for (const { memberID, alarm } of await alarmsOf(member)) await member.call('maintenance/alarm', { action: 'DEACTIVATE', memberID, alarm })
      return (await alarmsOf(member)).length === 0
    } catch {
      // Members that are busy answer late.
      return false
    }
  }
  await until(attempt, { withinMs: 60_000, what: 'etcd has room again', signal: context.signal, everyMs: 500 })
}

/** A group whose description tells which side of a backup an answer is from. */
interface Marker {
  readonly uid: string
  readonly name: string
  readonly token: string
}

async function insist(context: ActionContext, attempt: (api: ApiProcess) => Promise<JsonObject | undefined>): Promise<JsonObject> {
  let body: JsonObject | undefined
  const look = async (): Promise<boolean> => {
    for (const api of context.installation.apis) if ((body ??= await attempt(api)) !== undefined) return true
    return false
  }
  await until(look, { withinMs: 30_000, what: 'the API answers', signal: context.signal, everyMs: 200 })
  return body ?? {}
}

async function setMarker(context: ActionContext, { uid, name, token }: Marker, description: string): Promise<void> {
  await insist(context, (api) => bodyOf(api, { rpc: 'UpdateGroup', request: { group: { uid, name, description } }, token }))
}

/**
 * Reads the marker from one process again and again until `ended`. A read that began when no member of the old cluster ran any more must not show what
 * the backup does not have: such an answer can only be from the memory of before.
 */
async function watchMarker(
  context: ActionContext,
  marker: Marker,
  phase: { readonly api: ApiProcess; gone: () => boolean; ended: () => boolean },
): Promise<void> {
  while (!phase.ended()) {
    const afterwards = phase.gone()
    const body = await bodyOf(phase.api, { rpc: 'GetGroup', request: { uid: marker.uid }, token: marker.token })
    if (afterwards && body !== undefined && body['description'] !== 'before') {
      context.violation(`${phase.api.name} showed ${JSON.stringify(body['description'])} after a backup without it was restored`)
    }
    await delay(10)
  }
}

/** Writes what nobody checks, so that calls are under way while the store changes. */
async function makeNoise(api: ApiProcess, { uid, token }: Marker, ended: () => boolean): Promise<void> {
  for (let index = 0; !ended(); index += 1) {
    await bodyOf(api, { rpc: 'CreateGroup', request: { parent: uid, group: { name: `noise ${api.name} ${index}` } }, token })
    await delay(20)
  }
}

async function restoreBackup(context: ActionContext, file: string, marker: Marker): Promise<void> {
  const etcd = etcdOf(context.installation)
  const { apis } = context.installation
  let gone = false
  let ended = false
  const loops = apis.flatMap((api) => [watchMarker(context, marker, { api, gone: () => gone, ended: () => ended }), makeNoise(api, marker, () => ended)])
  try {
    await etcd.restore(file, async () => {
      gone = true
    })
    // Right after it, as clients do that know of nothing.
    await Promise.all(apis.map((api) => api.ready(context.signal)))
    for (const api of apis)
      await until(async () => (await bodyOf(api, { rpc: 'GetGroup', request: { uid: marker.uid }, token: marker.token })) !== undefined, patience(context, api))
  } finally {
    ended = true
    await Promise.all(loops)
  }
}

function patience(context: ActionContext, api: ApiProcess): { withinMs: number; what: string; signal: AbortSignal } {
  return { withinMs: 30_000, what: `${api.name} serves what the backup holds`, signal: context.signal }
}

/** What happens to etcd's history and room. */
export const historyActions = {
  compact: {
    needs,
    locks: ['history'],
    holdMs: [0, 500],
    async apply(context) {
      await compact(context).catch(() => undefined)
      return () => Promise.resolve()
    },
  },
  'compact under a stalled watch': {
    needs,
    locks: ['history', 'links'],
    holdMs: [500, 5_000],
    async apply(context) {
      const { network } = context.installation
      const api = context.random.pick(context.installation.apis)
      const members = etcdOf(context.installation).members.map((member) => member.name)
      for (const member of members) network.set(member, api.name, { state: 'stalled' })
      await context.progress(20)
      await compact(context).catch(() => undefined)
      // The watch has to be made anew, at a revision that is gone.
      for (const member of members) network.setBoth(api.name, member, { state: 'cut' })
      return async () => {
        for (const member of members) network.setBoth(api.name, member, { state: 'open' })
        await api.ready(context.signal)
      }
    },
  },
  defragment: {
    needs,
    locks: ['members'],
    holdMs: [0, 0],
    async apply(context) {
      const member = context.random.pick(etcdOf(context.installation).members)
      await member.call('maintenance/defragment', {})
      return () => member.healthy(context.signal)
    },
  },
  'etcd out of space': {
    needs,
    locks: ['history', 'members', 'room'],
    holdMs: [1_000, 4_000],
    littleRoom: true,
    async apply(context): Promise<Heal> {
      await fillUp(context)
      await expectNoRoom(context)
      return () => makeRoom(context)
    },
  },
  'restore a backup': {
    needs,
    locks: allLocks,
    holdMs: [0, 0],
    missing: () => {
      const part = ensurePart('etcdutl')
      return Promise.resolve('path' in part ? undefined : part.reason)
    },
    async apply(context) {
      const etcd = etcdOf(context.installation)
      const token = await context.installation.token()
      const name = `marker ${context.random.between(0, 1e9)}`
      const { uid } = await insist(context, (api) => bodyOf(api, { rpc: 'CreateGroup', request: { group: { name, description: 'before' } }, token }))
      const marker = { uid: String(uid), name, token }
      const file = await etcd.backup()
      await context.progress(100)
      await setMarker(context, marker, 'after')
      await context.betweenHistories(() => restoreBackup(context, file, marker))
      return () => Promise.resolve()
    },
  },
} as const satisfies Record<string, Action>
