import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { JsonBoundsError, parseBoundedJson } from '../../src/base/bounded-json.ts'

const bounds = { maxDepth: 4, maxValues: 50, maxKeys: 20 }

function outcomeOf(work: () => unknown): unknown {
  try {
    return work()
  } catch (error) {
    return error instanceof JsonBoundsError ? error.message : (error as Error).name
  }
}

/** Returns the nesting depth of a value, and the number of values and keys in it. */
function sizeOf(value: unknown): { depth: number; values: number; keys: number } {
  if (typeof value !== 'object' || value === null) return { depth: 0, values: 1, keys: 0 }
  const inner = Object.values(value).map(sizeOf)
  return {
    depth: 1 + Math.max(0, ...inner.map(({ depth }) => depth)),
    values: 1 + inner.reduce((sum, { values }) => sum + values, 0),
    keys: (Array.isArray(value) ? 0 : inner.length) + inner.reduce((sum, { keys }) => sum + keys, 0),
  }
}

describe('the JSON parser with limits', () => {
  test('the JSON parser returns the parsed value, or says that a limit was exceeded', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 7 }), fc.boolean(), (value, indented) => {
        const outcome = outcomeOf(() => parseBoundedJson(JSON.stringify(value, null, indented ? 2 : undefined), bounds))
        const { depth, values, keys } = sizeOf(value)
        if (depth > bounds.maxDepth) expect(outcome).toMatch(/^must not (?:nest deeper than 4 levels|hold more than (?:50 values|20 keys))$/)
        else if (outcome === 'must not hold more than 50 values') expect(values).toBeGreaterThan(bounds.maxValues / 2)
        else if (keys > bounds.maxKeys) expect(outcome).toMatch(/^must not hold more than (?:50 values|20 keys)$/)
        else expect(outcome).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })

  test('the JSON parser limits the number of keys of all objects together', () => {
    const objects = (count: number): string =>
      JSON.stringify([{ a: 1, b: { c: 2 } }, Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, at]))])
    expect(outcomeOf(() => parseBoundedJson(objects(17), bounds))).toMatchObject([{}, { k16: 16 }])
    expect(outcomeOf(() => parseBoundedJson(objects(18), bounds))).toBe('must not hold more than 20 keys')
  })

  test('the JSON parser does not count brackets, commas and colons inside strings', () => {
    const texts = [':'.repeat(100), '[[[[[[', '",{[', '\\', '\\"[[[[[', ','.repeat(100), '\\\\"[[[[[[']
    expect(parseBoundedJson(JSON.stringify(texts), bounds)).toEqual(texts)
  })

  test.each(['', '{', '[', '"', '"\\', '{"a":}', ']', '[}', 'a'])('the JSON parser refuses %j as invalid JSON', (text) => {
    expect(outcomeOf(() => parseBoundedJson(text, bounds))).toBe('SyntaxError')
  })
})
