import type { EtcdCluster } from '../cluster/etcd-cluster.ts'
import type { Installation } from '../cluster/installation.ts'
import type { Member } from '../cluster/member.ts'
import { isProposal } from '../cluster/raft-messages.ts'
import { until } from '../cluster/until.ts'
import type { Action, ActionContext, Heal } from './action.ts'

const needs = ['cluster'] as const

/** Returns the etcd cluster of an installation. */
export function etcdOf({ etcd }: Installation): EtcdCluster {
  if (etcd === undefined) throw new TypeError('this action needs etcd members')
  return etcd
}

function anyMember({ installation, random }: ActionContext): Member {
  return random.pick(etcdOf(installation).members)
}

function othersOf({ installation }: ActionContext, member: Member): string[] {
  return etcdOf(installation)
    .members.filter((other) => other !== member)
    .map((other) => other.name)
}

/** Returns the leader, and the members that forward proposals to it. */
async function followersOf({ installation }: ActionContext): Promise<{ members: Member[]; leader: Member }> {
  const etcd = etcdOf(installation)
  const leader = await etcd.leader()
  return { leader, members: etcd.members.filter((member) => member !== leader) }
}

async function restartMember(member: Member, signal: AbortSignal): Promise<void> {
  member.start()
  await member.healthy(signal)
}

async function pauseMember(member: Member, signal: AbortSignal): Promise<Heal> {
  member.pause()
  return async () => {
    member.resume()
    await member.healthy(signal)
  }
}

/** Cuts a member off from its peers. The API processes still reach it. */
function isolate(context: ActionContext, member: Member): Heal {
  const { network } = context.installation
  const others = othersOf(context, member)
  for (const other of others) network.setBoth(member.name, other, { state: 'cut' })
  return async () => {
    for (const other of others) network.setBoth(member.name, other, { state: 'open' })
    await member.healthy(context.signal)
  }
}

/** Moves etcd's leader. Returns false if it did not move: the leader changed before, or the target is behind. */
async function hasMoved(leader: Member, target: Member): Promise<boolean> {
  const status = await target.status()
  if (status === undefined) return false
  try {
    await leader.call('maintenance/transfer-leadership', { targetID: status.memberId })
    return true
  } catch {
    // Only the text of the error distinguishes the two.
    return false
  }
}

/** Maximum wait for a proposal that can be held, in milliseconds. */
const proposalMs = 2_000

/** Returns true once a proposal of a member is held. Returns false if none arrived in time: the processes may all use the leader. */
async function holdsOne({ installation, signal }: ActionContext, members: readonly Member[], leader: Member): Promise<boolean> {
  const isHolding = (): boolean => members.some(({ name }) => installation.network.isHolding(name, leader.name))
  const what = 'a follower has a proposal'
  return until(isHolding, { withinMs: proposalMs, what, signal }).then(
    () => true,
    () => false,
  )
}

/** Faults of etcd members and of the network between them. A majority remains unless the name says otherwise. */
export const memberActions = {
  'kill member': {
    needs,
    locks: ['members'],
    holdMs: [0, 500],
    async apply(context) {
      const member = anyMember(context)
      await member.kill()
      context.killed('member')
      return () => restartMember(member, context.signal)
    },
  },
  'kill leader': {
    needs,
    locks: ['members'],
    holdMs: [0, 500],
    async apply(context) {
      const member = await etcdOf(context.installation).leader()
      await member.kill()
      context.killed('leader')
      return () => restartMember(member, context.signal)
    },
  },
  'kill majority': {
    needs,
    locks: ['members'],
    holdMs: [500, 3_000],
    async apply(context) {
      const { members } = etcdOf(context.installation)
      const spared = context.random.pick(members)
      const dying = members.filter((member) => member !== spared)
      for (const member of dying) {
        await member.kill()
        context.killed('member')
      }
      return async () => {
        await Promise.all(dying.map((member) => restartMember(member, context.signal)))
      }
    },
  },
  'pause member': {
    needs,
    locks: ['members'],
    holdMs: [500, 6_000],
    apply: (context) => pauseMember(anyMember(context), context.signal),
  },
  'pause leader': {
    needs,
    locks: ['members'],
    holdMs: [500, 15_000],
    apply: async (context) => pauseMember(await etcdOf(context.installation).leader(), context.signal),
  },
  'move leader': {
    needs,
    locks: ['members'],
    holdMs: [0, 200],
    async apply(context) {
      const etcd = etcdOf(context.installation)
      const leader = await etcd.leader()
      const target = context.random.pick(etcd.members.filter((member) => member !== leader))
      if (!(await hasMoved(leader, target))) return undefined
      return async () => {
        await etcd.leader()
      }
    },
  },
  'isolate leader': {
    needs,
    locks: ['members'],
    holdMs: [1_000, 6_000],
    apply: async (context) => isolate(context, await etcdOf(context.installation).leader()),
  },
  'isolate member': {
    needs,
    locks: ['members'],
    holdMs: [1_000, 6_000],
    apply: (context) => Promise.resolve(isolate(context, anyMember(context))),
  },
  'cut peer link': {
    needs,
    locks: ['members'],
    holdMs: [1_000, 6_000],
    async apply(context) {
      const member = anyMember(context)
      const other = context.random.pick(othersOf(context, member))
      const { network } = context.installation
      network.setBoth(member.name, other, { state: 'cut' })
      return async () => {
        network.setBoth(member.name, other, { state: 'open' })
        await member.healthy(context.signal)
      }
    },
  },
  'cut peer link one way': {
    needs,
    locks: ['members'],
    holdMs: [1_000, 8_000],
    async apply(context) {
      const member = context.random.fraction() < 0.5 ? anyMember(context) : await etcdOf(context.installation).leader()
      const other = context.random.pick(othersOf(context, member))
      const { network } = context.installation
      network.set(member.name, other, { state: 'stalled' })
      return async () => {
        network.set(member.name, other, { state: 'open' })
        await member.healthy(context.signal)
      }
    },
  },
  'hold proposals': {
    needs,
    locks: ['members'],
    holdMs: [2_000, 9_000],
    async apply(context) {
      const { network } = context.installation
      const { members, leader } = await followersOf(context)
      const set = (holds: typeof isProposal | undefined): void => members.forEach(({ name }) => network.set(name, leader.name, { holds }))
      set(isProposal)
      const heal = async (): Promise<void> => {
        set(undefined)
        await Promise.all(members.map((member) => member.healthy(context.signal)))
      }
      if (await holdsOne(context, members, leader)) return heal
      await heal()
      return undefined
    },
  },
  'slow peers': {
    needs,
    locks: ['members'],
    holdMs: [2_000, 6_000],
    async apply(context) {
      const member = anyMember(context)
      const { network } = context.installation
      const others = othersOf(context, member)
      const delayMs = context.random.between(50, 500)
      for (const other of others) network.setBoth(member.name, other, { delayMs })
      return async () => {
        for (const other of others) network.setBoth(member.name, other, { delayMs: 0 })
        await member.healthy(context.signal)
      }
    },
  },
} as const satisfies Record<string, Action>
