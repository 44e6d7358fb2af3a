import fc from 'fast-check'
import { expect, test } from 'vitest'
import { comparePositions, LogIndex, type LogEntry } from '../../src/engine/log/log-index.ts'

const roots = ['a', 'b', 'c'].map((letter) => letter.repeat(40))
const groups = ['', '/', ...roots, ...roots.map((root) => `${root}/0123456789abcdef`)]

const entries = fc.array(fc.record({ step: fc.nat(2), timeMs: fc.nat(50), group: fc.constantFrom(...groups) }), { maxLength: 60 }).map((rows): LogEntry[] => {
  let revision = 1
  const made = rows.map(({ step, timeMs, group }, number) => {
    revision += step
    return { revision, key: `x/outbox/${String(timeMs).padStart(12, '0')}-${number}`, type: 'type', group, subject: String(number) }
  })
  return made.sort(comparePositions)
})

const rootOf = (group: string): string => (group === '/' ? group : (group.split('/')[0] ?? ''))

test('events of a root group, or of all, come in commit order from any position, also after old ones have expired', () => {
  fc.assert(
    fc.property(entries, fc.nat(60), fc.nat(60), (all, from, drop) => {
      const index = new LogIndex()
      for (const entry of all) expect(index.append(entry)).toBe(true)
      for (const entry of all) expect(index.append(entry)).toBe(false)
      const position = all[from] ?? { revision: 0, key: '' }
      const expected = (kept: readonly LogEntry[], root?: string): string[] =>
        kept.filter((entry) => comparePositions(entry, position) > 0 && (root === undefined || rootOf(entry.group) === root)).map(({ subject }) => subject)
      const found = (root?: string): string[] => [...index.after(position, root)].map(({ subject }) => subject)
      for (const root of [undefined, '', '/', ...roots]) expect(found(root)).toEqual(expected(all, root))
      const assertUpTo = (kept: readonly LogEntry[]): void => {
        for (const root of ['', '/', ...roots]) {
          const until = kept.filter((entry) => comparePositions(entry, position) <= 0 && rootOf(entry.group) === root)
          expect([...index.upTo(position, root)].map(({ subject }) => subject)).toEqual(until.map(({ subject }) => subject).reverse())
        }
      }
      assertUpTo(all)
      // A reader that began before the expiry ends where it would have.
      const reading = index.after(position)
      const first = reading.next()
      const before = `x/outbox/${String(drop).padStart(12, '0')}`
      index.dropBefore(before)
      const rest = [...reading].map(({ subject }) => subject)
      if (first.done !== true) expect([first.value.subject, ...rest]).toEqual(expected(all))
      const kept = all.filter(({ key }) => key >= before)
      expect(index.size).toBe(kept.length)
      for (const root of [undefined, ...roots]) expect(found(root)).toEqual(expected(kept, root))
      assertUpTo(kept)
    }),
  )
})

test('a removed entry is left out, whether or not the in-memory lists still contain it', () => {
  const made = Array.from({ length: 3_000 }, (_, at): LogEntry => {
    return { revision: at + 1, key: `x/outbox/${String(at).padStart(12, '0')}-`, type: 'type', group: roots[at % 2] ?? '', subject: String(at) }
  })
  for (const removals of [1, 1_500]) {
    const index = new LogIndex()
    for (const entry of made) index.append(entry)
    const keys = made.slice(0, removals).map(({ key }) => key)
    index.remove(keys)
    const kept = made.slice(removals)
    expect([...index.after({ revision: 0, key: '' })]).toEqual(kept)
    for (const root of roots.slice(0, 2)) expect([...index.after({ revision: 0, key: '' }, root)]).toEqual(kept.filter(({ group }) => group === root))
    const [last = { revision: 0, key: '' }] = kept.slice(-1)
    expect([...index.upTo(last, roots[0] ?? '')]).toEqual(kept.filter(({ group }) => group === roots[0]).reverse())
    expect(index.firstFrom('', roots[0] ?? '')).toEqual(kept.find(({ group }) => group === roots[0]))
  }
})
