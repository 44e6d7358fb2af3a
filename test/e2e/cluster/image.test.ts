import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeWithCluster } from './harness/cluster.ts'
import { run } from './harness/command.ts'
import { buildTaprootImage } from './harness/taproot-image.ts'

const root = join(import.meta.dirname, '..', '..', '..')
const limitBytes = 120 * 1000 * 1000

interface Blob {
  readonly digest: string
  readonly size: number
}

interface Manifest {
  readonly config: Blob
  readonly layers: readonly Blob[]
}

interface ImageConfig {
  readonly config: { readonly User: string; readonly Entrypoint: readonly string[]; readonly Labels: Readonly<Record<string, string>> }
}

interface Sbom {
  readonly bomFormat: string
  readonly metadata: { readonly component: { readonly name: string; readonly version: string } }
  readonly components: readonly { readonly name: string; readonly version: string }[]
}

describeWithCluster('the container image', () => {
  let home = ''
  let manifest: Manifest
  beforeAll(async () => {
    const { archive } = await buildTaprootImage()
    home = await mkdtemp(join(tmpdir(), 'taproot-image-test-'))
    await run('tar', ['--extract', `--file=${archive}`, `--directory=${home}`])
    const index = await readJson<{ manifests: readonly [Blob] }>(join(home, 'index.json'))
    manifest = await readJson<Manifest>(blob(index.manifests[0]))
    await run('tar', ['--extract', `--file=${ourLayer()}`, `--directory=${home}`])
  }, 900_000)
  afterAll(() => rm(home, { recursive: true, force: true }))

  /** The layer of this image. The layers before it are those of the base image. */
  const ourLayer = (): string => blob(manifest.layers.at(-1) ?? manifest.config)
  const blob = ({ digest }: Blob): string => join(home, 'blobs', digest.replace(':', '/'))

  test('the container image is smaller than 120 MB compressed', () => {
    expect(manifest.layers.reduce((sum, { size }) => sum + size, 0)).toBeLessThan(limitBytes)
  })

  test('the container image runs the command as a user other than root, and shows its version', async () => {
    const { version, license, description } = await readJson<Record<string, string>>(join(root, 'package.json'))
    const { config } = await readJson<ImageConfig>(blob(manifest.config))
    expect(config.User).toBe('65532:65532')
    expect(config.Entrypoint).toEqual(['taproot'])
    expect(config.Labels).toMatchObject({
      'org.opencontainers.image.title': 'taproot',
      'org.opencontainers.image.description': description,
      'org.opencontainers.image.licenses': license,
      'org.opencontainers.image.version': version,
      'org.opencontainers.image.revision': expect.stringMatching(/^[0-9a-f]{16}$/),
    })
  })

  test('the container image contains exactly the runtime packages of the lock file', async () => {
    const lock = await readJson<{ packages: Readonly<Record<string, { dev?: boolean; optional?: boolean; version: string }>> }>(join(root, 'package-lock.json'))
    const wanted = Object.entries(lock.packages).filter(([path, { dev }]) => path !== '' && dev !== true && !/^node_modules\/node(-bin-setup)?$/.test(path))
    const installed = new Map((await packagesIn(join(home, 'opt', 'taproot', 'node_modules'))).map(({ path, version }) => [path, version]))
    const missing = wanted.filter(([path, { optional, version }]) => installed.get(path) !== version && !(optional === true && !installed.has(path)))
    expect(missing).toEqual([])
    expect([...installed.keys()].filter((path) => !wanted.some(([known]) => known === path))).toEqual([])
  })

  test('the container image lists each of its packages in its software bill of materials', async () => {
    const sbom = await readJson<Sbom>(join(home, 'opt', 'taproot', 'sbom.cdx.json'))
    expect(sbom).toMatchObject({
      bomFormat: 'CycloneDX',
      metadata: { component: { name: 'taproot', version: (await readJson<{ version: string }>(join(root, 'package.json'))).version } },
    })
    const named = new Set(sbom.components.map(({ name, version }) => `${name}@${version}`))
    const installed = (await packagesIn(join(home, 'opt', 'taproot', 'node_modules'))).map(({ name, version }) => `${name}@${version}`)
    expect(installed.length).toBeGreaterThan(20)
    expect(installed.filter((known) => !named.has(known))).toEqual([])
  })

  test('the container image belongs to root, and no other user can write its files', async () => {
    const lines = (await run('tar', ['--list', '--verbose', '--numeric-owner', `--file=${ourLayer()}`])).trim().split('\n')
    const theirs = lines.filter((line) => !/^.{10} 0\/0 /.test(line) || (!line.startsWith('l') && /^.{8}w/.test(line) && !/^.{9}t/.test(line)))
    expect(theirs.map((line) => line.split(' ').at(-1))).toEqual(['var/lib/taproot/'])
  })

  test('the container image contains no tests and no tools', async () => {
    expect((await readdir(join(home, 'opt', 'taproot'))).sort()).toEqual([
      '.compile-cache',
      'LICENSE',
      'bin',
      'node_modules',
      'package.json',
      'sbom.cdx.json',
      'src',
    ])
  })
})

/** Returns the packages in a folder by their path in a lock file. */
async function packagesIn(modules: string, under = 'node_modules'): Promise<{ path: string; name: string; version: string }[]> {
  const entries = (await readdir(modules)).filter((name) => !name.startsWith('.'))
  const names = await Promise.all(
    entries.map(async (name) => (name.startsWith('@') ? (await readdir(join(modules, name))).map((inner) => `${name}/${inner}`) : [name])),
  )
  const found = names.flat().map(async (folder) => {
    const { name, version } = await readJson<{ name: string; version: string }>(join(modules, folder, 'package.json'))
    const path = `${under}/${folder}`
    const inner = join(modules, folder, 'node_modules')
    const nested = await stat(inner).then(
      () => packagesIn(inner, `${path}/node_modules`),
      () => [],
    )
    return [{ path, name, version }, ...nested]
  })
  return (await Promise.all(found)).flat()
}

async function readJson<Value>(file: string): Promise<Value> {
  return JSON.parse(await readFile(file, 'utf8')) as Value // a cast: files of known shape
}
