import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, open, rm, rmdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const blockBytes = 64 * 1024
const fillerName = 'filler'

/** A small file system in memory, that can be filled. */
export class Disk {
  readonly directory: string

  private constructor(directory: string) {
    this.directory = directory
  }

  /** Mounts one of so many bytes at a new directory. Throws where this user or machine may not mount: it needs Linux and root. */
  static async mount(directory: string, bytes: number): Promise<Disk> {
    await mkdir(directory, { recursive: true })
    await run('mount', ['-t', 'tmpfs', '-o', `size=${bytes},mode=0700`, 'taproot-faults', directory])
    return new Disk(directory)
  }

  /** Takes all the room that is left, but for less than a page. */
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

  /** Gives the room back. */
  async free(): Promise<void> {
    await rm(join(this.directory, fillerName), { force: true })
  }

  async unmount(): Promise<void> {
    await run('umount', ['--lazy', this.directory])
  }
}

/** Bounds how large any file of a running process may become, on Linux; undefined takes the bound away. Files that are larger can't grow. */
export async function limitFileSize(pid: number, bytes: number | undefined): Promise<void> {
  await run('prlimit', ['--pid', String(pid), `--fsize=${bytes ?? 'unlimited'}:unlimited`])
}

/** Why no disk can be mounted here, in one line; undefined where one can. */
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

/** Why file sizes can't be limited here, in one line; undefined where they can. */
export async function missingLimit(): Promise<string | undefined> {
  try {
    await run('prlimit', ['--version'])
    return undefined
  } catch {
    return 'there is no prlimit, which comes with Linux'
  }
}
