import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'

const page = readFileSync('docs/security.md', 'utf8')
const start = page.indexOf('## Threats')
const rows = page
  .slice(start, page.indexOf('\n## ', start + 1))
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| who  ') && !line.startsWith('| ---'))

/** The tests that a row names: a file, and where it has many a part of the title. */
function testsOf(row: string): { file: string; title: string | undefined }[] {
  const cell = row.split('|').at(-2) ?? ''
  return [...cell.matchAll(/(test\/[\w/.-]+\.ts)(?: "([^"]+)")?/g)].map(([, file = '', title]) => ({ file, title }))
}

describe('docs/security.md', () => {
  test('has a table of threats', () => {
    expect(rows.length).toBeGreaterThan(20)
  })

  test.each(rows.map((row) => [row.split('|')[2]?.trim() ?? '', row] as const))('names tests that exist: %s', (_tries, row) => {
    const tests = testsOf(row)
    expect(tests).not.toEqual([])
    for (const { file, title = '' } of tests) expect(readFileSync(file, 'utf8').replaceAll("\\'", "'"), `${file}: ${title}`).toContain(title)
  })
})
