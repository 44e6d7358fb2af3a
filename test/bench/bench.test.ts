import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { fullTierDescribe, isFullTier } from '../support/tier.ts'
import { describeWithPart, requirePart } from '../support/parts/require-part.ts'

const program = resolve(import.meta.dirname, '../../bench/main.ts')

interface Ending {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

async function bench(...args: readonly string[]): Promise<Ending> {
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', program, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  onTestFinished(() => void child.kill('SIGTERM'))
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => (stdout += String(chunk)))
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  const [code] = await once(child, 'close')
  return { code: Number(code), stdout, stderr }
}

interface Result {
  readonly id: string
  readonly value: number
  readonly measured: readonly { readonly name: string; readonly perSecond: number; readonly p99: number }[]
}

it('npm run bench --help lists benchmarks and options; unknown names are refused', async () => {
  const help = await bench('--help')
  expect(help).toMatchObject({ code: 0, stderr: '' })
  expect(help.stdout).toMatch(/--only[^]*--full[^]*\n {2}get /)
  const wrong = await bench('--only', 'gett')
  expect(wrong).toMatchObject({ code: 2, stdout: '' })
  expect(wrong.stderr).toContain('no rows are named gett')
})

/** The benchmarks that the full tier measures; `npm test` measures a part of them. */
const measuredRows = isFullTier
  ? {
      groups: 'get,create,checks',
      ids: ['get-rest', 'get-rest-bounded', 'get-grpc', 'create-etcd', 'create-sqlite', 'create-limits', 'checks', 'tokens'],
      ratios: 6,
    }
  : { groups: 'get-rest,create-sqlite', ids: ['get-rest', 'create-sqlite'], ratios: 2 }

fullTierDescribe('npm run bench --only registry', () => {
  it('measures the registry host against its upstream registry, and against signing alone', { timeout: 480_000 }, async () => {
    requirePart('registry')
    const directory = await mkdtemp(join(tmpdir(), 'taproot-bench-test-'))
    onTestFinished(() => rm(directory, { recursive: true, force: true }))
    const file = join(directory, 'results.json')
    const ending = await bench('--only', 'registry', '--records', '1000', '--seconds', '0.1', '--rounds', '1', '--json', file)
    expect(ending.code, ending.stderr + ending.stdout).toBe(0)
    const { rows } = JSON.parse(await readFile(file, 'utf8')) as { rows: readonly Result[] }
    const passed = ['get', 'put'].flatMap((way) => ['-one', ''].flatMap((end) => [`registry-blob-${way}${end}`, `registry-relay-${way}${end}`]))
    const tokens = ['loop', 'loop-each', 'alike', 'each'].map((row) => `registry-token-${row}`.replace('-alike', ''))
    const blobs = ['registry-blob-hot-one', 'registry-blob-hot', ...passed, 'registry-folder-put-one', 'registry-folder-put']
    expect(rows.map((row) => row.id)).toEqual([...blobs, 'registry-manifest', ...tokens, 'registry-history'])
    for (const row of rows) expect(row.measured.map((measured) => measured.perSecond > 0 && measured.p99 > 0)).toEqual([true, true])
    expect(ending.stdout).toMatch(/4 at once, each 64 MiB: Taproot [\d,]+ MiB\/s, CPU per blob: client .*; distribution [\d,]+ MiB\/s/)
  })
})

describeWithPart('etcd', 'npm run bench', () => {
  it('npm run bench measures GET and create requests against minimal servers and stores', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'taproot-bench-test-'))
    onTestFinished(() => rm(directory, { recursive: true, force: true }))
    const file = join(directory, 'results.json')
    const ending = await bench('--only', measuredRows.groups, '--records', '1000', '--seconds', '0.3', '--rounds', '1', '--json', file)
    expect(ending.code, ending.stderr).toBe(0)
    const { rows } = JSON.parse(await readFile(file, 'utf8')) as { rows: readonly Result[] }
    expect(rows.map((row) => row.id)).toEqual(measuredRows.ids)
    for (const row of rows.slice(0, measuredRows.ratios)) {
      expect(row.measured.map((measured) => measured.perSecond > 0 && measured.p99 > 0)).toEqual([true, true])
      expect(row.value).toBeGreaterThan(0)
    }
    expect(ending.stdout).toMatch(/GET one record, REST.* (reached|missed)$/m)
  })
})
