// Checks the prose of the pages: sentences of at most 25 words, none of the words in tools/prose/words.json. `node tools/prose.js` checks all pages, but those in
// tools/prose/unfinished.json, which have yet to be rewritten: it fails if one of those would pass. `node tools/prose.js <page> ...` checks only these pages.
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { TextlintKernel } from '@textlint/kernel'
import markdown from '@textlint/textlint-plugin-markdown'
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

/** Figures that a program writes into a page. */
const figures = /^<!-- figures[^]*?^<!-- end of figures -->$/gm

/** One line for each fault of a page. */
async function faults(path) {
  const text = readFileSync(join(root, path), 'utf8').replaceAll(figures, (block) => block.replaceAll(/[^\n]/g, ''))
  const { messages } = await kernel.lintText(text, { ...lintOptions, filePath: path })
  return messages.map(({ line, message }) => `${path}:${line}: ${message}`)
}

async function checkAll() {
  const unfinished = readJson(unfinishedPath)
  const all = pages()
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
const lines = named.length === 0 ? await checkAll() : (await Promise.all(named.map(faults))).flat()
for (const line of lines) process.stderr.write(`${line}\n`)
process.exitCode = lines.length === 0 ? 0 : 1
