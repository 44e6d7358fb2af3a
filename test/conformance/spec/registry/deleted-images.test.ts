import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { digestOf, type Digest } from '../../../../src/base/digest.ts'
import { countsPrefix, decodeStates, encodeStates, tagOfKey } from '../../../../src/contents/counts/tag-month.ts'
import { entriesOf } from '../../../../src/store/pages.ts'
import { makeImageWorld, pushPackages, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import type { TestManifest } from '../../../registry/oci/oci-client.ts'
import type { Reply } from '../../../support/api-clients.ts'
import { importDocuments, osvDocument } from '../../../support/import-advisories.ts'
import { freshName } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, type Spec } from '../spec-suite.ts'

const dayMs = 24 * 3_600_000

/** An advisory about all versions of a package of Alpine before the fixed one. */
function advisory(id: string, name: string, fixed: string): JsonObject {
  return osvDocument(id, {
    affected: [{ package: { ecosystem: 'Alpine:v3.20', name }, ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }, { fixed }] }] }],
  })
}

/** A suite whose server reads pushed images. */
const countsSuite = (title: string, body: (spec: Spec) => void): void => specSuite(title, body, { env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })

countsSuite('resolved vulnerabilities of images that are gone', (spec) => {
  /** Asks for what images resolved up to today. */
  const askResolved = async (world: ImageWorld, daysBack: number): Promise<Reply> => {
    const [startTime = '', endTime = ''] = [spec.clock.now() - daysBack * dayMs, spec.clock.now()].map((ms) => new Date(ms).toISOString())
    const request = { imageRefs: [{ repo: world.repo }], startTime, endTime }
    return spec.call('ListResolvedVulnsReports', request, { token: await spec.server.tokenFor(world.owner) })
  }
  /** Returns the vulnerabilities that each day resolved. */
  const resolved = async (world: ImageWorld, daysBack: number): Promise<unknown[]> => {
    const reply = await askResolved(world, daysBack)
    expect(reply).toMatchObject({ code: 0 })
    return itemsOf(reply.body, 'resolvedVulnsReports').map(({ resolvedVulns }) => resolvedVulns)
  }
  /** Deletes an image from the registry. */
  const remove = async (world: ImageWorld, digest: string): Promise<void> => {
    const { status } = await withRegistry(world, (client) => client.send('DELETE', `/v2/${world.path}/manifests/${digest}`))
    expect(status).toBe(202)
  }

  /** Lets the records of an image say that they are of another one. Undefined is what other versions wrote. */
  const nameImages = async ({ repo }: ImageWorld, before: string, digest: Digest | undefined): Promise<void> => {
    const { store } = spec.server.running.engine.services
    const signal = AbortSignal.timeout(60_000)
    for await (const { key, value } of entriesOf(store, { prefix: countsPrefix }, signal)) {
      if (tagOfKey(key).repo !== repo) continue
      const states = decodeStates(value).map(({ day, state }) => {
        if (state.kind !== 'known' || state.digest !== before) return { day, state }
        const { kind, size, counts, severities, aliases } = state
        return { day, state: { kind, size, counts, severities, aliases, digest } }
      })
      await store.transact({ guards: [], writes: [{ kind: 'put', key, value: encodeStates(states) }] }, signal)
    }
  }
  /** Resolves once the report of today has these ids. */
  const settled = async (world: ImageWorld, ids: readonly string[]): Promise<void> => {
    await expect
      .poll(async () => {
        // The worker looks for changes every two seconds.
        spec.clock.advance(2_000)
        const now = new Date(spec.clock.now()).toISOString()
        const request = { imageRefs: [{ repo: world.repo }], startTime: now, endTime: now }
        const answer = await spec.ok('ListVulnCountReports', request, { token: await spec.server.tokenFor(world.owner) })
        const [report] = itemsOf(answer, 'vulnCountReports')
        return report && (report['vulnCounts'] as JsonObject[]).flatMap((one) => one['ids'] as string[])
      })
      .toEqual(ids)
  }
  const ids = (): string[] => Array.from({ length: 2 }, () => freshName('CVE-2026').toUpperCase()).sort()

  /** Pushes an image with two vulnerabilities, and on the next day under the same tag one without the second. */
  const resolveOne = async (): Promise<{ readonly world: ImageWorld; readonly image: TestManifest; readonly second: string }> => {
    const world = await makeImageWorld(spec.server)
    const [first = '', second = ''] = ids()
    await importDocuments(spec.server, world.group, [advisory(first, 'musl', '2'), advisory(second, 'busybox', '2')])
    const image = await pushPackages(world, 'latest', { musl: '1', busybox: '1' })
    await settled(world, [first, second])
    spec.clock.advance(dayMs)
    await pushPackages(world, 'latest', { musl: '1', busybox: '2' })
    await settled(world, [first])
    return { world, image, second }
  }

  // docs/spec/vulnerability-metadata.md#resolved-reports
  test('what a deleted image had is resolved as it was recorded', async () => {
    const { world, image, second } = await resolveOne()
    const asKnown = await resolved(world, 1)
    expect(asKnown).toMatchObject([[], [{ id: second }]])
    await remove(world, image.digest)
    expect(await resolved(world, 1)).toEqual(asKnown)
  })

  test('what was recorded for a deleted image is not compared with advisories that came later', async () => {
    const world = await makeImageWorld(spec.server)
    const [first = '', second = ''] = ids()
    const later = freshName('CVE-2027').toUpperCase()
    await importDocuments(spec.server, world.group, [advisory(first, 'busybox', '2'), advisory(second, 'zlib', '2')])
    await pushPackages(world, 'latest', { musl: '1', busybox: '1' })
    await settled(world, [first])
    spec.clock.advance(dayMs)
    const image = await pushPackages(world, 'latest', { musl: '1', busybox: '2' })
    await settled(world, [])
    spec.clock.advance(dayMs)
    await pushPackages(world, 'latest', { musl: '1', zlib: '1' })
    await settled(world, [second])
    await remove(world, image.digest)
    spec.clock.advance(dayMs)
    await importDocuments(spec.server, world.group, [advisory(later, 'musl', '9')])
    await settled(world, [second, later])
    expect(await resolved(world, 3)).toMatchObject([[], [{ id: first }], [], []])
  })

  test('a vulnerability of a deleted image that got another id is still there under that', async () => {
    const world = await makeImageWorld(spec.server)
    const [cve = ''] = ids()
    const ghsa = freshName('GHSA').toUpperCase()
    const of = advisory(ghsa, 'busybox', '9')
    await importDocuments(spec.server, world.group, [of])
    const image = await pushPackages(world, 'latest', { busybox: '1' })
    await settled(world, [ghsa])
    spec.clock.advance(dayMs)
    await pushPackages(world, 'latest', { busybox: '2' })
    await settled(world, [ghsa])
    await remove(world, image.digest)
    await importDocuments(spec.server, world.group, [{ ...of, aliases: [cve], modified: '2026-03-01T00:00:00Z' }])
    await settled(world, [cve])
    expect(await resolved(world, 1)).toEqual([[], []])
  })

  test.each([undefined, digestOf(Buffer.from('another image'))])('a record of the image %s does not count for another one that is deleted', async (digest) => {
    const { world, image, second } = await resolveOne()
    await nameImages(world, image.digest, digest)
    expect(await resolved(world, 1)).toMatchObject([[], [{ id: second }]])
    await remove(world, image.digest)
    const reply = await askResolved(world, 1)
    expectFailure(reply, { code: 9, domain: 'advisory.taproot.dev', reason: 'CONTENTS_UNKNOWN', violations: ['CONTENTS_UNKNOWN'] })
    expect(JSON.stringify(reply.details)).toContain(`${world.repo}@${image.digest}`)
  })
})
