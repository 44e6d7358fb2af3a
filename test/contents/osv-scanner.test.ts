import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { digestOf } from '../../src/base/digest.ts'
import { trustedUid } from '../../src/base/uid.ts'
import type { ContentsSource } from '../../src/cache/lists/contents-source.ts'
import { imageType, manifestOf, OciClient } from '../registry/oci/oci-client.ts'
import { hasPypaData, importDocuments, osvDocument, pypaDocuments } from '../support/import-advisories.ts'
import { documentsIn, scanPython, zipOf, type PythonDocument } from '../support/parts/osv-scanner.ts'
import { freshName, makeOrganisation, ok, startTestServer, type TestServer } from '../support/test-server.ts'
import { isFullTier } from '../support/tier.ts'
import { bytesOf, configType, layerOf, layerType } from './reading-repo.ts'

/** The number of packages of each image. */
const packagesOfImage = 400

const python = (name: string, affected: JsonObject): JsonObject => ({ affected: [{ package: { ecosystem: 'PyPI', name }, ...affected }] })

/** A few documents, also for machines without the database. */
const own: readonly JsonObject[] = [
  osvDocument(
    'PYSEC-2026-1',
    python('taproot-one', {
      ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '1' }, { fixed: '1.2' }, { introduced: '2rc1' }, { last_affected: '2.1' }] }],
    }),
  ),
  osvDocument('PYSEC-2026-2', python('Taproot.Two', { versions: ['1.0', '1!0.5'] })),
]

/** The name of a Python package as tools compare it (PEP 503). */
function normal(name: string): string {
  return name.toLowerCase().replaceAll(/[-_.]+/g, '-')
}

/** Returns a version and what is next to it in the order. */
function near(version: string): string[] {
  const isPlain = /^\d+(?:\.\d+)*$/.test(version)
  return [version, ...(isPlain ? ['.dev1', 'a1', 'rc1', '.post1', '.0', '.1'].map((end) => `${version}${end}`) : []), ...(isPlain ? [`1!${version}`] : [])]
}

/** Returns packages with versions: bounds of ranges, what is next to them, versions of the documents, and others before and after all of them. */
function requirementsOf(documents: readonly PythonDocument[], { perPackage, maxDocuments }: { perPackage: number; maxDocuments: number }): string[] {
  const statements = documents.flatMap(({ affected }) => affected)
  return [...Map.groupBy(statements, (statement) => normal(statement.package.name))].flatMap(([name, all], at) => {
    if (all.length > maxDocuments) return []
    const ranges = all.flatMap(({ ranges: some = [] }) => some.filter(({ type }) => type === 'ECOSYSTEM'))
    const bounds = ranges.flatMap(({ events }) => events.flatMap((event) => Object.values(event)))
    const listed = all.flatMap(({ versions = [] }) => [versions[0], versions[versions.length >> 1], versions.at(-1)].filter((one) => one !== undefined))
    const versions = [...new Set([...bounds.flatMap(near), ...listed, '0', '0.0.1', '99999'])]
    // Other ones of each package.
    const chosen = Array.from({ length: Math.min(perPackage, versions.length) }, (_, step) => versions[(at + step * 7) % versions.length] ?? '0')
    return [...new Set(chosen)].map((version) => `${name}==${version}`)
  })
}

/** Returns a document without the reasons for which osv-scanner passes over it: aliases, ranges of commits, and a name of another spelling. */
function plain({ aliases: _, ...document }: PythonDocument): PythonDocument {
  const affected = document.affected.map((statement) => ({
    ...statement,
    package: { ...statement.package, name: normal(statement.package.name) },
    ranges: statement.ranges?.filter(({ type }) => type === 'ECOSYSTEM') ?? [],
  }))
  return { ...document, affected }
}

/** What the test reads of an answer. */
interface ListedVulnerability {
  readonly id: string
  readonly aliases?: readonly string[]
  readonly state: string
  readonly package: { readonly name: string; readonly version: string }
}

/** A vulnerability in a package. */
interface Finding {
  readonly key: string
  readonly ids: ReadonlySet<string>
  /** False if it is not known whether the version is affected. */
  readonly isSure: boolean
}

/** Returns what osv-scanner finds and Taproot does not, and the other way around. */
function differences(ours: readonly Finding[], theirs: ReadonlyMap<string, readonly string[]>): { readonly missing: string[]; readonly more: string[] } {
  const byKey = Map.groupBy(ours, ({ key }) => key)
  const missing = [...theirs].flatMap(([key, ids]) =>
    ids.filter((id) => byKey.get(key)?.some((finding) => finding.ids.has(id)) !== true).map((id) => `${key} ${id}`),
  )
  const more = ours.filter(({ key, ids, isSure }) => isSure && theirs.get(key)?.some((id) => ids.has(id)) !== true)
  return { missing, more: more.map(({ key, ids }) => `${key} ${[...ids].join(' ')}`) }
}

/** Returns a member of the source. */
function memberOf(source: ContentsSource, key: string | symbol): unknown {
  const value: unknown = Reflect.get(source, key, source)
  return typeof value === 'function' ? (value.bind(source) as unknown) : value
}

describe('the vulnerabilities of an image', () => {
  let server: TestServer
  beforeAll(async () => void (server = await startTestServer({ store: 'sqlite', env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })))
  afterAll(() => server.stop())

  /** Pushes an image with these packages. Resolves with its repo and digest. */
  async function pushed(organisation: { group: string; owner: string; name: string }, requirements: readonly string[]): Promise<JsonObject> {
    const { group, owner, name } = organisation
    const repo = freshName('app')
    const repoUid = ok(await server.rest.call('CreateRepo', { parent: group, repo: { name: repo } }, { token: await server.operatorToken() }))['uid'] ?? ''
    const { host, port } = server.config.registry
    const act = { issuer: 'https://issuer.example', subject: 'owner', audience: host }
    const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
    const client = new OciClient(port, token)
    const path = `${name}/${repo}`
    const files = requirements.map((one) => {
      const [project = '', version = ''] = one.split('==')
      return [`site-packages/${project}-${version}.dist-info/METADATA`, `Metadata-Version: 2.1\nName: ${project}\nVersion: ${version}\n`]
    })
    const [config, layer] = [bytesOf({ os: 'linux', architecture: 'amd64' }), layerOf(Object.fromEntries(files) as Record<string, string>)]
    for (const bytes of [config, layer]) await client.putBlob(path, bytes)
    const described = (bytes: Buffer, mediaType: string): JsonObject => ({ mediaType, digest: digestOf(bytes), size: bytes.length })
    const manifest = manifestOf({ schemaVersion: 2, mediaType: imageType, config: described(config, configType), layers: [described(layer, layerType)] })
    expect((await client.putManifest(path, 'latest', manifest)).status).toBe(201)
    client.close()
    return { repoUid, digest: manifest.digest }
  }

  /** Resolves with each vulnerability in an image. */
  async function foundIn(image: JsonObject, token: string): Promise<Finding[]> {
    const found: Finding[] = []
    for (let pageToken = ''; ;) {
      const page = ok(await server.rest.call('ListVulnerabilities', { ...image, pageSize: 200, pageToken }, { token }))
      for (const one of page['vulnerabilities'] as unknown as ListedVulnerability[]) {
        const key = `${one.package.name}==${one.package.version}`
        found.push({ key, ids: new Set([one.id, ...(one.aliases ?? [])]), isSure: one.state === 'AFFECTED' })
      }
      pageToken = String(page['nextPageToken'] ?? '')
      if (pageToken === '') return found
    }
  }

  test('are found once for all pages of a long list', async () => {
    const name = freshName('org')
    const organisation = { ...(await makeOrganisation(server, name)), name }
    const documents = Array.from({ length: 1_001 }, (_, at) => osvDocument(`MANY-${at}`, python('taproot-many', { versions: ['1'] })))
    await importDocuments(server, organisation.group, documents)
    const image = await pushed(organisation, ['taproot-many==1'])
    await expect.poll(async () => (await foundIn(image, organisation.token)).length).toBe(documents.length)
    const { services } = server.running.engine
    const { imageContents } = services
    if (imageContents === undefined) throw new Error('the server has no upstream')
    let compared = 0
    const match: ContentsSource['match'] = (question, turn) => {
      compared += 1
      return imageContents.match(question, turn)
    }
    // An answer about another state is not known yet.
    const other = { ...image, states: ['AFFECTED'] }
    Object.assign(services, { imageContents: new Proxy(imageContents, { get: (target, key) => (key === 'match' ? match : memberOf(target, key)) }) })
    onTestFinished(() => void Object.assign(services, { imageContents }))
    expect(await foundIn(other, organisation.token)).toHaveLength(documents.length)
    expect(compared).toBe(1)
  })

  // docs/images.md#compared-with-osv-scanner
  test('are those that osv-scanner finds in the exported advisories', async () => {
    const name = freshName('org')
    const organisation = { ...(await makeOrganisation(server, name)), name }
    const { group, token } = organisation
    const documents = [...own, ...(hasPypaData ? await pypaDocuments({ nth: isFullTier ? 1 : 3 }) : [])] as PythonDocument[] // documents of this database are about packages
    expect((await importDocuments(server, group, documents)).refusals).toEqual([])
    const requirements = requirementsOf(documents, isFullTier ? { perPackage: 5, maxDocuments: 50 } : { perPackage: 3, maxDocuments: 10 })
    const ours: Finding[] = []
    for (let at = 0; at < requirements.length; at += packagesOfImage) {
      const part = requirements.slice(at, at + packagesOfImage)
      const image = await pushed(organisation, part)
      await expect
        .poll(async () => ok(await server.rest.call('ListPackages', image, { token })))
        .toMatchObject({ images: [{ state: 'READ' }], totalCount: String(part.length) })
      ours.push(...(await foundIn(image, token)))
    }
    const response = await fetch(`${server.config.baseUrl}/advisory/v2/osv.zip`, { headers: { authorization: `Bearer ${token}` } })
    const exported = Buffer.from(await response.arrayBuffer())

    const theirs = await scanPython(exported, requirements)
    expect(differences(ours, theirs).missing).toEqual([])
    expect(theirs.size).toBeGreaterThan(hasPypaData ? 100 : 0)
    const withoutGaps = zipOf((await documentsIn(exported)).map(plain))
    expect(differences(ours, await scanPython(withoutGaps, requirements))).toEqual({ missing: [], more: [] })
  })
})
