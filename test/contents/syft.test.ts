import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import { PackageURL } from 'packageurl-js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf, hexOf } from '../../src/base/digest.ts'
import type { ImageContents } from '../../src/contents/image-contents.ts'
import type { TestManifest } from '../registry/oci/oci-client.ts'
import { startDiskUpstream, startTestHost, type TestHost } from '../registry/oci/test-host.ts'
import { runClient } from '../support/parts/run-client.ts'
import { describeWithParts } from '../support/parts/require-part.ts'
import { bytesOf, configType, layerType, purlsIn, TestRepo, type TestLayer } from './reading-repo.ts'

const run = promisify(execFile)
const tarType = 'application/vnd.oci.image.layer.v1.tar'
const checkout = join(import.meta.dirname, '..', '..')

/** A blob of an OCI layout. */
function blobIn(layout: string, digest: string): string {
  return join(layout, 'blobs', 'sha256', digest.replace('sha256:', ''))
}

/** Resolves with the layers of the first image in the archive of an OCI layout. */
async function layersOf(archive: string, folder: string): Promise<TestLayer[]> {
  await run('tar', ['-xf', archive, '-C', folder])
  const json = async (path: string): Promise<unknown> => JSON.parse(await readFile(path, 'utf8'))
  // Casts of the form of a layout.
  const index = (await json(join(folder, 'index.json'))) as { manifests: { digest: string }[] }
  const manifest = (await json(blobIn(folder, index.manifests[0]?.digest ?? ''))) as { layers: { digest: string; mediaType: string }[] }
  return Promise.all(manifest.layers.map(async ({ digest, mediaType }) => ({ bytes: await readFile(blobIn(folder, digest)), mediaType })))
}

/** Resolves with the contents of one image. Rejects if there are more, or none. */
async function only(reading: Promise<readonly ImageContents[]>): Promise<ImageContents> {
  const [contents, ...others] = await reading
  if (contents === undefined || others.length > 0) throw new Error(`there are ${others.length} other images`)
  return contents
}

/** Resolves with a layer that tar makes. */
async function layerFrom(cwd: string, args: readonly string[]): Promise<TestLayer> {
  const { stdout } = await run('tar', ['-cz', ...args], { cwd, encoding: 'buffer', maxBuffer: 1024 ** 3 })
  return { bytes: stdout, mediaType: layerType }
}

/** Writes an image as an OCI layout. */
async function writeLayout(folder: string, { manifest, blobs }: { manifest: Buffer; blobs: readonly Buffer[] }): Promise<void> {
  await mkdir(join(folder, 'blobs', 'sha256'), { recursive: true })
  for (const bytes of [manifest, ...blobs]) await writeFile(join(folder, 'blobs', 'sha256', hexOf(digestOf(bytes))), bytes)
  const mediaType = 'application/vnd.oci.image.manifest.v1+json'
  await writeFile(join(folder, 'index.json'), bytesOf({ schemaVersion: 2, manifests: [{ mediaType, digest: digestOf(manifest), size: manifest.length }] }))
  await writeFile(join(folder, 'oci-layout'), bytesOf({ imageLayoutVersion: '1.0.0' }))
}

/** Returns what identifies a package: type, namespace, name and version. */
function identityOf(purl: string): string {
  const { type, namespace, name, version } = PackageURL.fromString(purl)
  return `${type}/${namespace ?? ''}/${name}@${version ?? ''}`
}

function identitiesOf(purls: readonly string[]): Set<string> {
  return new Set(purls.filter(Boolean).map(identityOf))
}

/** Returns the package URLs in a report of syft. */
function reported(json: string): string[] {
  const { artifacts } = JSON.parse(json) as { artifacts: { purl: string }[] } // its form
  return artifacts.map(({ purl }) => purl)
}

/** The qualifiers that both write. syft also writes `package-id` and others of its own. */
const sharedQualifiers = ['arch', 'distro', 'epoch', 'upstream']

/** Returns the package URLs by what identifies them, each with the shared qualifiers only. For `distro`, syft adds the point release of Debian, which is left out. */
function wholePurls(purls: readonly string[]): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>()
  for (const purl of purls.filter(Boolean)) {
    const { type, namespace, name, version, qualifiers } = PackageURL.fromString(purl)
    const both = Object.entries(qualifiers ?? {}).filter(([key]) => sharedQualifiers.includes(key))
    const shared = Object.fromEntries(both.map(([key, value]) => [key, value.replace(/^(debian-\d+)\.\d+$/, '$1')]))
    const whole = new PackageURL(type, namespace, name, version, shared, undefined).toString()
    found.set(identityOf(purl), (found.get(identityOf(purl)) ?? new Set()).add(whole))
  }
  return found
}

/** Returns where both find a package and write different package URLs. */
function differences(ours: readonly string[], theirs: readonly string[]): string[] {
  const others = wholePurls(theirs)
  return [...wholePurls(ours)].flatMap(([identity, own]) => {
    const other = others.get(identity)
    const [one, two] = [[...own].sort().join(' '), [...(other ?? [])].sort().join(' ')]
    return other === undefined || one === two ? [] : [`${one} instead of ${two}`]
  })
}

describeWithParts(['base-image', 'crane', 'etcd', 'scim2-tester', 'syft'], 'the packages of a real image', (parts) => {
  let host: TestHost
  let folder: string
  beforeAll(async () => {
    host = await startTestHost({ upstream: startDiskUpstream })
    folder = await mkdtemp(join(tmpdir(), 'taproot-syft-'))
  })
  afterAll(async () => {
    await host.stop()
    await rm(folder, { recursive: true, force: true })
  })

  /** Pushes an image, and writes it as an OCI layout. */
  async function pushed(repo: TestRepo, layers: readonly TestLayer[]): Promise<{ image: TestManifest; layout: string }> {
    const diffIds = layers.map(({ bytes, mediaType }) => digestOf(mediaType === tarType ? bytes : gunzipSync(bytes)))
    const config = bytesOf({ os: 'linux', architecture: 'amd64', rootfs: { type: 'layers', diff_ids: diffIds }, config: {} })
    const image = await repo.pushWith({ config, configMediaType: configType, layers })
    const layout = await mkdtemp(join(folder, 'layout-'))
    await writeLayout(layout, { manifest: image.bytes, blobs: [config, ...layers.map(({ bytes }) => bytes)] })
    return { image, layout }
  }

  /** Lets syft scan an image. Resolves with what it prints. */
  async function scan(layout: string, output: readonly string[]): Promise<string> {
    const own = (home: string): Record<string, string> => ({ HOME: home, SYFT_CHECK_FOR_APP_UPDATE: 'false' })
    const scanned = await runClient('syft', ['scan', `oci-dir:${layout}`, '-q', ...output], { timeoutMs: 600_000, own })
    expect(scanned).toMatchObject({ code: 0 })
    return scanned.stdout
  }

  // docs/images.md#what-is-read
  test('are read from each form of SBOM that syft writes', async () => {
    const layers = [await layerFrom(dirname(parts['scim2-tester'] ?? ''), ['venv']), await layerFrom(dirname(parts.crane ?? ''), ['crane'])]
    const { layout } = await pushed(new TestRepo(host), layers)
    const forms = [
      ['spdx-json@2.3', 'application/spdx+json'],
      ['spdx-json@3.0', 'application/spdx+json'],
      ['cyclonedx-json@1.4', 'application/vnd.cyclonedx+json'],
      ['cyclonedx-json@1.5', 'application/vnd.cyclonedx+json'],
      ['cyclonedx-json@1.6', 'application/vnd.cyclonedx+json'],
      ['syft-json', 'application/vnd.syft+json'],
    ] as const
    const fileOf = (form: string): string => join(folder, form)
    await scan(layout, [...forms.flatMap(([form]) => ['-o', `${form}=${fileOf(form)}`])])
    const theirs = [...identitiesOf(reported(await readFile(fileOf('syft-json'), 'utf8')))].sort()
    expect(theirs.length).toBeGreaterThan(25)
    for (const [form, mediaType] of forms) {
      const repo = new TestRepo(host)
      const { image } = await pushed(repo, layers)
      const referrer = await repo.referrer(image, { bytes: await readFile(fileOf(form)), mediaType })
      const [found] = await repo.read(image)
      expect(found, form).toMatchObject({ source: 'referrer', sourceDigest: referrer.digest, problem: undefined, skipped: [] })
      expect([...identitiesOf(found === undefined ? [] : purlsIn(found))].sort(), form).toEqual(theirs)
    }
  })

  // docs/images.md#compared-with-syft
  test('of Debian, PyPI, Go and npm are those that syft finds', async () => {
    const repo = new TestRepo(host)
    const base = join(folder, 'base')
    await mkdir(base)
    const files = await run('find', ['node_modules', '-name', 'package.json'], { cwd: checkout, maxBuffer: 1024 ** 3 })
    await writeFile(join(folder, 'files'), files.stdout)
    const { crane = '', etcd = '', 'scim2-tester': python = '' } = parts
    const layers = [
      ...(await layersOf(parts['base-image'] ?? '', base)),
      await layerFrom(dirname(python), ['venv']),
      await layerFrom(dirname(crane), [basename(crane), '-C', dirname(etcd), basename(etcd)]),
      await layerFrom(checkout, ['-T', join(folder, 'files')]),
    ]
    const { image, layout } = await pushed(repo, layers)
    const found = reported(await scan(layout, ['-o', 'json']))
    const own = purlsIn(await only(repo.read(image)))
    const [ours, theirs] = [identitiesOf(own), identitiesOf(found)]
    expect([...ours].filter((one) => !theirs.has(one))).toEqual([])
    expect(differences(own, found)).toEqual([])
    const missing = [...theirs].filter((one) => !ours.has(one))
    // The differences that the page names: what no package manager installed, and files with a name and no version.
    const unversioned = [...theirs].filter((one) => one.endsWith('@'))
    expect(missing.filter((one) => !one.startsWith('generic/') && !one.endsWith('@'))).toEqual([])
    expect(missing.filter((one) => one.startsWith('generic/')).length).toBeLessThanOrEqual(1)
    expect(theirs.size).toBeGreaterThan(900)
    expect(missing.filter((one) => !one.endsWith('@')).length).toBeLessThan((theirs.size - unversioned.length) / 100)
  })

  // docs/images.md#compared-with-syft
  test.each([
    ['apk', 158],
    ['rpm', 53],
  ])('in a database of %s are those that syft finds, by their whole package URLs', async (name, packages) => {
    const repo = new TestRepo(host)
    const bytes = await readFile(join(import.meta.dirname, 'real', `${name}.tar.gz`))
    const { image, layout } = await pushed(repo, [{ bytes, mediaType: layerType }])
    const found = reported(await scan(layout, ['-o', 'json']))
    const own = purlsIn(await only(repo.read(image)))
    expect(own).toHaveLength(packages)
    expect(differences(own, found)).toEqual([])
    expect([...identitiesOf(own)].sort()).toEqual([...identitiesOf(found)].sort())
  })
})
