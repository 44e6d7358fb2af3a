import type { PageKey } from '../../base/page-token.ts'
import type { Random } from '../../base/runtime.ts'
import { randomHex } from '../../base/runtime.ts'
import { createRotatingKeys } from './rotating-keys.ts'
import type { RotatingKeys, RotatingKeysOptions } from './rotating-keys.ts'

const hourMs = 3_600_000

/**
 * A page-token key is used for a week, and is then kept for the three days that page tokens live, plus an hour. It is published two hours before its use, so
 * that every replica knows it by then.
 */
export const pageKeySchedule = { rotateEveryMs: 7 * 24 * hourMs, publishAheadMs: 2 * hourMs, retainMs: 73 * hourMs } as const

/**
 * Returns the keys that encrypt page tokens, from the store. Creates the first one in a fresh store. If `lookup` does not find an id, the key was removed and
 * its tokens have expired (docs/spec/conventions.md#page-tokens). Throws SealingError or StoreError.
 */
export async function createPageKeys(options: RotatingKeysOptions & { readonly random: Random }, signal: AbortSignal): Promise<RotatingKeys<PageKey>> {
  const { random } = options
  return await createRotatingKeys<PageKey>(
    {
      prefix: 'meta/page-keys/',
      schedule: pageKeySchedule,
      generate: () => Promise.resolve({ id: randomHex(random, 4), shown: null, secret: random.bytes(32) }),
      load: (id, _shown, secret) => Promise.resolve({ id, secret }),
    },
    options,
    signal,
  )
}
