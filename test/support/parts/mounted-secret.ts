import { randomBytes } from 'node:crypto'
import { lstat, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Files of a Secret as the kubelet mounts them: each is a symbolic link into `..data`, which is one to the folder of this version. */
export interface MountedSecret {
  readonly directory: string
  /** Path of a file. */
  path(name: string): string
  /** Replaces all files at once. */
  replace(files: Readonly<Record<string, string | Buffer>>): Promise<void>
  remove(): Promise<void>
}

/** Mounts files in a new directory. */
export async function mountSecret(files: Readonly<Record<string, string | Buffer>>): Promise<MountedSecret> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-secret-'))
  const replace = async (contents: Readonly<Record<string, string | Buffer>>): Promise<void> => {
    const version = `..${randomBytes(6).toString('hex')}`
    await mkdir(join(directory, version))
    for (const [name, content] of Object.entries(contents)) await writeFile(join(directory, version, name), content)
    await symlink(version, join(directory, '..data_tmp'))
    await rename(join(directory, '..data_tmp'), join(directory, '..data'))
    for (const name of Object.keys(contents)) {
      const isThere = await lstat(join(directory, name)).then(
        () => true,
        () => false,
      )
      if (!isThere) await symlink(join('..data', name), join(directory, name))
    }
  }
  await replace(files)
  return { directory, path: (name) => join(directory, name), replace, remove: () => rm(directory, { recursive: true, force: true }) }
}
