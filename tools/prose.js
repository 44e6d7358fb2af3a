// Checks the prose that people read: sentences of at most 25 words, none of the words in tools/prose/words.json. It reads pages, comments, error messages and help texts in src and
// tools, titles and comments of tests, comments in proto, and templates. `node tools/prose.js` checks everything,
// `node tools/prose.js <path> ...` only these files and folders.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { TextlintKernel } from '@textlint/kernel'
import markdown from '@textlint/textlint-plugin-markdown'
import { sentenceLength, words } from './prose/rules.js'
import { pagesOf } from './prose/texts.js'

const root = join(import.meta.dirname, '..')
const readJson = (path) => JSON.parse(readFileSync(join(root, path), 'utf8'))
const kernel = new TextlintKernel()
const lintOptions = {
  ext: '.md',
  plugins: [{ pluginId: 'markdown', plugin: markdown.default ?? markdown }],
  rules: [
    { ruleId: 'sentence-length', rule: sentenceLength, options: { words: 25 } },
    { ruleId: 'words', rule: words, options: { words: readJson('tools/prose/words.json') } },
  ],
}

/** Where prose is, by the folder and the pattern of its files; '' is the root without its folders. */
const places = [
  ['', /\.md$/],
  ['.github', /\.(?:md|yml)$/],
  ['bench', /\.(?:md|ts)$/],
  ['charts', /\.md$|\/templates\//],
  ['deploy', /\.(?:md|sh|yaml)$/],
  ['docs', /\.md$/],
  ['proto', /\.proto$/],
  ['src', /(?<!^src\/gen\/.*)\.tsx?$/],
  ['test', /\.ts$/],
  ['tools', /(?<!^tools\/parts\/.*)\.js$/],
]

/** All files below a folder, as paths from the root of the repository. */
function filesIn(folder) {
  const files = readdirSync(join(root, folder), { recursive: folder !== '' }).map((path) => join(folder, path).replaceAll('\\', '/'))
  return files.filter((path) => statSync(join(root, path)).isFile()).sort()
}

const placed = (folder) => places.filter(([place]) => place === folder || (place !== '' && folder.startsWith(`${place}/`)))

/** The files with prose in a folder. */
const proseIn = (folder) => placed(folder).flatMap(([, pattern]) => filesIn(folder).filter((path) => pattern.test(path)))

/** Figures that a program writes into a page. */
const figures = /^<!-- figures[^]*?^<!-- end of figures -->$/gm

function pages(path) {
  const text = readFileSync(join(root, path), 'utf8')
  if (!path.endsWith('.md')) return pagesOf(path, text)
  return [{ text: text.replaceAll(figures, (block) => block.replaceAll(/[^\n]/g, '')) }]
}

/** The faults of a file, one line for each. */
async function faults(path) {
  const found = pages(path).map(async ({ text, from }) => {
    if (text.trim() === '') return []
    const { messages } = await kernel.lintText(text, { ...lintOptions, filePath: path })
    return messages.map(({ line, message }) => `${path}:${from?.[line - 1] ?? line}: ${message}`)
  })
  return (await Promise.all(found)).flat()
}

/** The files of a path. All files with prose belong to the root, `.`. */
function filesOf(path) {
  if (path === '.') return places.flatMap(([folder]) => proseIn(folder))
  return existsSync(join(root, path)) && statSync(join(root, path)).isDirectory() ? proseIn(path) : [path]
}

const named = process.argv.slice(2).map((path) => path.replace(/\/$/, ''))
const files = (named.length === 0 ? ['.'] : named).flatMap(filesOf)
const lines = (await Promise.all(files.map(faults))).flat()
for (const line of lines) process.stderr.write(`${line}\n`)
process.exitCode = lines.length === 0 ? 0 : 1
