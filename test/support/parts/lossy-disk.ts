import { spawnSync } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { skipFor } from './require-part.ts'

/** A file system on a simulated disk that can lose power. */
export interface LossyDisk {
  readonly directory: string
  /** Simulates a power failure: only data flushed to the disk remains. Resolves with the directory of the file system. */
  losePower(): Promise<string>
}

/** Creates a disk of `size` bytes for the running test. The test is reported as skipped if the machine does not allow that. */
export async function lossyDisk(size: number): Promise<LossyDisk> {
  const base = await mkdtemp(join(tmpdir(), 'taproot-lossy-'))
  onTestFinished(() => rm(base, { recursive: true, force: true, maxRetries: 3 }))
  const image = join(base, 'disk')
  await writeFile(image, '')
  await truncate(image, size)
  if (spawnSync('mkfs.ext4', ['-q', image]).status !== 0) skipFor('a file system of its own can not be made here (that takes mkfs.ext4)')
  let losses = 0
  return {
    directory: await mount(image, join(base, 'mounted')),
    async losePower() {
      const left = `${image}-${++losses}`
      await copyFile(image, left)
      return mount(left, join(base, `left-${losses}`))
    },
  }
}

async function mount(image: string, directory: string): Promise<string> {
  await mkdir(directory)
  if (spawnSync('mount', ['-o', 'loop', image, directory]).status !== 0) skipFor('a file system of its own can not be mounted here (that takes root)')
  onTestFinished(() => void spawnSync('umount', ['--lazy', directory]))
  return directory
}
