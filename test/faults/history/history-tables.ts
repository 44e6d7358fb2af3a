import { expect, test } from 'vitest'
import { checkHistory } from './check-history.ts'
import type { Operation } from './history.ts'

/** Histories that an order of their operations explains. */
export type ValidHistories = Readonly<Record<string, readonly Operation[]>>

/** Histories with a fault, and the faulty part of each. */
export type BrokenHistories = Readonly<Record<string, readonly [part: string, history: readonly Operation[]]>>

/** Tests that the checker accepts the valid histories and refuses the broken ones. */
export function testHistories({ valid, broken }: { valid: ValidHistories; broken: BrokenHistories }): void {
  for (const [title, operations] of Object.entries(valid)) {
    test(`accepts: ${title}`, async () => {
      expect(await checkHistory({ operations })).toMatchObject({ ok: true, checked: operations.length, failures: [], unknown: [] })
    })
  }

  for (const [title, [partition, operations]] of Object.entries(broken)) {
    test(`refuses: ${title}`, async () => {
      const conditionStatus = await checkHistory({ operations })
      expect(conditionStatus.ok).toBe(false)
      expect(conditionStatus.failures.map((failure) => failure.partition)).toContain(partition)
    })
  }
}
