import { DomainError } from '../../base/errors.ts'
import { pause } from '../../base/timing.ts'
import type { Uid } from '../../base/uid.ts'
import type { Entry, Guard, Revision } from '../../store/store.ts'
import type { Services } from '../../engine/services.ts'

/**
 * The state of a repo's mark when it was read: the last removal of bytes, undefined if there was none. Writers read it before they store
 * bytes. Their transaction then checks that it has not changed.
 */
export interface Epoch {
  readonly revision: Revision | undefined
}

/** Returns the key of a repo's mark. Each removal of bytes rewrites it. */
export function collectKey(repo: string): string {
  return `x/collect/${repo}`
}

const collecting = 'collecting '
/** Age after which a mark counts as abandoned, in milliseconds. By then the upstream has finished or refused all requests of its holder. */
const staleMs = 60_000
/** How long a writer waits for a removal to end, in milliseconds. */
const timeoutMs = 10_000
const pollMs = 50

/** Returns the value of a mark while bytes are being removed; `sinceMs` is in milliseconds since 1970. */
export function markOf(sinceMs: number): Uint8Array {
  return Buffer.from(`${collecting}${sinceMs}`)
}

/** Returns since when bytes are being removed, in milliseconds since 1970. Returns undefined if none are, or if the mark is abandoned. */
export function collectingSince({ value }: Entry, nowMs: number): number | undefined {
  const text = Buffer.from(value).toString()
  const sinceMs = text.startsWith(collecting) ? Number(text.slice(collecting.length)) : undefined
  // If the clock was set back, the difference is negative. It must not make writers wait forever.
  return sinceMs !== undefined && Math.abs(nowMs - sinceMs) < staleMs ? sinceMs : undefined
}

/** Removes an abandoned mark, so that its holder cannot continue. Resolves with the current state of the mark. */
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

/**
 * Returns a guard that fails if bytes are removed after this call. Throws code 10 CONTENT_COLLECTED if bytes were removed since `epoch`:
 * then store them again.
 */
export async function guardEpoch(services: Services, { repo, epoch }: { repo: Uid; epoch: Epoch }, signal: AbortSignal): Promise<Guard> {
  const key = collectKey(repo)
  const entry = await services.store.get(key, signal)
  if (entry?.revision !== epoch.revision)
    throw new DomainError(10, 'content of the repo was removed in the meantime; push it again', { reason: 'CONTENT_COLLECTED' })
  return epoch.revision === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: epoch.revision }
}
