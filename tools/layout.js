// Checks the layout of src and test (docs/contributing/layout.md): sizes of folders, names of types, and the files listed in
// docs/contributing/life-of-a-request.md. `node tools/layout.js [<root of a repository>]`.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const root = process.argv[2] ?? join(import.meta.dirname, '..')
const generated = 'src/gen'
const walks = 'docs/contributing/life-of-a-request.md'

/** Minimum number of files and folders in a folder of src, and maximum number of files. The maximum also applies to test. */
const entries = { least: 3, most: 20 }

/** A file with fewer lines than this, and with only one importer in its folder, must be part of that importer. */
const helperLines = 40

/** Exceptions to this rule, with reasons. */
const helpers = {
  'src/audit/index-worker.ts': 'it runs in a thread of its own',
  'src/catalogue/advisories/advisory-worker.ts': 'it runs in a thread of its own',
  'src/catalogue/libraries/library-worker.ts': 'it runs in a thread of its own',
  'src/catalogue/lifecycle/lifecycle-worker.ts': 'it runs in a thread of its own',
  'src/catalogue/vulnerabilities/vulnerability-worker.ts': 'it runs in a thread of its own',
  'src/cli/kubectl-plugin.ts': 'it is loaded after the compile cache is enabled',
  'src/contents/layers/readers/apk.ts': 'one file for each reader',
  'src/contents/layers/readers/dpkg.ts': 'one file for each reader',
  'src/contents/layers/readers/npm.ts': 'one file for each reader',
  'src/contents/layers/readers/python.ts': 'one file for each reader',
  'src/contents/segments/segment-worker.ts': 'it runs in a thread of its own',
  'src/registry/readme/readme-worker.ts': 'it runs in a thread of its own',
  'src/server/store-format.ts': 'a concept of its own: versions of the stored format',
}

/** Maximum number of files that a request may pass through. */
const filesOfWalk = 18

const problems = [...folderProblems('src'), ...folderProblems('test'), ...helperProblems(), ...typeProblems(), ...walkProblems()]
for (const problem of problems) process.stdout.write(`${problem}\n`)
process.exitCode = problems.length === 0 ? 0 : 1

/** Returns a problem for each folder with too many files, or too few entries. */
function folderProblems(folder) {
  if (folder === generated) return []
  const found = readdirSync(join(root, folder), { withFileTypes: true })
  // An empty folder is left over from a move, since Git stores no empty folders.
  if (found.length === 0) return []
  const files = found.filter((entry) => entry.isFile())
  const below = found.filter((entry) => entry.isDirectory()).flatMap(({ name }) => folderProblems(`${folder}/${name}`))
  if (files.length > entries.most) below.push(`${folder} has ${files.length} files; a folder has at most ${entries.most}: split it by subject`)
  if (folder.startsWith('src') && found.length < entries.least)
    below.push(`${folder} has ${found.length} entries; a folder has at least ${entries.least}: move them up`)
  return below
}

/** Returns the paths of the TypeScript files in a folder, without generated ones. */
function sourcesOf(folder) {
  if (!existsSync(join(root, folder))) return []
  const found = readdirSync(join(root, folder), { recursive: true }).map((path) => `${folder}/${path}`)
  return found.filter((path) => path.endsWith('.ts') && !path.startsWith(`${generated}/`))
}

/** Returns a problem for each small file that only one file of its folder imports. */
function helperProblems() {
  const importers = new Map()
  for (const path of [...sourcesOf('src'), ...sourcesOf('test')])
    for (const [, target] of readFileSync(join(root, path), 'utf8').matchAll(/(?:from|import\() ?'(\.[^']+)'/g)) {
      const imported = join(dirname(path), target)
      importers.set(imported, [...(importers.get(imported) ?? []), path])
    }
  return sourcesOf('src').flatMap((path) => {
    const [user, ...others] = importers.get(path) ?? []
    const isTable = /\/(index|main)\.ts$/.test(user ?? '')
    if (user === undefined || others.length > 0 || isTable || dirname(user) !== dirname(path) || path in helpers) return []
    const lines = readFileSync(join(root, path), 'utf8').split('\n').length
    return lines < helperLines ? [`${path} has ${lines} lines and only ${user} imports it: move it there`] : []
  })
}

/** Returns a problem for each type name that two files export. */
function typeProblems() {
  const places = new Map()
  for (const path of readdirSync(join(root, 'src'), { recursive: true })) {
    if (!path.endsWith('.ts') || path.startsWith('gen/')) continue
    const text = readFileSync(join(root, 'src', path), 'utf8')
    for (const [, name] of text.matchAll(/^export (?:abstract )?(?:interface|type|class) (\w+)/gm))
      places.set(name, [...(places.get(name) ?? []), `src/${path}`])
  }
  return [...places]
    .filter(([, files]) => files.length > 1)
    .map(([name, files]) => `type ${name} is exported by ${files.join(' and ')}: give each its own name`)
}

/** Returns a problem for each described request that passes through too many files, or through a file that does not exist. */
function walkProblems() {
  const sections = readFileSync(join(root, walks), 'utf8').split(/^## /m).slice(1)
  return sections.flatMap((section) => {
    const title = section.split('\n', 1)[0]
    const files = [...section.matchAll(/`(src\/[\w./-]+\.ts)`/g)].map(([, file]) => file)
    const missing = files.filter((file) => !existsSync(join(root, file))).map((file) => `${walks}: ${file} does not exist`)
    const distinct = new Set(files).size
    return distinct > filesOfWalk ? [...missing, `${walks}: "${title}" passes ${distinct} files; at most ${filesOfWalk}`] : missing
  })
}
