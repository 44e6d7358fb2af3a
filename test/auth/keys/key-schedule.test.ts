import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { keyInUse, planKeys } from '../../../src/auth/keys/rotating-keys.ts'
import type { KeySchedule, ScheduledKey } from '../../../src/auth/keys/rotating-keys.ts'
import { accessTokenSeconds } from '../../../src/auth/access-tokens/platform-token.ts'
import { leewayMs } from '../../../src/auth/access-tokens/decoded-token.ts'
import { pageKeySchedule } from '../../../src/auth/keys/page-keys.ts'
import { signingKeySchedule } from '../../../src/auth/keys/signing-keys.ts'
import { pageTokenLifeMs } from '../../../src/base/page-token.ts'

const hourMs = 3_600_000
const schedule: KeySchedule = { rotateEveryMs: 24 * hourMs, publishAheadMs: 2 * hourMs, retainMs: 2 * hourMs }
const jwksCacheMs = hourMs

interface Published extends ScheduledKey {
  readonly madeAtMs: number
}

/** Applies the plan until it contains no more steps. */
function maintain(nowMs: number, keys: readonly Published[]): readonly Published[] {
  let now = keys
  for (let round = 0; round < 20; round += 1) {
    const [action] = planKeys(nowMs, now, schedule)
    if (action === undefined) return now
    now =
      action.kind === 'delete'
        ? now.filter((key) => key.id !== action.id)
        : [...now, { id: `k${String(nowMs)}-${String(round)}`, usedFromMs: action.usedFromMs, madeAtMs: nowMs }]
  }
  throw new Error('the plan does not come to an end')
}

describe('the key schedule', () => {
  test('the key schedule checks every token until it expires, whenever maintenance runs, and never signs with a key that a cached JWKS lacks', () => {
    const gaps = fc.array(fc.oneof(fc.integer({ min: 1, max: 3 * hourMs }), fc.integer({ min: hourMs, max: 400 * 24 * hourMs })), {
      minLength: 1,
      maxLength: 60,
    })
    fc.assert(
      fc.property(gaps, fc.integer({ min: 0, max: 60 }), (steps, tokenAt) => {
        let nowMs = 0
        let keys = maintain(0, [])
        const first = keys[0]
        const signed: { id: string; expiresMs: number }[] = []
        for (const [index, step] of steps.entries()) {
          nowMs += step
          // A token is signed just before maintenance, with the keys known at that time.
          const inUse = keyInUse(nowMs, keys)
          if (inUse === undefined) throw new Error('no key in use')
          if (inUse.id !== first?.id) expect(nowMs - inUse.madeAtMs).toBeGreaterThanOrEqual(accessTokenSeconds * 1000 + jwksCacheMs)
          if (index <= tokenAt) signed.push({ id: inUse.id, expiresMs: nowMs + accessTokenSeconds * 1000 + leewayMs })
          keys = maintain(nowMs, keys)
          for (const token of signed) if (token.expiresMs > nowMs) expect(keys.map((key) => key.id)).toContain(token.id)
        }
      }),
      { numRuns: 500 },
    )
  })

  test('the key schedule keeps a small number of keys, however old the schedule is', () => {
    let keys: readonly Published[] = []
    for (let hour = 0; hour < 24 * 400; hour += 1) {
      keys = maintain(hour * hourMs, keys)
      expect(keys.length).toBeLessThanOrEqual(3)
    }
  })

  test('the key schedule still has a valid key after the clock was set back', () => {
    expect(keyInUse(-5 * hourMs, maintain(0, []))?.usedFromMs).toBe(0)
  })

  test('the key schedule with the settings in use keeps a key for longer than any token signed with it', () => {
    expect(signingKeySchedule.retainMs).toBeGreaterThan(accessTokenSeconds * 1000 + leewayMs)
    expect(signingKeySchedule.publishAheadMs).toBeGreaterThanOrEqual(accessTokenSeconds * 1000 + jwksCacheMs)
    expect(pageKeySchedule.retainMs).toBeGreaterThan(pageTokenLifeMs)
  })
})
