import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'

const root = join(import.meta.dirname, '..', '..', '..')
const directory = mkdtempSync(join(tmpdir(), 'taproot-prose-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** Returns the output of `tools/prose.js` for a file with this text, one line for each fault, without the path. */
function errorsOf(text: string, name = 'page.md'): string[] {
  const page = relative(root, join(directory, name))
  writeFileSync(join(directory, name), text)
  const { status, stderr } = spawnSync(process.execPath, ['tools/prose.js', page], { cwd: root, encoding: 'utf8' })
  expect(status).toBe(stderr === '' ? 0 : 1)
  return stderr
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.slice(page.length + 1))
}

const sentence = (words: number): string => `${Array.from({ length: words }, (_, at) => `word${at}`).join(' ')}.`

describe('the prose check', () => {
  test.each([
    ['accepts a sentence of 25 words', sentence(25), 0],
    ['refuses a sentence of 26 words', sentence(26), 1],
    ['accepts two sentences of 25 words', `${sentence(25)} ${sentence(25).replace('w', 'W')}`, 0],
    ['accepts a sentence that ends with a number, and another one', `${sentence(24).slice(0, -1)} 3. ${sentence(24).replace('w', 'W')}`, 0],
    ['accepts a sentence that begins with code', `${sentence(24)} \`code\` ${sentence(24)}`, 0],
    ['refuses 26 words on two lines', sentence(26).replace(' word9 ', '\nword9 '), 1],
    ['refuses 26 words in a list item', `- ${sentence(26)}`, 1],
    ['refuses 26 words in a table cell', `| a | b |\n| - | - |\n| c | ${sentence(26)} |`, 1],
    ['accepts an enumeration in a table cell', `| a |\n| - |\n| ${sentence(20).slice(0, -1)}; ${sentence(20)} |`, 0],
    ['refuses the same enumeration in a paragraph', `${sentence(20).slice(0, -1)}; ${sentence(20)}`, 1],
    ['refuses 26 words in a heading', `# ${sentence(26)}`, 1],
    ['counts a long command in a sentence as one word', `Run \`${sentence(30)}\` first.`, 0],
    ['ignores a code block', `\`\`\`text\n${sentence(30)}\n\`\`\``, 0],
    ['refuses a banned word', 'Whoever reads this stops.', 1],
    ['accepts a banned word inside another word', 'The indoors are warm.', 0],
    ['accepts a banned word in code', 'The file `door.ts` is gone.', 0],
  ])('%s', (_title, text, count) => {
    expect(errorsOf(text)).toHaveLength(count)
  })

  test('the prose check reports line and words', () => {
    expect(errorsOf('Fine.\n\nNobody knows.\n')).toEqual(['3: "Nobody": use a plainer word'])
  })

  test.each([
    ['a comment before a statement', `// ${sentence(26)}\nexport const one = 1\n`, 1],
    ['a comment after a statement', `export const one = 1 // ${sentence(26)}\n`, 1],
    ['a doc comment on several lines', `/**\n * ${sentence(26).replace(' word9 ', '\n * word9 ')}\n */\nexport const one = 1\n`, 1],
    ['a comment within a function', `export function one(): void {\n  // ${sentence(26)}\n}\n`, 1],
    ['a string on one line', `throw new Error('${sentence(26)}')\n`, 1],
    ['a template, where each inserted value is one word', `throw new Error(\`\${first} ${sentence(25)}\`)\n`, 1],
    ['two strings', `export const texts = ['${sentence(20)}',\n'${sentence(20)}']\n`, 0],
    ['a string without words', `export const one = '${sentence(26).replaceAll(' ', '-')}'\n`, 0],
    ['a directive', `// eslint-disable-next-line ${sentence(26)}\nexport const one = 1\n`, 0],
  ])('the prose check reads comments and strings of code: %s', (_title, text, count) => {
    expect(errorsOf(text, 'code.ts')).toHaveLength(count)
  })

  test.each([
    ['a comment of a schema', 'code.proto', `// ${sentence(26)}\nmessage One {}\n`, 1],
    ['a comment after a field', 'code.proto', `message One {} // ${sentence(26)}\n`, 1],
    ['a comment of YAML', 'code.yml', `# ${sentence(26)}\nname: one\n`, 1],
    ['a string in YAML', 'code.yml', `name: ${sentence(26)}\n`, 0],
    ['a template as rendered, where each inserted value is one word', 'notes.txt', `${sentence(24).slice(0, -1)} {{ .Values.one }} two.\n`, 1],
    ['a command in a template', 'notes.txt', `Run:\n\n  ${sentence(26)}\n`, 0],
  ])('the prose check reads other files: %s', (_title, name, text, count) => {
    expect(errorsOf(text, name)).toHaveLength(count)
  })

  test('the prose check reads the titles of tests, and no other string of a test', () => {
    const text = `test('${sentence(26)}', () => undefined)\ntest.each([['${sentence(27)}', 1]])('%s', () => undefined)\nexport const one = '${sentence(28)}'\n`
    expect(errorsOf(text, 'code.test.ts').map((line) => line.slice(0, 11))).toEqual(['1: 26 words', '2: 27 words'])
  })
})
