import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'

const manifests = 20_000
/** Numbers of the digests, and each digest once. The records take 45 MB in the store. */
const allowedBytes = 40_000_000
/** The heap limit of the process, in MiB. */
const heapMebibytes = 96

test('the collection of a repo with 20,000 manifests of twelve layers needs little memory', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-collect-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true }))
  const flags = ['--disable-warning=ExperimentalWarning', '--expose-gc', `--max-old-space-size=${heapMebibytes}`]
  const child = [join(import.meta.dirname, 'memory-child.ts'), join(directory, 'store.db'), String(manifests)]
  const { stdout } = await promisify(execFile)(process.execPath, [...flags, ...child])
  const measured = JSON.parse(stdout) as { manifests: number; grownBytes: number } // a cast: what the child prints
  console.info(`${Math.round(measured.grownBytes / 1e6)} MB for ${manifests} manifests`)
  expect(measured.manifests).toBe(manifests)
  expect(measured.grownBytes).toBeLessThan(allowedBytes)
})
