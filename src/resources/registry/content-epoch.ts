import { DomainError } from '../../core/errors.ts'
import type { Uid } from '../../core/uid.ts'
import type { Guard, Revision } from '../../store/store.ts'
import type { Services } from '../services.ts'

/** Which removal of a repo's bytes was the last, when somebody looked: undefined where there was none. Whoever puts bytes looks before, and guards it after. */
export interface Epoch {
  readonly revision: Revision | undefined
}

/** The mark of a repo whose bytes are being removed (`collecting`), or were (`idle`). Rewritten by each removal. */
export function collectKey(repo: string): string {
  return `x/collect/${repo}`
}

/** What a mark says while bytes are being removed. */
export const collecting = 'collecting'
/** How long somebody who puts bytes waits for a removal to end, in milliseconds. */
const patienceMs = 10_000
const pollMs = 50

/**
 * The epoch of the repo's bytes, once nobody removes any: bytes put after this are recorded only if none were removed in between. Throws code 14 where the removal
 * takes too long.
 */
export async function contentEpoch(services: Services, repo: Uid, signal: AbortSignal): Promise<Epoch> {
  const deadline = services.clock.now() + patienceMs
  for (;;) {
    const entry = await services.store.get(collectKey(repo), signal)
    if (entry === undefined || Buffer.from(entry.value).toString() !== collecting) return { revision: entry?.revision }
    if (services.clock.now() > deadline)
      throw new DomainError(14, 'unused content of the repo is being removed; try again', { details: { retryAfterMs: 1_000 } })
    const { promise, resolve } = Promise.withResolvers<void>()
    setTimeout(resolve, pollMs)
    await promise
  }
}

/** The guard that no bytes were removed since; throws code 10 CONTENT_COLLECTED where some were: the bytes are to be put again. */
export async function guardEpoch(services: Services, { repo, epoch }: { repo: Uid; epoch: Epoch }, signal: AbortSignal): Promise<Guard> {
  const key = collectKey(repo)
  const entry = await services.store.get(key, signal)
  if (entry?.revision !== epoch.revision) throw new DomainError(10, 'content of the repo was removed meanwhile; put it again', { reason: 'CONTENT_COLLECTED' })
  return epoch.revision === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: epoch.revision }
}
