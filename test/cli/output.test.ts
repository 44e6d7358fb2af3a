import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { ageText, cellOf, columnsOf, printable } from '../../src/cli/client/columns.ts'
import { createOutput, jsonText, yamlText } from '../../src/cli/client/output.ts'
import { MemorySink } from './client-world.ts'

const escape = '\u001b'

describe('colours', () => {
  test.for([
    ['are used at a terminal', true, {}, true],
    ['are used at a terminal with an empty NO_COLOR', true, { NO_COLOR: '' }, true],
    ['are not used at a terminal with NO_COLOR', true, { NO_COLOR: '1' }, false],
    ['are not used at a terminal with NO_COLOR and FORCE_COLOR', true, { NO_COLOR: '1', FORCE_COLOR: '1' }, false],
    ['are not used at a dumb terminal', true, { TERM: 'dumb' }, false],
    ['are not used into a pipe', false, {}, false],
    ['are used into a pipe with FORCE_COLOR', false, { FORCE_COLOR: '1' }, false],
  ] as const)('%s', ([, isTTY, env, coloured]) => {
    expect(createOutput(new MemorySink(isTTY), env).style('bold', 'x').includes(escape)).toBe(coloured)
  })
})

describe('text written by other people', () => {
  const hostile = { name: `a${escape}[31mb\u009bc\u202ed\ne`, [`k\u009b`]: 'no' }

  test('output with text of other people sends no terminal control codes in a table', () => {
    expect(printable(hostile.name)).toBe('a [31mb c d e')
    const [name] = columnsOf('Group')
    if (name === undefined) throw new Error('groups have columns')
    expect(cellOf({ ...hostile, path: hostile.name }, name, 0)).toBe('a [31mb c d e')
  })

  test.for([
    ['json', jsonText, (text: string): unknown => JSON.parse(text)],
    ['yaml', yamlText, (text: string): unknown => parse(text)],
  ] as const)('output with text of other people sends no terminal control codes as %s, and is unchanged when parsed', async ([, format, read]) => {
    const text = await format(hostile)
    expect(text).not.toMatch(/[\u001b\u0080-\u009f\u202e]/)
    expect(read(text)).toEqual(hostile)
  })

  test('output with text of other people is quoted in yaml if a YAML 1.1 reader could misread it', async () => {
    expect(await yamlText({ a: 'no', b: '012', c: '2026-01-01T00:00:00.000Z', d: 'plain' })).toBe(
      'a: "no"\nb: "012"\nc: "2026-01-01T00:00:00.000Z"\nd: plain\n',
    )
  })
})

test.for([
  [-5_000, '0s'],
  [119_000, '119s'],
  [120_000, '2m'],
  [3 * 3_600_000, '3h'],
  [49 * 3_600_000, '2d'],
  [NaN, ''],
] as const)('an age of %i ms is shown as "%s"', ([ms, text]) => {
  expect(ageText(ms)).toBe(text)
})
