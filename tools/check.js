// `npm run check`: runs every static check, two at a time, and prints one line for each. A failed check prints its output. To run only
// some checks, pass their names as arguments.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')
const atOnce = 2

/** The checks, slowest first, so that both lanes end at about the same time. */
const steps = [
  { name: 'lint', command: bin('eslint', '--max-warnings=0', '.') },
  // The native compiler: an eighth of the processor time. ESLint needs the one in JavaScript.
  {
    name: 'types',
    command: [
      process.execPath,
      'node_modules/typescript-native/bin/tsc',
      '--noEmit',
      '--pretty',
      'false',
      '--incremental',
      '--tsBuildInfoFile',
      cacheFile('types.tsbuildinfo'),
    ],
  },
  { name: 'generated files', command: [process.execPath, 'tools/generate.js', '--check'] },
  { name: 'unused code', command: bin('knip', '--no-progress') },
  { name: 'prose', command: [process.execPath, 'tools/prose.js'] },
  { name: 'layout', command: [process.execPath, 'tools/layout.js'] },
  { name: 'citations and links', command: [process.execPath, 'tools/rule-book.js'] },
  {
    name: 'format',
    command: bin('prettier', '--check', '--log-level=warn', '--cache', '--cache-strategy=content', `--cache-location=${cacheFile('prettier')}`, '.'),
  },
  {
    name: 'import rules',
    command: bin('depcruise', '--config=.dependency-cruiser.cjs', '--output-type=err', ...existing('src', 'test', 'tools', 'bench', 'bin')),
  },
]

const wanted = process.argv.slice(2)
const unknown = wanted.filter((name) => !steps.some((step) => step.name === name))
if (unknown.length > 0) {
  process.stderr.write(`unknown check: ${unknown.join(', ')}; use: ${steps.map((step) => step.name).join(', ')}\n`)
  process.exit(2)
}

const queue = steps.filter((step) => wanted.length === 0 || wanted.includes(step.name))
const total = queue.length
const failed = []
await Promise.all(Array.from({ length: atOnce }, lane))
process.stdout.write(failed.length === 0 ? `${total} checks passed\n` : `${failed.length} of ${total} checks failed: ${failed.join(', ')}\n`)
process.exitCode = failed.length === 0 ? 0 : 1

async function lane() {
  for (let step = queue.shift(); step !== undefined; step = queue.shift()) {
    const startedAt = performance.now()
    const { ok, output } = await run(step.command)
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    if (!ok) failed.push(step.name)
    process.stdout.write(ok ? `ok    ${step.name} (${seconds} s)\n` : `FAIL  ${step.name} (${seconds} s)\n${output.trimEnd()}\n`)
  }
}

/** Returns the path of a check's cache, which skips unchanged files. Git ignores it. */
function cacheFile(name) {
  return join(root, 'node_modules', '.cache', 'checks', name)
}

/** Returns the command line of an installed package. */
function bin(name, ...args) {
  return [join(root, 'node_modules', '.bin', name), ...args]
}

function existing(...folders) {
  return folders.filter((folder) => existsSync(join(root, folder)))
}

/** Runs a command. Never rejects: a command that cannot start counts as failed. */
function run([command, ...args]) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
    const chunks = []
    child.stdout.on('data', (chunk) => chunks.push(chunk))
    child.stderr.on('data', (chunk) => chunks.push(chunk))
    child.on('error', (error) => resolve({ ok: false, output: error.message }))
    child.on('close', (code) => resolve({ ok: code === 0, output: Buffer.concat(chunks).toString('utf8') }))
  })
}
