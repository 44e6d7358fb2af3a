import { readFileSync } from 'node:fs'
import type { CallerRow, Place, RealPlace, Standing } from './callers.ts'
import type { ScopedRow } from './rows/scoped-row.ts'
import { grantedCapability } from './world.ts'

/** The capabilities of each built-in role, read from the tables and not through the program. */
const rolesTable: ReadonlyMap<string, ReadonlySet<string>> = (() => {
  const found = new Map<string, Set<string>>()
  const lines = ['proto/roles.tsv', 'proto/own-roles.tsv'].flatMap((path) => readFileSync(path, 'utf8').trim().split('\n').slice(1))
  for (const line of lines) {
    const [role = '', capability = ''] = line.split('\t')
    found.set(role, (found.get(role) ?? new Set()).add(capability))
  }
  return found
})()

/** The names of all capabilities that built-in roles have. */
export const grantable: readonly string[] = [...new Set([...rolesTable.values()].flatMap((names) => [...names]))].toSorted()

function hasAll(standing: Standing, needs: readonly string[]): boolean {
  if (standing === 'everything') return true
  const role = rolesTable.get(standing)
  if (role === undefined) throw new Error(`no role ${standing} in the table`)
  return needs.every((capability) => role.has(capability))
}

/** Returns whether the caller has all needed capabilities in this place. */
export function may({ standing, only }: CallerRow, place: RealPlace, needs: readonly string[]): boolean {
  return standing[place] !== '-' && hasAll(standing[place], needs) && (only === undefined || needs.every((capability) => only.includes(capability)))
}

/**
 * The code that a call must return (docs/spec/conventions.md#order-of-checks).
 * First 16 without a token, then 5 without any permission there. Then 7 without the needed capabilities, even if the record is missing.
 * Then 5 if the record does not exist; 7 if the caller lacks what the request grants; 0.
 */
export function expectedCode({ needs, confers, operators }: Pick<ScopedRow, 'needs' | 'confers' | 'operators'>, caller: CallerRow, place: Place): number {
  if (caller.anonymous === true) return 16
  if (place === 'missing') return 5
  const there: RealPlace = place === 'missing in own' ? 'own' : place
  if (caller.standing[there] === '-') return 5
  if (!may(caller, there, needs)) return 7
  if (operators === true && caller.standing[there] !== 'everything') return 7
  if (place === 'missing in own') return 5
  if (confers === undefined) return 0
  const root: RealPlace = there === 'other' ? 'other' : 'ancestor'
  return may(caller, confers === 'at the root' ? root : there, [grantedCapability]) ? 0 : 7
}
