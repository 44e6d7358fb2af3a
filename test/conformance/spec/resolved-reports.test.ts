import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import type { ImageVulnerability } from '../../../src/cache/lists/contents-source.ts'
import type { Services } from '../../../src/engine/services.ts'
import { OciClient } from '../../registry/oci/oci-client.ts'
import { importDocuments, osvDocument } from '../../support/import-advisories.ts'
import { freshName, makeOrganisation, type Organisation } from '../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, uidOf, type Spec } from './spec-suite.ts'

const dayMs = 24 * 3_600_000

/** A repo of an organisation of its own. */
interface ImageWorld extends Organisation {
  readonly repo: string
  readonly path: string
}

async function worldOf(spec: Spec): Promise<ImageWorld> {
  const name = freshName('org')
  const organisation = await makeOrganisation(spec.server, name)
  const repo = uidOf(await spec.ok('CreateRepo', { parent: organisation.group, repo: { name: 'app' } }, { token: organisation.token }))
  return { ...organisation, repo, path: `${name}/app` }
}

/** Pushes another image under the tag `latest`. Returns its digest. */
async function push({ server }: Spec, { owner, path }: ImageWorld): Promise<string> {
  const { host, port } = server.config.registry
  const act = { issuer: 'https://issuer.example', subject: 'owner', audience: host }
  const { token } = await server.running.signIn.tokens.mint({ identityUid: trustedUid(owner), audiences: [host], act, restrictions: {} })
  const client = new OciClient(port, token)
  const { digest } = await client.pushImage(path, 'latest')
  client.close()
  return digest
}

/** Makes the contents of images known to a server, and notes in `asked` which ones it looks up. Returns a function that forgets them. */
function know({ server }: Spec, contents: Readonly<Record<string, readonly ImageVulnerability[]>>, asked: string[] = []): () => void {
  const services = server.running.engine.services as { vulnerabilitiesIn: Services['vulnerabilitiesIn'] }
  const before = services.vulnerabilitiesIn
  services.vulnerabilitiesIn = ({ digest }) => {
    asked.push(digest)
    return Promise.resolve(contents[digest])
  }
  return () => (services.vulnerabilitiesIn = before)
}

const vulnerability = (id: string, aliases: readonly string[] = []): ImageVulnerability => ({ id, aliases })

specSuite('reports of resolved vulnerabilities', (spec) => {
  const daysAround = (days: number): JsonObject => ({
    startTime: new Date(spec.clock.now() - days * dayMs).toISOString(),
    endTime: new Date(spec.clock.now()).toISOString(),
  })
  const reportsOf = async (request: JsonObject, token: string): Promise<unknown[]> =>
    itemsOf(await spec.ok('ListResolvedVulnsReports', request, { token }), 'resolvedVulnsReports')

  // docs/spec/vulnerability-metadata.md#resolved-reports
  test('there is one report for each day, also for days without any', async () => {
    const { repo, token, path } = await worldOf(spec)
    const request = { startTime: '2026-01-01T23:00:00Z', endTime: '2026-01-03T01:00:00Z' }
    const empty = ['01', '02', '03'].map((day) => ({ date: `2026-01-${day}T00:00:00.000Z`, resolvedVulns: [] }))
    for (const name of [repo, path]) expect(await reportsOf({ ...request, imageRefs: [{ repo: name }] }, token)).toMatchObject(empty)
  })

  test('images whose contents are not known are named', async () => {
    const world = await worldOf(spec)
    const first = await push(spec, world)
    spec.clock.advance(dayMs)
    const second = await push(spec, world)
    const token = await spec.server.tokenFor(world.owner)
    const reply = await spec.call('ListResolvedVulnsReports', { imageRefs: [{ repo: world.repo }], ...daysAround(0) }, { token })
    expectFailure(reply, { code: 9, domain: 'advisory.taproot.dev', reason: 'CONTENTS_UNKNOWN', violations: ['CONTENTS_UNKNOWN', 'CONTENTS_UNKNOWN'] })
    const subjects = (reply.details['PreconditionFailure']?.['violations'] as JsonObject[]).map(({ subject }) => subject)
    expect(subjects).toEqual([first, second].map((digest) => `${world.repo}@${digest}`))
    // Without a change in the period, no contents are needed.
    spec.clock.advance(2 * dayMs)
    expect(await reportsOf({ imageRefs: [{ repo: world.repo }], ...daysAround(0) }, await spec.server.tokenFor(world.owner))).toHaveLength(1)
  })

  test('a vulnerability is resolved on the day at whose end the image no longer has it', async () => {
    const world = await worldOf(spec)
    const [fixed, kept, added] = ['F', 'K', 'A'].map((letter) => freshName(`CVE-${letter}`)) as [string, string, string]
    const score = 'CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H'
    await importDocuments(spec.server, world.group, [osvDocument(`GHSA-${fixed}`, { affected: [], severity: [{ type: 'CVSS_V3', score }] })])
    const first = await push(spec, world)
    spec.clock.advance(dayMs)
    const second = await push(spec, world)
    const forget = know(spec, {
      [first]: [vulnerability(fixed, [`GHSA-${fixed}`]), vulnerability(kept)],
      [second]: [vulnerability(kept), vulnerability(added)],
    })
    try {
      const reports = await reportsOf({ imageRefs: [{ repo: world.repo }], ...daysAround(1) }, await spec.server.tokenFor(world.owner))
      const resolved = [{ id: fixed, aliases: [`GHSA-${fixed}`], cvssSeverities: [{ type: 'TYPE_CVSS_V3', score }] }]
      expect(reports).toMatchObject([{ resolvedVulns: [] }, { resolvedVulns: resolved }])
    } finally {
      forget()
    }
  })

  test('each image is looked up once for an answer', async () => {
    const world = await worldOf(spec)
    const digests: string[] = []
    for (let day = 1; day <= 4; day++) {
      digests.push(await push(spec, world))
      spec.clock.advance(dayMs)
    }
    const asked: string[] = []
    const forget = know(spec, Object.fromEntries(digests.map((digest) => [digest, []])), asked)
    try {
      await reportsOf({ imageRefs: [{ repo: world.repo }], ...daysAround(5) }, await spec.server.tokenFor(world.owner))
      expect(asked).toEqual(digests)
    } finally {
      forget()
    }
  })

  test('an answer that is too large is refused with what to do', async () => {
    const world = await worldOf(spec)
    const first = await push(spec, world)
    spec.clock.advance(dayMs)
    const second = await push(spec, world)
    const many = Array.from({ length: 4_000 }, (_, at) => vulnerability(`CVE-${at}`, Array<string>(10).fill(`GHSA-${at}`.padEnd(100, 'x'))))
    const forget = know(spec, { [first]: many, [second]: [] })
    try {
      const token = await spec.server.tokenFor(world.owner)
      const reply = await spec.call('ListResolvedVulnsReports', { imageRefs: [{ repo: world.repo }], ...daysAround(1) }, { token })
      expectFailure(reply, { code: 9, domain: 'advisory.taproot.dev', reason: 'ANSWER_TOO_LARGE', violations: ['ANSWER_TOO_LARGE'] })
    } finally {
      forget()
    }
  })

  test('a repo of another organisation and a missing one are the same 404', async () => {
    const [own, other] = [await worldOf(spec), await worldOf(spec)]
    const request = { startTime: '2026-01-01T00:00:00Z', endTime: '2026-01-01T00:00:00Z' }
    for (const repo of [other.repo, other.path, `${own.group}/${'0'.repeat(16)}`, 'no-such/repo'])
      expectFailure(await spec.call('ListResolvedVulnsReports', { imageRefs: [{ repo: own.repo }, { repo }], ...request }, { token: own.token }), {
        code: 5,
        domain: 'advisory.taproot.dev',
      })
  })
})
