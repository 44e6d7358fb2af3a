import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, open, rm, rmdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const blockBytes = 64 * 1024
const fillerName = 'filler'

/** A small file system in memory that can be filled. */
export class Disk {
  readonly directory: string

  private constructor(directory: string) {
    this.directory = directory
  }

  /** Mounts one of `bytes` bytes at a new directory. Throws if this user or machine can not mount: it needs Linux and root. */
  static async mount(directory: string, bytes: number): Promise<Disk> {
    await mkdir(directory, { recursive: true })
    await run('mount', ['-t', 'tmpfs', '-o', `size=${bytes},mode=0700`, 'taproot-faults', directory])
    return new Disk(directory)
  }

  /** Uses up the free space except for less than a page. */
  async fill(): Promise<void> {
    const file = await open(join(this.directory, fillerName), 'a')
    try {
      for (let size = blockBytes; size >= 4096; size /= 2) while (await this.#wrote(file, size));
    } finally {
      await file.close()
    }
  }

  async #wrote(file: { write(bytes: Buffer): Promise<{ bytesWritten: number }> }, size: number): Promise<boolean> {
    try {
      return (await file.write(Buffer.alloc(size))).bytesWritten === size
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOSPC') return false
      throw error
    }
  }

  /** Frees that space. */
  async free(): Promise<void> {
    await rm(join(this.directory, fillerName), { force: true })
  }

  async unmount(): Promise<void> {
    await run('umount', ['--lazy', this.directory])
  }
}

/** Limits the size of each file of a running process, on Linux; undefined removes the limit. Larger files can't grow. */
export async function limitFileSize(pid: number, bytes: number | undefined): Promise<void> {
  await run('prlimit', ['--pid', String(pid), `--fsize=${bytes ?? 'unlimited'}:unlimited`])
}

/** Returns in one line why no disk can be mounted here; undefined if one can. */
export async function missingMount(): Promise<string | undefined> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-mount-'))
  try {
    await (await Disk.mount(directory, 1 << 20)).unmount()
    return undefined
  } catch {
    return 'a disk in memory can be mounted by root on Linux only'
  } finally {
    await rmdir(directory)
  }
}

/** Returns in one line why file sizes can't be limited here; undefined if they can. */
export async function missingLimit(): Promise<string | undefined> {
  try {
    await run('prlimit', ['--version'])
    return undefined
  } catch {
    return 'there is no prlimit, which comes with Linux'
  }
}
