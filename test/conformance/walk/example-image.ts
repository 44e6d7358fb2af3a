import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { digestOf, type Digest } from '../../../src/base/digest.ts'
import { pushManifest, withRegistry, type ImageWorld } from '../../contents/counts/image-world.ts'
import { tarOf } from '../../contents/tar-of.ts'
import { descriptorOf, imageType, manifestOf, type TestManifest } from '../../registry/oci/oci-client.ts'
import { importDocuments, importProduct, osvDocument, pypiDocument } from '../../support/import-advisories.ts'
import { makeOrganisation, ok } from '../../support/test-server.ts'

/** The vulnerability in the image of the examples. */
export const exampleVulnerability = 'CVE-2026-1234'

const layerFiles = [
  { path: 'etc/os-release', data: 'ID=alpine\nVERSION_ID=3.20.1\n' },
  { path: 'lib/apk/db/installed', data: 'P:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\no:musl\n\n' },
]

const report = {
  generated_at: '2026-11-02T09:00:00Z',
  scanner: { name: 'Clair', vendor: 'Quay', version: '4.8' },
  severity: 'High',
  vulnerabilities: [{ id: exampleVulnerability, package: 'musl', version: '1.2.5-r0', fix_version: '1.2.5-r1', severity: 'High' }],
}

/** Pushes a config, one layer and their manifest. All bytes are the same in each run. */
async function push(
  world: ImageWorld,
  parts: { config: [string, Buffer]; layer: [string, Buffer]; more: Readonly<Record<string, unknown>>; tag?: string },
): Promise<TestManifest> {
  const { config, layer, more, tag } = parts
  await withRegistry(world, async (client) => {
    for (const [, bytes] of [config, layer]) await client.putBlob(world.path, bytes)
  })
  const described = ([mediaType, bytes]: [string, Buffer]): JsonObject => ({ mediaType, digest: digestOf(bytes), size: bytes.length })
  const manifest = manifestOf({ schemaVersion: 2, mediaType: imageType, config: described(config), layers: [described(layer)], ...more })
  await pushManifest(world, tag ?? manifest.digest, manifest)
  return manifest
}

/** Pushes the image that the examples show, with the report of a scanner, and imports what is known about it. Resolves with its digest. */
export async function pushExampleImage(world: ImageWorld): Promise<Digest> {
  const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', rootfs: { type: 'layers', diff_ids: [] } }))
  const annotations = { 'org.opencontainers.image.title': 'cart', 'org.opencontainers.image.version': '1.0' }
  const image = await push(world, {
    config: ['application/vnd.oci.image.config.v1+json', config],
    layer: ['application/vnd.oci.image.layer.v1.tar', tarOf(layerFiles)],
    more: { annotations },
    tag: '1.0',
  })
  const reportType = 'application/vnd.security.vulnerability.report; version=1.1'
  await push(world, {
    config: ['application/vnd.oci.empty.v1+json', Buffer.from('{}')],
    layer: [reportType, Buffer.from(JSON.stringify(report))],
    more: { artifactType: reportType, subject: descriptorOf(image) },
  })
  const ranges = [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed: '1.2.5-r1' }] }]
  const affected = [{ package: { ecosystem: 'Alpine:v3.20', name: 'musl' }, ranges }]
  const severity = [{ type: 'CVSS_V3', score: 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H' }]
  await importDocuments(world.server, world.group, [
    osvDocument(exampleVulnerability, { summary: 'Reads behind the end of a buffer', affected, severity }),
    pypiDocument('shop-client', ['1.0', '1.1']),
  ])
  await importProduct(world.server, world.group, [{ cycle: '1', releaseDate: '2026-01-01', eol: '2100-01-01', latest: '1.0' }], 'cart')
  return image.digest
}

/** Resolves once the image, its report and the counts of its tag were read. */
export async function untilRead({ server, repo, token }: ImageWorld, digest: Digest): Promise<void> {
  const call = async (rpc: string, request: JsonObject): Promise<JsonObject> => ok(await server.rest.call(rpc, request, { token }))
  const pollOptions = { timeout: 60_000, interval: 200 }
  await expect.poll(() => call('ListScannerReports', { repoUid: repo, digest }), pollOptions).toMatchObject({ reports: [{ state: 'READ' }] })
  const now = new Date().toISOString()
  const period = { imageRefs: [{ repo, tags: ['1.0'] }], startTime: now, endTime: now }
  await expect.poll(() => call('ListVulnCountReports', period), pollOptions).toMatchObject({ vulnCountReports: [{ vulnCounts: [{ count: 1 }] }] })
}

/** Gives another organisation a copy of the repo. */
export async function mirrorExample({ server, repo }: ImageWorld): Promise<void> {
  const { group } = await makeOrganisation(server, 'partner')
  const mirror = { parent: group, repo: { name: 'cart', syncConfig: { source: repo } } }
  ok(await server.rest.call('CreateRepo', mirror, { token: await server.operatorToken() }))
}
