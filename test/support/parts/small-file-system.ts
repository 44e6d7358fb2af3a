import { spawnSync } from 'node:child_process'
import { mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { skipFor } from './require-part.ts'

/** A file system of its own that can be filled up. */
export interface SmallFileSystem {
  readonly directory: string
  /** Fills `size` bytes, or all free space. */
  fill(size?: number): Promise<void>
  /** Frees the space that `fill` used. */
  makeRoom(): Promise<void>
}

/** Mounts a file system of `size` bytes in memory for the running test. The test is reported as skipped if the machine does not allow that. */
export async function smallFileSystem(size: number): Promise<SmallFileSystem> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-disk-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }))
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=0700`, 'tmpfs', directory])
  if (mounted.status !== 0) skipFor('a file system of its own can not be mounted here (that takes root)')
  onTestFinished(() => void spawnSync('umount', ['--lazy', directory]))
  const ballast = join(directory, 'ballast')
  return {
    directory,
    async fill(bytes = Infinity) {
      const file = await open(ballast, 'a')
      try {
        const page = new Uint8Array(4096)
        for (let left = bytes; left > 0; left -= page.length) await file.write(page)
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error
      } finally {
        await file.close()
      }
    },
    makeRoom: () => rm(ballast),
  }
}
