import type { Uid } from '../../base/uid.ts'
import { collectKey, collectingSince, markOf } from '../records/content-epoch.ts'
import type { Services } from '../../engine/services.ts'
import type { Guard, Revision } from '../../store/store.ts'

/** A valid mark that this process holds at a repo's content epoch. */
export interface HeldMark {
  /** Condition for a transaction: the mark is still valid. */
  readonly guard: Guard & { readonly kind: 'unchanged' }
  /** Throws MarkLost if the mark is no longer valid, or so old that other processes may consider it abandoned. */
  assertStanding(signal: AbortSignal): Promise<void>
}

/** Another process removes bytes of the repo, or considered this mark abandoned. The holder must not remove anything else under the mark. */
export class MarkLost extends Error {
  override readonly name = 'MarkLost'
}

/**
 * How long a holder may rely on its mark, in milliseconds. Much shorter than the time after which others consider a mark abandoned
 * (content-epoch.ts).
 */
const holdMs = 30_000
const resetTimeoutMs = 5_000

/**
 * Sets the mark of a repo, does the work, and resets the mark. If the work fails, the mark stays, because the upstream may still be
 * working on a removal. Writers then wait until that removal has certainly ended. Rejects with MarkLost if the repo already has a mark.
 * Also rejects like `work`.
 */
export async function underMark(
  { services, repo }: { services: Services; repo: Uid },
  work: (mark: HeldMark) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const { store, clock } = services
  const key = collectKey(repo)
  const { sinceMs, revision } = await setMark(services, key, signal)
  const guard = { kind: 'unchanged', key, revision } as const
  await work({
    guard,
    async assertStanding(among) {
      among.throwIfAborted()
      const now = await store.get(key, among)
      if (now?.revision !== revision || clock.now() - sinceMs > holdMs) throw new MarkLost('the mark is no longer valid')
    },
  })
  await store.transact({ guards: [guard], writes: [{ kind: 'put', key, value: Buffer.from('idle') }] }, AbortSignal.timeout(resetTimeoutMs))
}

/** Sets a mark. Rejects with MarkLost if the repo has one already. */
async function setMark({ store, clock }: Services, key: string, signal: AbortSignal): Promise<{ readonly sinceMs: number; readonly revision: Revision }> {
  for (;;) {
    const before = await store.get(key, signal)
    const sinceMs = clock.now()
    if (before !== undefined && collectingSince(before, sinceMs) !== undefined) throw new MarkLost('another process is removing bytes of this repo')
    const free: Guard = before === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: before.revision }
    const set = await store.transact({ guards: [free], writes: [{ kind: 'put', key, value: markOf(sinceMs) }] }, signal)
    if (set.committed) return { sinceMs, revision: set.revision }
    // The mark now belongs to another process, or a writer removed it as abandoned, so there is nothing to reset.
  }
}
