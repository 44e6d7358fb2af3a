import type { Action, ActionContext, Heal } from './action.ts'
import { etcdOf } from './actions-cluster.ts'

const needs = ['cluster'] as const
/** Durations below and above every time limit that detects silence, in milliseconds. */
const holdMs = [3_000, 16_000] as const

function memberNames({ installation }: ActionContext): string[] {
  return etcdOf(installation).members.map((member) => member.name)
}

/** Drops packets between a node and the others, in both directions or one. Healing waits until `isWell` resolves. */
function drop({ installation, random }: ActionContext, { node, others, isWell }: { node: string; others: readonly string[]; isWell: Heal }): Heal {
  const { network } = installation
  const ways = random.pick(['both', 'forth', 'back'] as const)
  const set = (state: 'dropping' | 'open'): void => {
    for (const other of others) {
      if (ways !== 'back') network.set(node, other, { state })
      if (ways !== 'forth') network.set(other, node, { state })
    }
  }
  set('dropping')
  return async () => {
    set('open')
    await isWell()
  }
}

/** Faults in which nothing arrives on open connections, as after lost packets. */
export const dropActions = {
  'drop between process and member': {
    needs,
    locks: ['links'],
    holdMs,
    apply(context) {
      const api = context.random.pick(context.installation.apis)
      const others = [context.random.pick(memberNames(context))]
      return Promise.resolve(drop(context, { node: api.name, others, isWell: () => api.ready(context.signal) }))
    },
  },
  'drop between process and etcd': {
    needs,
    locks: ['links'],
    holdMs,
    apply(context) {
      const api = context.random.pick(context.installation.apis)
      return Promise.resolve(drop(context, { node: api.name, others: memberNames(context), isWell: () => api.ready(context.signal) }))
    },
  },
  'drop between processes and etcd': {
    needs,
    locks: ['links'],
    holdMs,
    apply(context) {
      const { apis } = context.installation
      const heals = apis.map((api) => drop(context, { node: api.name, others: memberNames(context), isWell: () => api.ready(context.signal) }))
      return Promise.resolve(async () => void (await Promise.all(heals.map((heal) => heal()))))
    },
  },
  'drop between members': {
    needs,
    locks: ['members'],
    holdMs,
    apply(context) {
      const member = context.random.pick(etcdOf(context.installation).members)
      const others = [context.random.pick(memberNames(context).filter((name) => name !== member.name))]
      return Promise.resolve(drop(context, { node: member.name, others, isWell: () => member.healthy(context.signal) }))
    },
  },
  'drop around leader': {
    needs,
    locks: ['members'],
    holdMs,
    async apply(context) {
      const leader = await etcdOf(context.installation).leader()
      const others = memberNames(context).filter((name) => name !== leader.name)
      return drop(context, { node: leader.name, others, isWell: () => leader.healthy(context.signal) })
    },
  },
} as const satisfies Record<string, Action>
