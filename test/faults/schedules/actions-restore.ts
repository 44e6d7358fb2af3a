import { setTimeout as delay } from 'node:timers/promises'
import type { JsonObject } from '@bufbuild/protobuf'
import { ensurePart } from '../../../tools/parts.js'
import { bodyOf } from '../cluster/api-call.ts'
import type { ApiProcess } from '../cluster/api-process.ts'
import type { EtcdCluster } from '../cluster/etcd-cluster.ts'
import { until } from '../cluster/until.ts'
import { allLocks, type Action, type ActionContext } from './action.ts'
import { etcdOf } from './actions-cluster.ts'

const needs = ['cluster'] as const

/** A group whose description shows whether an answer is from before or after the backup. */
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
 * Reads the marker from one process repeatedly until `ended`. After the last member of the old cluster stopped, a new read must not show changes made after
 * the backup. Such an answer comes from an old cache.
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

/** Writes unchecked records, so that calls are under way while the store is replaced. */
async function makeNoise(api: ApiProcess, { uid, token }: Marker, ended: () => boolean): Promise<void> {
  for (let index = 0; !ended(); index += 1) {
    await bodyOf(api, { rpc: 'CreateGroup', request: { parent: uid, group: { name: `noise ${api.name} ${index}` } }, token })
    await delay(20)
  }
}

/** Options of a restore. */
interface Restoring {
  /** True to restore as the same cluster: then only the lower revision shows the change. */
  readonly sameToken: boolean
  /** True to suspend a process until the other one has written beyond its last revision. */
  readonly asleep: boolean
}

async function restoreBackup(context: ActionContext, backup: Restoring & { readonly file: string }, marker: Marker): Promise<void> {
  const etcd = etcdOf(context.installation)
  const seen = await revisionOf(etcd)
  const { apis } = context.installation
  let gone = false
  let ended = false
  const loops = apis.flatMap((api) => [watchMarker(context, marker, { api, gone: () => gone, ended: () => ended }), makeNoise(api, marker, () => ended)])
  try {
    const sleeper = backup.asleep ? context.random.pick(apis) : undefined
    sleeper?.pause()
    await etcd.restore(backup.file, { sameToken: backup.sameToken, between: () => (gone = true) })
    if (sleeper !== undefined) {
      const past = async (): Promise<boolean> => (await revisionOf(etcd)) > seen + 10
      await until(past, { withinMs: 90_000, what: 'the other process has written past the backup', signal: context.signal, everyMs: 100 })
      sleeper.resume()
    }
    // Immediately afterwards, like clients that do not know of it.
    await Promise.all(apis.map((api) => api.ready(context.signal)))
    for (const api of apis)
      await until(async () => (await bodyOf(api, { rpc: 'GetGroup', request: { uid: marker.uid }, token: marker.token })) !== undefined, polling(context, api))
  } finally {
    ended = true
    await Promise.all(loops)
  }
}

async function revisionOf(etcd: EtcdCluster): Promise<number> {
  return Number((await (await etcd.anyHealthy()).status())?.revision ?? 0)
}

function polling(context: ActionContext, api: ApiProcess): { withinMs: number; what: string; signal: AbortSignal } {
  return { withinMs: 30_000, what: `${api.name} serves what the backup holds`, signal: context.signal }
}

function restoring(how: Restoring): Action {
  return {
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
      await context.betweenHistories(() => restoreBackup(context, { ...how, file }, marker))
      return () => Promise.resolve()
    },
  }
}

/** Backups of etcd that are restored under running processes. */
export const restoreActions = {
  'restore a backup': restoring({ sameToken: false, asleep: false }),
  'restore a backup as the same cluster': restoring({ sameToken: true, asleep: false }),
  'restore a backup under a sleeping process': restoring({ sameToken: false, asleep: true }),
  'restore a backup as the same cluster under a sleeping process': restoring({ sameToken: true, asleep: true }),
} as const satisfies Record<string, Action>
