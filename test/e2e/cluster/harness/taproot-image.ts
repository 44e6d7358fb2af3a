import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { requirePart } from '../../../support/parts/require-part.ts'
import { run } from './command.ts'
import { canOverlay } from './storage.ts'

const checkout = join(import.meta.dirname, '..', '..', '..', '..')
const cache = join(checkout, 'node_modules', '.cache', 'taproot-image')
/** The files of the image, as in .dockerignore. */
export const imageSources = ['Dockerfile', '.dockerignore', 'LICENSE', '.npmrc', 'package.json', 'package-lock.json', 'bin', 'src']
/** The path at which a build finds the additional certificate authorities of this machine. */
const authoritiesInBuild = '/extra-ca.pem'

/** An image in a file. */
export interface TaprootImage {
  /** An OCI archive with compressed layers, in which the image has the tag `tag`. */
  readonly archive: string
  /** The repository for `importImage`: the image is then `<repository>:<tag>`. */
  readonly repository: string
  readonly tag: string
}

/** Builds the image of a source tree from its Dockerfile, unless it is up to date. Needs root. */
export async function buildTaprootImage(root: string = checkout): Promise<TaprootImage> {
  const base = requirePart('base-image')
  const tag = await hashOf(root, base)
  // Only the newest image of this checkout and that of one other tree are kept.
  const directory = join(cache, root === checkout ? 'own' : 'other')
  const archive = join(directory, `${tag}.tar`)
  if (!existsSync(archive)) {
    await rm(directory, { recursive: true, force: true })
    await mkdir(directory, { recursive: true })
    await build({ root, base, tag, archive })
  }
  return { archive, repository: 'taproot.test/taproot', tag }
}

async function hashOf(root: string, base: string): Promise<string> {
  const hash = createHash('sha256').update(base)
  for (const source of imageSources) {
    for (const file of await filesOf(join(root, source))) hash.update(`${relative(root, file)}\0`).update(await readFile(file))
  }
  return hash.digest('hex').slice(0, 16)
}

async function filesOf(path: string): Promise<string[]> {
  if (!(await stat(path)).isDirectory()) return [path]
  const entries = await readdir(path, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
}

async function build({ root, base, tag, archive }: { root: string; base: string; tag: string; archive: string }): Promise<void> {
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string } // a cast: our own file
  const home = await mkdtemp(join(tmpdir(), 'taproot-image-'))
  try {
    const storage = ['--root', join(home, 'storage'), '--runroot', join(home, 'run'), '--storage-driver', (await canOverlay()) ? 'overlay' : 'vfs']
    const authorities = process.env['NODE_EXTRA_CA_CERTS']
    const trust =
      authorities === undefined ? [] : ['--volume', `${authorities}:${authoritiesInBuild}:ro`, '--build-arg', `NODE_EXTRA_CA_CERTS=${authoritiesInBuild}`]
    const values = { BASE: `oci-archive:${base}`, VERSION: version, REVISION: tag }
    const settings = Object.entries(values).flatMap(([name, value]) => ['--build-arg', `${name}=${value}`])
    const buildah = requirePart('buildah')
    await run(buildah, [...storage, 'build', '--isolation', 'chroot', '--format', 'oci', ...settings, ...trust, '--tag', 'localhost/taproot', root])
    const unfinished = `${archive}.${process.pid}`
    await run(buildah, [...storage, 'push', 'localhost/taproot', `oci-archive:${unfinished}:${tag}`])
    await rename(unfinished, archive)
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}
