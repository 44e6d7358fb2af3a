// Checks the prose that people read: sentences have at most 25 words, and none of the words in tools/prose/words.json. It reads pages,
// comments, error messages, help texts, test titles and templates. `node tools/prose.js` checks everything, `node tools/prose.js <path>
// ...` only these files and folders.
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

/** Where prose is: folders, and patterns of their files. '' means the root without its folders. */
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

/** Returns the paths of all files below a folder, relative to the root of the repository. */
function filesIn(folder) {
  const files = readdirSync(join(root, folder), { recursive: folder !== '' }).map((path) => join(folder, path).replaceAll('\\', '/'))
  return files.filter((path) => statSync(join(root, path)).isFile()).sort()
}

const placed = (folder) => places.filter(([place]) => place === folder || (place !== '' && folder.startsWith(`${place}/`)))

/** Returns the files in a folder that contain prose. */
const proseIn = (folder) => placed(folder).flatMap(([, pattern]) => filesIn(folder).filter((path) => pattern.test(path)))

/** Matches a block of figures that a program writes into a page. */
const figures = /^<!-- figures[^]*?^<!-- end of figures -->$/gm

function pages(path) {
  const text = readFileSync(join(root, path), 'utf8')
  if (!path.endsWith('.md')) return pagesOf(path, text)
  return [{ text: text.replaceAll(figures, (block) => block.replaceAll(/[^\n]/g, '')) }]
}

/** Returns the faults of a file, one line each. */
async function faults(path) {
  const found = pages(path).map(async ({ text, from }) => {
    if (text.trim() === '') return []
    const { messages } = await kernel.lintText(text, { ...lintOptions, filePath: path })
    return messages.map(({ line, message }) => `${path}:${from?.[line - 1] ?? line}: ${message}`)
  })
  return (await Promise.all(found)).flat()
}

/** Returns the files to check for a path. `.` means all files. */
function filesOf(path) {
  if (path === '.') return places.flatMap(([folder]) => proseIn(folder))
  return existsSync(join(root, path)) && statSync(join(root, path)).isDirectory() ? proseIn(path) : [path]
}

const named = process.argv.slice(2).map((path) => path.replace(/\/$/, ''))
const files = (named.length === 0 ? ['.'] : named).flatMap(filesOf)
const lines = (await Promise.all(files.map(faults))).flat()
for (const line of lines) process.stderr.write(`${line}\n`)
process.exitCode = lines.length === 0 ? 0 : 1
