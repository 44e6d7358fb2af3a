// Checks the layout of src and test (docs/contributing/layout.md): sizes of folders, names of types, and the files that docs/contributing/life-of-a-request.md lists.
// `node tools/layout.js [<root of a repository>]`.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const root = process.argv[2] ?? join(import.meta.dirname, '..')
const generated = 'src/gen'
const walks = 'docs/contributing/life-of-a-request.md'

/** Entries of a folder of src: at least so many files and folders, and at most so many files. The maximum holds for test too. */
const entries = { least: 3, most: 20 }

/** A request passes through at most so many files. */
const filesOfWalk = 18

const problems = [...folderProblems('src'), ...folderProblems('test'), ...typeProblems(), ...walkProblems()]
for (const problem of problems) process.stdout.write(`${problem}\n`)
process.exitCode = problems.length === 0 ? 0 : 1

/** Folders with too many files, or too few entries. */
function folderProblems(folder) {
  if (folder === generated) return []
  const found = readdirSync(join(root, folder), { withFileTypes: true })
  // Git keeps no empty folders: ignore one that a move left behind.
  if (found.length === 0) return []
  const files = found.filter((entry) => entry.isFile())
  const below = found.filter((entry) => entry.isDirectory()).flatMap(({ name }) => folderProblems(`${folder}/${name}`))
  if (files.length > entries.most) below.push(`${folder} has ${files.length} files; a folder has at most ${entries.most}: split it by subject`)
  if (folder.startsWith('src') && found.length < entries.least)
    below.push(`${folder} has ${found.length} entries; a folder has at least ${entries.least}: move them up`)
  return below
}

/** Names of exported types that two files declare. */
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

/** Walks that list too many files, or a file that does not exist. */
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
