import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { httpStatusOfCode } from '../../../src/transport/errors-http.ts'
import { codeNames, type Code } from '../../../src/base/errors.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const page = readFileSync(join(root, 'docs', 'errors.md'), 'utf8')

const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts') && !path.startsWith('gen'))
  .map((path) => readFileSync(join(root, 'src', path), 'utf8'))

/** Every match's first group, once, sorted. */
function found(pattern: RegExp): string[] {
  return [...new Set(sources.flatMap((text) => [...text.matchAll(pattern)].map((match) => match[1] ?? '')))].toSorted()
}

/** The first cells of the table under a heading of the page, without backticks. */
function firstCells(heading: string): string[] {
  const section = page.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? ''
  return [...section.matchAll(/^\| `?([^|`]+?)`? +\|/gm)].map((match) => match[1] ?? '').slice(2)
}

describe('docs/errors.md', () => {
  it('docs/errors.md lists every reason in the source, and no other', () => {
    const reasons = found(/(?:\breason: |notRestorable\()'([A-Z_]+)'/g)
    expect(reasons.length).toBeGreaterThan(5)
    expect(firstCells('Reasons').toSorted()).toEqual(reasons)
  })

  it('docs/errors.md lists every type of violation in the source, and no other', () => {
    const types = found(/(?:\btype: |notRestorable\()'([A-Z_]+)'/g)
    expect(types.length).toBeGreaterThan(2)
    expect(firstCells('Violations').toSorted()).toEqual(types)
  })

  it('docs/errors.md lists every type of detail', () => {
    expect(firstCells('Details').toSorted()).toEqual(found(/\breadonly type: '([A-Z][A-Za-z]+)'/g))
  })

  it('docs/errors.md lists every code that the source returns, with its name and HTTP status', () => {
    const thrown = new Set([...found(/new DomainError\((\d+)/g), ...found(/\b(?:exchange|direct): (\d+)/g)])
    const rows = [...page.matchAll(/^\| (\d+) +\| `([A-Z_]+)` +\| (\d+) +\|/gm)].map(([, code = '', name, status]) => ({ code, name, status }))
    expect(new Set(rows.map(({ code }) => code))).toEqual(thrown)
    for (const { code, name, status } of rows) {
      expect([code, name, status]).toEqual([code, codeNames[Number(code) as Code], String(httpStatusOfCode[Number(code) as Code])])
    }
  })
})
