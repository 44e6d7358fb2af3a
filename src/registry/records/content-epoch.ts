import { DomainError } from '../../base/errors.ts'
import { pause } from '../../base/timing.ts'
import type { Uid } from '../../base/uid.ts'
import type { Entry, Guard, Revision } from '../../store/store.ts'
import type { Services } from '../../engine/services.ts'

/** The last removal of a repo's bytes at the time of reading; undefined if there was none. Writers read it before they put bytes, and guard it afterwards. */
export interface Epoch {
  readonly revision: Revision | undefined
}

/** The mark of a repo whose bytes are being removed, or were. Rewritten by each removal. */
export function collectKey(repo: string): string {
  return `x/collect/${repo}`
}

const collecting = 'collecting '
/** So old a mark was left behind, in milliseconds: whatever its holder sent to the upstream is done or refused by then. */
const staleMs = 60_000
/** How long a writer waits for a removal to end, in milliseconds. */
const timeoutMs = 10_000
const pollMs = 50

/** What a mark says while bytes are being removed. */
export function markOf(sinceMs: number): Uint8Array {
  return Buffer.from(`${collecting}${sinceMs}`)
}

/** Since when bytes are being removed; undefined where they are not, or where the mark was left behind. */
export function collectingSince({ value }: Entry, nowMs: number): number | undefined {
  const text = Buffer.from(value).toString()
  const sinceMs = text.startsWith(collecting) ? Number(text.slice(collecting.length)) : undefined
  // A clock that was set back is no reason to wait for ever.
  return sinceMs !== undefined && Math.abs(nowMs - sinceMs) < staleMs ? sinceMs : undefined
}

/** Takes away a mark that was left behind, so that its holder, should it wake up, finds it gone. Resolves with what stands then. */
async function withoutStale(services: Services, entry: Entry, signal: AbortSignal): Promise<Epoch> {
  const { key, revision } = entry
  if (!Buffer.from(entry.value).toString().startsWith(collecting)) return { revision }
  const reset = await services.store.transact(
    { guards: [{ kind: 'unchanged', key, revision }], writes: [{ kind: 'put', key, value: Buffer.from('idle') }] },
    signal,
  )
  return { revision: reset.committed ? reset.revision : revision }
}

/**
 * Returns the epoch of the repo's bytes, once no removal is under way. Bytes put after this are recorded only if none were removed in between. Throws code 14
 * if the removal takes too long.
 */
export async function contentEpoch(services: Services, repo: Uid, signal: AbortSignal): Promise<Epoch> {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    const entry = await services.store.get(collectKey(repo), signal)
    if (entry === undefined) return { revision: undefined }
    if (collectingSince(entry, services.clock.now()) === undefined) return withoutStale(services, entry, signal)
    if (performance.now() > deadline) throw new DomainError(14, 'unused content of the repo is being removed; try again', { details: { retryAfterMs: 1_000 } })
    await pause(pollMs, signal)
  }
}

/** The guard that no bytes were removed since; throws code 10 CONTENT_COLLECTED where some were: the bytes are to be put again. */
export async function guardEpoch(services: Services, { repo, epoch }: { repo: Uid; epoch: Epoch }, signal: AbortSignal): Promise<Guard> {
  const key = collectKey(repo)
  const entry = await services.store.get(key, signal)
  if (entry?.revision !== epoch.revision)
    throw new DomainError(10, 'content of the repo was removed in the meantime; push it again', { reason: 'CONTENT_COLLECTED' })
  return epoch.revision === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: epoch.revision }
}
