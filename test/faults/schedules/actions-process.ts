import { setTimeout as delay } from 'node:timers/promises'
import { previousVersion } from '../cluster/previous-version.ts'
import { limitFileSize, missingLimit, missingMount } from '../cluster/disk.ts'
import type { ApiProcess } from '../cluster/api-process.ts'
import type { Action, ActionContext } from './action.ts'
import { etcdOf } from './actions-cluster.ts'
import { expectNoRoom } from './probes.ts'
import { until } from '../cluster/until.ts'

const anywhere = ['cluster', 'embedded'] as const
const cluster = ['cluster'] as const
const embedded = ['embedded'] as const

function anyProcess({ installation, random }: ActionContext): ApiProcess {
  return random.pick(installation.apis)
}

/** Suspends one process for a while. */
function pausing(needs: Action['needs'], holdMs: Action['holdMs']): Action {
  return {
    needs,
    locks: ['processes'],
    holdMs,
    async apply(context) {
      const api = anyProcess(context)
      api.pause()
      return async () => {
        api.resume()
        await api.ready(context.signal)
      }
    },
  }
}

/**
 * Distances of clock jumps in milliseconds, in both directions: beyond retries and leases, and beyond a token's life. They cause no early expiration, as a
 * test shows.
 */
export const jumpsMs = [20_000, 10 * 60_000, 2 * 3_600_000]
/** Distances beyond the lifetime of events and idempotency keys. */
const jumpsOfDaysMs = [86_400_000, 3 * 86_400_000]

/** Sets a wall clock wrong for a while. */
function jumping(distancesMs: readonly number[]): Action {
  return {
    needs: anywhere,
    locks: ['clocks'],
    jumps: true,
    holdMs: [500, 5_000],
    async apply(context) {
      const api = anyProcess(context)
      api.jump(context.random.pick([1, -1]) * context.random.pick(distancesMs))
      return () => Promise.resolve(api.jump(0))
    },
  }
}

/** Faults of API processes and of their connections to etcd. */
export const processActions = {
  'kill process': {
    needs: anywhere,
    locks: ['processes'],
    holdMs: [0, 300],
    async apply(context) {
      const api = anyProcess(context)
      await api.kill()
      context.killed('process')
      return () => api.restart(context.signal)
    },
  },
  'kill all processes': {
    needs: anywhere,
    locks: ['processes'],
    holdMs: [0, 300],
    async apply(context) {
      const { apis } = context.installation
      for (const api of apis) {
        await api.kill()
        context.killed('process')
      }
      return async () => {
        await Promise.all(apis.map((api) => api.restart(context.signal)))
      }
    },
  },
  'kill everything': {
    needs: cluster,
    locks: ['members', 'processes'],
    holdMs: [0, 300],
    async apply(context) {
      const { apis } = context.installation
      const { members } = etcdOf(context.installation)
      await Promise.all([...members, ...apis].map((each) => each.kill()))
      for (const _ of members) context.killed('member')
      for (const _ of apis) context.killed('process')
      return async () => {
        for (const member of members) member.start()
        await Promise.all([...members.map((member) => member.healthy(context.signal)), ...apis.map((api) => api.restart(context.signal))])
      }
    },
  },
  'kill process while it starts': {
    needs: anywhere,
    locks: ['processes'],
    holdMs: [0, 0],
    async apply(context) {
      const api = anyProcess(context)
      await api.kill()
      context.killed('process')
      api.start()
      await delay(context.random.between(0, 2_000))
      await api.kill()
      context.killed('process')
      return () => api.restart(context.signal)
    },
  },
  'change version': {
    needs: cluster,
    locks: ['processes'],
    holdMs: [0, 300],
    missing: () => Promise.resolve(previousVersion() === undefined ? 'there is no earlier version: name one with --previous' : undefined),
    async apply(context) {
      const other = previousVersion()
      if (other === undefined) throw new TypeError('this action needs an earlier version')
      const api = anyProcess(context)
      await api.kill()
      context.killed('process')
      api.changeVersion(other)
      return () => api.restart(context.signal)
    },
  },
  'pause process': pausing(anywhere, [500, 5_000]),
  'pause process beyond its lease': pausing(cluster, [11_000, 20_000]),
  'cut process from member': {
    needs: cluster,
    locks: ['links'],
    holdMs: [500, 5_000],
    async apply(context) {
      const { network } = context.installation
      const api = anyProcess(context)
      const member = context.random.pick(etcdOf(context.installation).members).name
      network.setBoth(api.name, member, { state: 'cut' })
      return async () => {
        network.setBoth(api.name, member, { state: 'open' })
        await api.ready(context.signal)
      }
    },
  },
  'stall answers of a member': {
    needs: cluster,
    locks: ['links'],
    holdMs: [500, 12_000],
    async apply(context) {
      const { network } = context.installation
      const api = anyProcess(context)
      const member = context.random.pick(etcdOf(context.installation).members).name
      network.set(member, api.name, { state: 'stalled' })
      return async () => {
        network.set(member, api.name, { state: 'open' })
        await api.ready(context.signal)
      }
    },
  },
  'cut process from etcd': {
    needs: cluster,
    locks: ['links'],
    holdMs: [500, 15_000],
    async apply(context) {
      const { network } = context.installation
      const api = anyProcess(context)
      const state = context.random.pick(['cut', 'stalled'] as const)
      const members = etcdOf(context.installation).members.map((member) => member.name)
      for (const member of members) network.setBoth(api.name, member, { state })
      // A replica without its watch must report not ready; so does one that was killed in between.
      if (context.random.fraction() < 0.3) {
        const answers = async (): Promise<boolean> => !(await api.isReady())
        await until(answers, { withinMs: 30_000, what: `${api.name} without its store says that it is not ready`, signal: context.signal })
      }
      return async () => {
        for (const member of members) network.setBoth(api.name, member, { state: 'open' })
        await api.ready(context.signal)
      }
    },
  },
  'slow process': {
    needs: cluster,
    locks: ['links'],
    holdMs: [2_000, 6_000],
    async apply(context) {
      const { network } = context.installation
      const api = anyProcess(context)
      const slow = { delayMs: context.random.between(50, 500), bytesPerSecond: context.random.pick([Infinity, 200_000]) }
      const members = etcdOf(context.installation).members.map((member) => member.name)
      for (const member of members) network.setBoth(api.name, member, slow)
      return async () => {
        for (const member of members) network.setBoth(api.name, member, { delayMs: 0, bytesPerSecond: Infinity })
        await api.ready(context.signal)
      }
    },
  },
  'clock jump': jumping(jumpsMs),
  'clock jump by days': { ...jumping(jumpsOfDaysMs), expires: true },
  'full disk': {
    needs: embedded,
    locks: ['room'],
    holdMs: [1_000, 4_000],
    littleRoom: true,
    missing: missingMount,
    async apply(context) {
      const { installation, signal } = context
      const { disk } = installation
      if (disk === undefined) throw new TypeError('this action needs a disk')
      await expectNoRoom(context, () => disk.fill())
      return async () => {
        await disk.free()
        await Promise.all(installation.apis.map((api) => api.ready(signal)))
      }
    },
  },
  'file size limit': {
    needs: embedded,
    // The limit belongs to the process, which must not be killed.
    locks: ['room', 'processes'],
    holdMs: [1_000, 4_000],
    missing: missingLimit,
    async apply(context) {
      const { pid } = anyProcess(context)
      if (pid === undefined) throw new Error('no process runs')
      await limitFileSize(pid, context.random.pick([0, 64 * 1024, 1024 * 1024]))
      return () => limitFileSize(pid, undefined)
    },
  },
} as const satisfies Record<string, Action>
