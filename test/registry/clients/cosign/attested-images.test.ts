import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { JsonObject } from '@bufbuild/protobuf'
import { cyclonedx, purls, spdx, syft } from '../../../contents/sbom-samples.ts'
import { pushPackages, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { ok, startTestServer, type TestServer } from '../../../support/test-server.ts'
import { isFullTier } from '../../../support/tier.ts'
import { Cosign, nameOf, offline, plainHttp } from './cosign.ts'

const waiting = { timeout: 240_000, interval: 500 }
const documents = { spdx, cyclonedx, syft } as const

let server: TestServer
let cosign: Cosign

beforeAll(async () => {
  cosign = await Cosign.start()
  for (const [name, document] of Object.entries(documents)) await cosign.write(`${name}.json`, document)
  await cosign.keyPair('attester')
  server = await startTestServer({ store: 'sqlite', env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })
})

afterAll(async () => {
  await server?.stop()
  await cosign?.stop()
})

/** Waits until the contents of an image come from such a source. Resolves with the package URLs. */
async function purlsFrom(source: string, { world, digest }: { readonly world: ImageWorld; readonly digest: string }): Promise<string[]> {
  return vi.waitFor(async () => {
    const found = ok(await server.rest.call('ListPackages', { repoUid: world.repo, digest }, { token: world.token }))
    expect(found['images']).toMatchObject([{ state: 'READ', source }])
    return (found['packages'] as JsonObject[]).map(({ purl }) => String(purl)).sort() // a list answer
  }, waiting)
}

const attest = (type: string, file: string, flags: readonly string[] = []): readonly string[] => [
  ...['attest', '--type', type, '--predicate', file, '--key', 'attester.key', ...offline, ...flags],
]
const attach = (type: string, file: string, flags: readonly string[] = []): readonly string[] => [
  ...['attach', 'sbom', '--type', type, '--input-format', 'json', '--sbom', file, ...plainHttp, ...flags],
]
const asTag = ['--new-bundle-format=false']
const asReferrer = ['--registry-referrers-mode=oci-1-1']

// docs/images.md#what-is-read
test.runIf(isFullTier).each([
  ['an attestation of SPDX in a bundle', 'REFERRER', attest('spdxjson', 'spdx.json')],
  ['an attestation of CycloneDX in a bundle', 'REFERRER', attest('cyclonedx', 'cyclonedx.json')],
  ['an attestation of SPDX with a tag', 'TAG', attest('spdxjson', 'spdx.json', asTag)],
  ['an attestation of CycloneDX with a tag', 'TAG', attest('cyclonedx', 'cyclonedx.json', asTag)],
  ['SPDX with a tag', 'TAG', attach('spdx', 'spdx.json')],
  ['CycloneDX with a tag', 'TAG', attach('cyclonedx', 'cyclonedx.json')],
  ['SBOM of syft with a tag', 'TAG', attach('syft', 'syft.json')],
  ['SPDX as a referrer', 'REFERRER', attach('spdx', 'spdx.json', asReferrer)],
  ['CycloneDX as a referrer', 'REFERRER', attach('cyclonedx', 'cyclonedx.json', asReferrer)],
] as const)('the contents of an image are read from what cosign makes: %s', { timeout: 300_000 }, async (_, source, args) => {
  const world = await cosign.makeWorld(server)
  const image = await pushPackages(world, 'v1', { musl: '1.2.5-r0' })
  const about = { world, digest: image.digest }
  expect(await purlsFrom('LAYERS', about)).toEqual(['pkg:apk/alpine/musl@1.2.5-r0?arch=x86_64&distro=alpine-3.20.1'])
  await cosign.run([...args, nameOf(world, image)], { env: { COSIGN_EXPERIMENTAL: '1' } })
  expect(await purlsFrom(source, about)).toEqual(Object.values(purls).sort())
})
