import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'

const tool = join(import.meta.dirname, '..', '..', '..', 'tools', 'layout.js')
const walks = 'docs/contributing/life-of-a-request.md'

/** Returns `count` empty files in a folder of src, or of `top`, by path. */
function files(folder: string, count: number, top = 'src'): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`${top}/${folder}/file${at}.ts`, '']))
}

/** Returns the output lines of `tools/layout.js` for a repository with these files. */
function problemsOf(tree: Readonly<Record<string, string>>): string[] {
  const root = mkdtempSync(join(tmpdir(), 'taproot-layout-'))
  onTestFinished(() => rmSync(root, { recursive: true, force: true }))
  for (const [path, text] of Object.entries({
    [walks]: '# Life of a request\n',
    ...files('base', 3),
    ...files('store', 3),
    ...files('cache', 3),
    ...files('cache', 1, 'test'),
    ...tree,
  })) {
    mkdirSync(join(root, dirname(path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const { status, stdout } = spawnSync(process.execPath, [tool, root], { encoding: 'utf8' })
  const lines = stdout.split('\n').filter((line) => line !== '')
  expect(status).toBe(lines.length === 0 ? 0 : 1)
  return lines
}

const walk = (count: number): string => Array.from({ length: count }, (_, at) => `\`src/walked/file${at}.ts\``).join('\n')

describe('the layout check', () => {
  test.each<[string, Record<string, string>, RegExp[]]>([
    ['accepts files within the rules', files('engine', 20), []],
    ['refuses a folder of 21 files', files('engine', 21), [/^src\/engine has 21 files/]],
    ['refuses a folder of 21 test files', files('engine', 21, 'test'), [/^test\/engine has 21 files/]],
    ['accepts a folder of two test files', files('engine', 2, 'test'), []],
    ['refuses a folder of two files', files('engine', 2), [/^src\/engine has 2 entries/]],
    ['accepts a folder of one file and two folders', { ...files('iam', 1), ...files('iam/records', 3), ...files('iam/scim', 3) }, []],
    [
      'refuses a small helper with one user in its folder',
      { ...files('engine', 3), 'src/engine/user.ts': "import { a } from './file0.ts'" },
      [/^src\/engine\/file0.ts has 1 lines and only src\/engine\/user.ts imports it/],
    ],
    [
      'accepts a small helper with two users, one of them a test',
      {
        ...files('engine', 3),
        'src/engine/user.ts': "import { a } from './file0.ts'",
        'test/engine/a.test.ts': "import { a } from '../../src/engine/file0.ts'",
      },
      [],
    ],
    [
      'accepts a small helper of another folder',
      { ...files('engine', 3), 'src/iam/user.ts': "import { a } from '../engine/file0.ts'", ...files('iam', 3) },
      [],
    ],
    [
      'accepts a helper of 40 lines with one user',
      { ...files('engine', 3), 'src/engine/file0.ts': '\n'.repeat(39), 'src/engine/user.ts': "import { a } from './file0.ts'" },
      [],
    ],
    ['ignores generated code', files('gen', 40), []],
    [
      'refuses a type that two files export',
      { 'src/base/one.ts': 'export interface Place {}', 'src/store/two.ts': 'export class Place {}' },
      [/^type Place is exported by src\/base\/one.ts and src\/store\/two.ts/],
    ],
    [
      'accepts a type that one file exports and another declares for itself',
      { 'src/base/one.ts': 'export type Place = 1', 'src/store/two.ts': 'type Place = 2' },
      [],
    ],
    ['accepts a request path of 18 files', { ...files('walked', 18), [walks]: `# Walks\n## A create\n${walk(18)}\n` }, []],
    ['refuses a request path of 19 files', { ...files('walked', 19), [walks]: `# Walks\n## A create\n${walk(19)}\n` }, [/"A create" passes 19 files/]],
    ['refuses a request path through a missing file', { [walks]: '# Walks\n## A create\n`src/gone.ts`\n' }, [/src\/gone.ts does not exist/]],
  ])('%s', (_title, tree, expected) => {
    const problems = problemsOf(tree)
    expect(problems).toHaveLength(expected.length)
    for (const [at, pattern] of expected.entries()) expect(problems[at]).toMatch(pattern)
  })
})
