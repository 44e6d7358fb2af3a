import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { largeBlobBytes as size } from '../../support/large-blob.ts'
import { startRegistry } from '../../support/parts/registry.ts'

const allowedBytes = 100_000_000

async function directory(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'taproot-memory-'))
  onTestFinished(() => rm(made, { recursive: true, force: true }))
  return made
}

test.for(['disk', 'http'] as const)('%s: a large blob is uploaded and downloaded in little memory', { timeout: 900_000 }, async (kind) => {
  let place = await directory()
  if (kind === 'http') {
    const registry = await startRegistry({ storageDir: place })
    onTestFinished(() => registry.stop())
    place = registry.url
  }
  const script = join(import.meta.dirname, 'memory-child.ts')
  const { stdout } = await promisify(execFile)(process.execPath, ['--disable-warning=ExperimentalWarning', '--expose-gc', script, kind, place, String(size)])
  const measured = JSON.parse(stdout) as { size?: number; grownBytes: number } // a cast: what the child prints
  console.info(`${kind}: ${Math.round(measured.grownBytes / 1e6)} MB for ${size / 1024 / 1024} MiB`)
  expect(measured).toMatchObject({ size })
  expect(measured.grownBytes).toBeLessThan(allowedBytes)
})
