import { setTimeout as delay } from 'node:timers/promises'
import type { Member } from '../cluster/member.ts'
import { until } from '../cluster/until.ts'
import type { Action, ActionContext, Heal } from './action.ts'
import { etcdOf } from './actions-cluster.ts'
import { expectNoRoom } from './probes.ts'

const needs = ['cluster'] as const

/** Compacts etcd's history up to now. Throws if etcd does not. */
async function compact(context: ActionContext): Promise<void> {
  const member = await etcdOf(context.installation).anyHealthy()
  const revision = (await member.status())?.revision
  if (revision === undefined) throw new Error(`etcd member ${member.name} does not answer`)
  // Another compaction may have a later revision.
  await member.call('kv/compaction', { revision, physical: true }).catch((error: unknown) => {
    if (!String(error).includes('compacted')) throw error
  })
}

/** Like `compact`, but returns false if etcd does not. */
async function isCompacted(context: ActionContext): Promise<boolean> {
  try {
    await compact(context)
    return true
  } catch {
    // Another lane stopped the member in between.
    return false
  }
}

/** Keys outside of Taproot's prefix that use up etcd's space. */
const fillerKey = (index: number): string => Buffer.from(`filler/${index}`).toString('base64')
const fillerRange = { key: Buffer.from('filler/').toString('base64'), range_end: Buffer.from('filler0').toString('base64') }
const fillerBytes = 1 << 20

/** Writes until etcd raises its space alarm. */
async function fillUp(context: ActionContext): Promise<void> {
  const value = Buffer.alloc(fillerBytes).toString('base64')
  for (let index = 0; ; index += 1) {
    context.signal.throwIfAborted()
    try {
      await (await etcdOf(context.installation).anyHealthy()).call('kv/put', { key: fillerKey(index), value })
    } catch (error) {
      if (String(error).includes('database space exceeded')) return
      // The leader changes under the load.
      await delay(200)
    }
  }
}

async function alarmsOf(member: Member): Promise<readonly { readonly memberID: string; readonly alarm: string }[]> {
  // The gateway's answer, see etcd's rpc.proto.
  const { alarms = [] } = (await member.call('maintenance/alarm', { action: 'GET' })) as { alarms?: { memberID: string; alarm: string }[] }
  return alarms
}

/** Makes space as in etcd's manual: delete, compact, defragment each member, disarm. */
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
      // A busy member answers late.
      return false
    }
  }
  await until(attempt, { withinMs: 60_000, what: 'etcd has room again', signal: context.signal, everyMs: 500 })
}

/** Faults of etcd's history and space. */
export const historyActions = {
  compact: {
    needs,
    locks: ['history'],
    holdMs: [0, 500],
    async apply(context) {
      return (await isCompacted(context)) ? () => Promise.resolve() : undefined
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
      const heal = async (): Promise<void> => {
        for (const member of members) network.setBoth(api.name, member, { state: 'open' })
        await api.ready(context.signal)
      }
      if (!(await isCompacted(context))) {
        await heal()
        return undefined
      }
      // The watch has to restart at a compacted revision.
      for (const member of members) network.setBoth(api.name, member, { state: 'cut' })
      return heal
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
} as const satisfies Record<string, Action>
