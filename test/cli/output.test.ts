import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { ageText, cellOf, columnsOf, printable } from '../../src/cli/client/columns.ts'
import { compileJsonPath } from '../../src/cli/client/json-path.ts'
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

const record = {
  name: 'web',
  count: 2,
  empty: null,
  claims: { 'a.b': 'x', 'c-d': 'y' },
  names: ['one', 'two'],
  list: [
    { 'k.l': 'v', n: 1, in: ['x', 'y'] },
    { n: 2, in: ['z'] },
  ],
  steering: `a${escape}[2Jb\nc`,
}

test.for([
  ['{.name}', 'web'],
  ['.name', 'web'],
  ['name', 'web'],
  ['{$.name}-{.count}', 'web-2'],
  ['{.names}', '["one","two"]'],
  ['{.names[*]}', 'one two'],
  ['{.names[-1:]}', 'two'],
  ['{.claims.a\\.b}{.claims.c-d}', 'xy'],
  ["{.claims['a.b']}", 'x'],
  ["{.claims['a\\.b']}", 'x'],
  ['{..a\\.b}', 'x'],
  ["{.list[?(@.k\\.l=='v')].n}", '1'],
  ['{range .list[*].in}{@}|{end}', '["x","y"]|["z"]|'],
  ['{"\\u0041\\t"}', 'A\t'],
  ['{range .names[*]}<{@}>{"\\n"}{end}', '<one>\n<two>\n'],
  ['{range .names}{.}{end}', 'onetwo'],
  ['{.names[?(@=="two")]}', 'two'],
  ['{"{}"}{.empty}{.absent}', '{}'],
  ['{.steering}', 'a [2Jb\nc'],
] as const)('the template %s prints "%s"', ([template, text]) => {
  expect(compileJsonPath(template).ofRecord(record)).toBe(text)
})

test.for([
  ['{.items[*].name}', 'web web'],
  ['{range .items[*]}{.name}{"\\t"}{.count}{"\\n"}{end}', 'web\t2\nweb\t2\n'],
  ['{..count}', '2 2'],
] as const)('the template %s of a list prints "%s"', ([template, text]) => {
  expect(compileJsonPath(template).ofList([record, record])).toBe(text)
})

test.for([
  ['{.name', /the "\{" has no other brace/],
  ['{range .names}', /\{range\} has no \{end\}/],
  ['a{end}', /\{end\} has no \{range\}/],
  ['{}', /there is no path/],
  ['{.names[}', /\.names\[ is not a path/],
  ['{"a\'}', /no other/],
  ["{.list[*]['n', 'in.x']}", /joins paths: write each in braces/],
] as const)('the template %s is refused', ([template, message]) => {
  expect(() => compileJsonPath(template)).toThrow(message)
})

test('a template that does not fit a list is refused', () => {
  for (const template of ['{.name}', '{[*].name}', '{.itemsOf}'])
    expect(() => compileJsonPath(template).ofList([])).toThrow(/its records are in \.items\[\*\]$/)
})
