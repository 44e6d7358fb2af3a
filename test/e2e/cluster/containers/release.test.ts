import { closeSync, existsSync, openSync, readdirSync, readSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { imageDigest, imageManifests } from '../../../../tools/release/image.js'
import { crane } from '../../../support/parts/crane.ts'
import { startRegistry } from '../../../support/parts/registry.ts'
import { describeWithParts, requirePart } from '../../../support/parts/require-part.ts'
import { run } from '../harness/command.ts'
import { canOverlay } from '../harness/storage.ts'

const root = join(import.meta.dirname, '..', '..', '..', '..')
/** What the header of a program or library says about its processor (e_machine of ELF). */
const machines = { amd64: 0x3e, arm64: 0xb7 } as const

// docs/contributing/releasing.md: a dry run on a machine that runs no programs for arm64
describeWithParts(['base-image', 'base-image-arm64', 'buildah', 'crane', 'helm', 'registry'], 'the image of a release', () => {
  let home = ''
  let output = ''
  const trees = {} as Record<keyof typeof machines, string>
  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'taproot-release-image-'))
    output = join(home, 'release')
    const flags = ['--dry-run', '--registry', 'registry.example.com/platform', '--output', output, '--base', await baseOfBoth(home)]
    await run(process.execPath, [join(root, 'tools', 'release.js'), ...flags], { cwd: home })
    for (const { platform, layers } of imageManifests(output)) {
      const tree = join(home, platform.architecture)
      await mkdir(tree)
      for (const layer of layers) await run('tar', ['--extract', '--no-same-owner', `--file=${layer}`, `--directory=${tree}`])
      trees[platform.architecture as keyof typeof machines] = tree // a cast: the platforms of the dry run
    }
  })
  afterAll(() => rm(home, { recursive: true, force: true }))

  test('the image of a release is there for both platforms, with one list of packages and checksums of all files', async () => {
    expect(Object.keys(trees).toSorted()).toEqual(['amd64', 'arm64'])
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string } // a cast: our own file
    const names = ['SHA256SUMS', 'image', 'release-notes.md', 'sbom.cdx.json', `taproot-${version}-image.tar`, `taproot-${version}.tgz`]
    expect(readdirSync(output).toSorted()).toEqual(names)
    const sums = await run('sha256sum', ['--check', 'SHA256SUMS'], { cwd: output })
    expect(sums.trim().split('\n').toSorted()).toEqual(names.filter((name) => /sbom|taproot/.test(name)).map((name) => `${name}: OK`))
  })

  test('the image of a release has the digest that is signed, once it is pushed', async () => {
    const registry = await startRegistry()
    onTestFinished(() => registry.stop())
    const name = `127.0.0.1:${registry.port}/taproot:latest`
    expect(await crane(['push', join(output, 'image'), name])).toMatchObject({ code: 0 })
    expect((await crane(['digest', name])).stdout.trim()).toBe(imageDigest(output))
  })

  test.each(Object.entries(machines))('the image of a release has only programs and libraries for its processor: %s', async (name, machine) => {
    const tree = trees[name as keyof typeof machines] // a cast: a key of the table
    const natives = (await filesIn(tree)).flatMap((file) => nativeOf(join(tree, file)) ?? [])
    expect(natives.length).toBeGreaterThan(50)
    expect(natives.filter((native) => native.machine !== machine)).toEqual([])
    expect(natives.map(({ path }) => path)).toContain(join(tree, 'usr/local/bin/node'))
  })

  test('the image of a release has the same packages on both processors; none of them is native', async () => {
    const folder = 'opt/taproot/node_modules'
    const [own, other] = [await filesIn(join(trees.amd64, folder)), await filesIn(join(trees.arm64, folder))]
    expect(other).toEqual(own)
    expect(other.filter((file) => nativeOf(join(trees.arm64, folder, file)) !== undefined)).toEqual([])
  })

  test('the image of a release has compiled modules for the processor that compiled them only', async () => {
    const folder = (tree: string): string => join(tree, 'opt/taproot/.compile-cache')
    expect(existsSync(folder(trees.arm64))).toBe(true)
    const [own, other] = process.arch === 'arm64' ? [trees.arm64, trees.amd64] : [trees.amd64, trees.arm64]
    expect((await filesIn(folder(own))).length).toBeGreaterThan(100)
    expect(await filesIn(folder(other))).toEqual([])
  })
})

/** Writes one image with the base images of both platforms, as registries have them. Returns its name, for programs that run in `home`. */
async function baseOfBoth(home: string): Promise<string> {
  const layout = join(home, 'base')
  const driver = (await canOverlay()) ? 'overlay' : 'vfs'
  const storage = ['--root', join(home, 'storage'), '--runroot', join(home, 'run'), '--storage-driver', driver]
  const buildah = (...args: string[]): Promise<string> => run(requirePart('buildah'), [...storage, ...args])
  await buildah('manifest', 'create', 'base')
  await buildah('manifest', 'add', '--arch', process.arch === 'x64' ? 'amd64' : process.arch, 'base', `oci-archive:${requirePart('base-image')}`)
  await buildah('manifest', 'add', '--arch', 'arm64', 'base', `oci-archive:${requirePart('base-image-arm64')}`)
  await buildah('manifest', 'push', '--all', 'base', `oci:${layout}:base`)
  // buildah makes the name of a local image from this path, and accepts lower case only.
  return 'oci:base:base'
}

/** Returns the paths of the regular files below a folder, sorted. Does not follow links, which lead out of an image that is only unpacked. */
async function filesIn(folder: string): Promise<string[]> {
  const lines = await run('find', [folder, '-type', 'f', '-printf', '%P\n'])
  return lines.split('\n').slice(0, -1).toSorted()
}

/** Returns the processor of a program or a library; undefined for other files. */
function nativeOf(path: string): { path: string; machine: number } | undefined {
  const header = Buffer.alloc(20)
  const file = openSync(path, 'r')
  try {
    if (readSync(file, header) < header.length || header.toString('latin1', 0, 4) !== '\x7fELF') return undefined
    return { path, machine: header.readUInt16LE(18) }
  } finally {
    closeSync(file)
  }
}
