import type { Uid } from '../../base/uid.ts'
import { collectKey, collectingSince, markOf } from '../records/content-epoch.ts'
import type { Services } from '../../engine/services.ts'
import type { Guard, Revision } from '../../store/store.ts'

/** A mark that stands, as its holder sees it. */
export interface HeldMark {
  /** That it still stands. */
  readonly guard: Guard & { readonly kind: 'unchanged' }
  /** Throws MarkLost where it does not stand any more, or has stood for so long that others may take it for left behind. */
  assertStanding(signal: AbortSignal): Promise<void>
}

/** Another process removes bytes of the repo, or took this mark for an abandoned one. Nothing more may be removed under it. */
export class MarkLost extends Error {
  override readonly name = 'MarkLost'
}

/** How long its holder counts on a mark, in milliseconds: well below the time after which others do not (content-epoch.ts). */
const holdMs = 30_000
const resetTimeoutMs = 5_000

/**
 * Sets the mark of a repo, does the work, and resets the mark. If the work fails, the mark is left: a removal may still be on its way upstream. Writers wait
 * until it has certainly arrived. Rejects with MarkLost if another mark stands, and like `work`.
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

/** Sets a mark where none stands. */
async function setMark({ store, clock }: Services, key: string, signal: AbortSignal): Promise<{ readonly sinceMs: number; readonly revision: Revision }> {
  for (;;) {
    const before = await store.get(key, signal)
    const sinceMs = clock.now()
    if (before !== undefined && collectingSince(before, sinceMs) !== undefined) throw new MarkLost('another process is removing bytes of this repo')
    const free: Guard = before === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision: before.revision }
    const set = await store.transact({ guards: [free], writes: [{ kind: 'put', key, value: markOf(sinceMs) }] }, signal)
    if (set.committed) return { sinceMs, revision: set.revision }
    // The mark now belongs to another process, or a writer removed it as abandoned. Nothing is left to reset.
  }
}
