import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'

const page = readFileSync('docs/security.md', 'utf8')
const start = page.indexOf('## Threats')
const rows = page
  .slice(start, page.indexOf('\n## ', start + 1))
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| who  ') && !line.startsWith('| ---'))

/** The tests in a row: a file, and a part of the title if the file has many. */
function testsOf(row: string): { file: string; title: string | undefined }[] {
  const cell = row.split('|').at(-2) ?? ''
  return [...cell.matchAll(/(test\/[\w/.-]+\.ts)(?: "([^"]+)")?/g)].map(([, file = '', title]) => ({ file, title }))
}

describe('docs/security.md', () => {
  test('docs/security.md has a table of more than 20 threats', () => {
    expect(rows.length).toBeGreaterThan(20)
  })

  test.each(rows.map((row) => [row.split('|')[2]?.trim() ?? '', row] as const))('docs/security.md names existing tests: %s', (_tries, row) => {
    const tests = testsOf(row)
    expect(tests).not.toEqual([])
    for (const { file, title = '' } of tests) expect(readFileSync(file, 'utf8').replaceAll("\\'", "'"), `${file}: ${title}`).toContain(title)
  })
})
