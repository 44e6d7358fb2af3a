// Checks the prose of pages and of comments in src: sentences of at most 25 words, none of the words in tools/prose/words.json. `node tools/prose.js` checks all of them, but
// those in tools/prose/unfinished.json, which have yet to be rewritten: it fails if one of those would pass. `node tools/prose.js <path> ...` checks only these files and folders.
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { TextlintKernel } from '@textlint/kernel'
import markdown from '@textlint/textlint-plugin-markdown'
import { commentsOf } from './prose/comments.js'
import { sentenceLength, words } from './prose/rules.js'

const root = join(import.meta.dirname, '..')
const readJson = (path) => JSON.parse(readFileSync(join(root, path), 'utf8'))
const unfinishedPath = 'tools/prose/unfinished.json'
const kernel = new TextlintKernel()
const lintOptions = {
  ext: '.md',
  plugins: [{ pluginId: 'markdown', plugin: markdown.default ?? markdown }],
  rules: [
    { ruleId: 'sentence-length', rule: sentenceLength, options: { words: 25 } },
    { ruleId: 'words', rule: words, options: { words: readJson('tools/prose/words.json') } },
  ],
}

/** All pages, relative to the root of the repository. */
function pages() {
  const nested = ['.github', 'bench', 'charts', 'docs'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true }).map((path) => `${folder}/${path.replaceAll('\\', '/')}`),
  )
  return [...readdirSync(root), ...nested].filter((path) => path.endsWith('.md')).sort()
}

/** The code whose comments are checked, below a folder. */
function code(folder) {
  const files = readdirSync(join(root, folder), { recursive: true }).map((path) => `${folder}/${path.replaceAll('\\', '/')}`)
  return files.filter((path) => /\.tsx?$/.test(path) && !path.startsWith('src/gen/')).sort()
}

/** Figures that a program writes into a page. */
const figures = /^<!-- figures[^]*?^<!-- end of figures -->$/gm

/** What is checked of a file. */
function textOf(path) {
  const text = readFileSync(join(root, path), 'utf8')
  return /\.tsx?$/.test(path) ? commentsOf(path, text) : text.replaceAll(figures, (block) => block.replaceAll(/[^\n]/g, ''))
}

/** One line for each fault of a file. */
async function faults(path) {
  const text = textOf(path)
  const { messages } = await kernel.lintText(text, { ...lintOptions, filePath: path })
  return messages.map(({ line, message }) => `${path}:${line}: ${message}`)
}

async function checkAll() {
  const unfinished = readJson(unfinishedPath)
  const all = [...pages(), ...code('src')]
  const gone = unfinished.filter((path) => !all.includes(path)).map((path) => `${unfinishedPath}: ${path} does not exist; remove it`)
  const found = await Promise.all(
    all.map(async (path) => {
      const lines = await faults(path)
      if (!unfinished.includes(path)) return lines
      return lines.length === 0 ? [`${unfinishedPath}: ${path} passes; remove it`] : []
    }),
  )
  return [...gone, ...found.flat()]
}

const named = process.argv.slice(2)
const lines =
  named.length === 0
    ? await checkAll()
    : (await Promise.all(named.flatMap((path) => (statSync(join(root, path)).isDirectory() ? code(path.replace(/\/$/, '')) : [path])).map(faults))).flat()
for (const line of lines) process.stderr.write(`${line}\n`)
process.exitCode = lines.length === 0 ? 0 : 1
