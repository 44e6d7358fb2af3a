import { spawnSync } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { skipFor } from './require-part.ts'

/** A file system on a disk of its own, which can lose its power. */
export interface LossyDisk {
  readonly directory: string
  /** The file system as it is after the power failed now: it has what reached the disk, and nothing of what was only in memory. Resolves with its directory. */
  losePower(): Promise<string>
}

/** Makes a disk of `size` bytes for the running test. Where this machine does not allow that the test is reported as skipped. */
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
