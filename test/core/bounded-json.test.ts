import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { JsonBoundsError, parseBoundedJson } from '../../src/core/bounded-json.ts'

const bounds = { maxDepth: 4, maxValues: 50 }

function outcomeOf(work: () => unknown): unknown {
  try {
    return work()
  } catch (error) {
    return error instanceof JsonBoundsError ? error.message : (error as Error).name
  }
}

/** How deep a value nests, and how many values it has with all that is in it. */
function sizeOf(value: unknown): { depth: number; values: number } {
  if (typeof value !== 'object' || value === null) return { depth: 0, values: 1 }
  const inner = Object.values(value).map(sizeOf)
  return { depth: 1 + Math.max(0, ...inner.map(({ depth }) => depth)), values: 1 + inner.reduce((sum, { values }) => sum + values, 0) }
}

describe('JSON with bounds', () => {
  test('is what JSON is, or beyond a bound', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 7 }), fc.boolean(), (value, indented) => {
        const outcome = outcomeOf(() => parseBoundedJson(JSON.stringify(value, null, indented ? 2 : undefined), bounds))
        const { depth, values } = sizeOf(value)
        if (depth > bounds.maxDepth) expect(outcome).toMatch(/^must not (?:nest deeper than 4 levels|hold more than 50 values)$/)
        else if (outcome === 'must not hold more than 50 values') expect(values).toBeGreaterThan(bounds.maxValues / 2)
        else expect(outcome).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })

  test('takes no bracket or comma of a text for one', () => {
    const texts = ['[[[[[[', '",{[', '\\', '\\"[[[[[', ','.repeat(100), '\\\\"[[[[[[']
    expect(parseBoundedJson(JSON.stringify(texts), bounds)).toEqual(texts)
  })

  test.each(['', '{', '[', '"', '"\\', '{"a":}', ']', '[}', 'a'])('%j is no JSON', (text) => {
    expect(outcomeOf(() => parseBoundedJson(text, bounds))).toBe('SyntaxError')
  })
})
