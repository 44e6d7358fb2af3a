import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { create, type JsonObject } from '@bufbuild/protobuf'
import { expect, test, vi } from 'vitest'
import { DomainError } from '../../../../src/base/errors.ts'
import type { PullTrials } from '../../../../src/engine/services.ts'
import { hexOf } from '../../../../src/base/digest.ts'
import { DryRunPullPolicyResponse_VerdictSchema } from '../../../../src/gen/taproot/registry/v2/pull_policies_pb.ts'
import { makeImageWorld, pushManifest, pushPackages, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { descriptorOf, imageType, manifestOf } from '../../../registry/oci/oci-client.ts'
import { freshName, makeOrganisation } from '../../../support/test-server.ts'
import { expectFailure, itemsOf, specSuite, type Spec } from '../spec-suite.ts'

const suite = (title: string, body: (spec: Spec) => void): void => specSuite(title, body, { env: { TAPROOT_EVENTS_TRAFFIC_WINDOW_SECONDS: '0' } })
const sbomRule = (mode: string): JsonObject => ({ requireSbom: true, mode, onUnknown: 'DENY' })

suite('dry runs of pull policies', (spec) => {
  const pull = async (world: ImageWorld, reference: string): Promise<number> => {
    // Each pull has its own time.
    spec.clock.advance(1)
    const { status } = await withRegistry(world, (client) => client.send('GET', `/v2/${world.path}/manifests/${reference}`))
    return status
  }
  const dryRun = (world: ImageWorld, request: JsonObject): Promise<JsonObject> =>
    spec.ok('DryRunPullPolicy', { parent: world.group, ...request }, { token: world.token })
  const manifestsOf = async (world: ImageWorld, request: JsonObject): Promise<JsonObject[]> => itemsOf(await dryRun(world, request), 'manifests')
  /** Waits until the events of pulls of `count` manifests are there: they are written after the answers. */
  const untilPulled = (world: ImageWorld, count: number): Promise<void> =>
    vi.waitFor(async () => expect(await manifestsOf(world, { pageSize: 100 })).toHaveLength(count), { timeout: 60_000 })
  /** Makes a repo in which one image was pulled by nine tags. */
  const withNinePulls = async (): Promise<{ world: ImageWorld; tags: readonly string[] }> => {
    const world = await makeImageWorld(spec.server)
    const tags = Array.from({ length: 9 }, (_, at) => `t${at}`)
    const image = await pushPackages(world, 't0', { musl: '1' })
    for (const tag of tags.slice(1)) await pushManifest(world, tag, image)
    for (const tag of tags) await pull(world, tag)
    await untilPulled(world, tags.length)
    return { world, tags }
  }
  const trials = (): PullTrials => {
    const { pullTrials } = spec.server.running.engine.services
    if (pullTrials === undefined) throw new Error('the server tries no pulls')
    return pullTrials
  }
  const decisionsOf = (manifests: readonly JsonObject[], of: 'current' | 'planned'): unknown[] => manifests.map((one) => (one[of] as JsonObject)['decision']) // a verdict
  const decisionsIn = async (world: ImageWorld, request: JsonObject): Promise<unknown[]> => decisionsOf(await manifestsOf(world, request), 'planned')

  // docs/spec/registry.md#dry-runs
  test('a dry run tells what a policy would mean for what was pulled, the last pull first, and changes nothing', async () => {
    const world = await makeImageWorld(spec.server)
    const image = await pushPackages(world, '1.0', { musl: '1' })
    const document = manifestOf({
      schemaVersion: 2,
      mediaType: imageType,
      artifactType: 'application/vnd.example',
      config: { mediaType: 'application/vnd.oci.empty.v1+json', digest: `sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a`, size: 2 },
      layers: [],
      subject: descriptorOf(image),
    })
    await withRegistry(world, (client) => client.putBlob(world.path, Buffer.from('{}')))
    await pushManifest(world, document.digest, document)
    for (const reference of ['1.0', document.digest, image.digest]) expect(await pull(world, reference)).toBe(200)
    await untilPulled(world, 3)
    const pulled = { repoUid: world.repo, lastPullTime: expect.stringMatching(/Z$/) as unknown }
    const current = { decision: 'ALLOWED', results: [] }
    const refused = {
      decision: 'REFUSED',
      results: [{ policyUid: '', policyName: 'planned', mode: 'ENFORCE', result: 'UNKNOWN', reasons: [expect.stringContaining('requireSbom') as unknown] }],
    }
    const manifests = await manifestsOf(world, { pullPolicy: { name: 'planned', rules: [sbomRule('ENFORCE')] } })
    expect(manifests).toEqual([
      { ...pulled, digest: image.digest, tag: '', current, planned: refused },
      { ...pulled, digest: document.digest, tag: '', current: { decision: 'EXEMPT', results: [] }, planned: { decision: 'EXEMPT', results: [] } },
      { ...pulled, digest: image.digest, tag: '1.0', current, planned: refused },
    ])
    for (const reference of ['1.0', image.digest]) expect(await pull(world, reference)).toBe(200)
    expect(itemsOf(await spec.ok('ListPullPolicies', { uidp: { descendantsOf: world.group } }, { token: world.token }), 'pullPolicies')).toEqual([])
  })

  // docs/spec/registry.md#dry-runs
  test('a dry run decides like the policy does once it is there', async () => {
    const world = await makeImageWorld(spec.server)
    await pushPackages(world, 'kept', { musl: '1' })
    const { digest } = await pushPackages(world, 'old', { musl: '1' })
    await spec.ok('CreateTag', { parent: world.repo, tag: { name: 'old', digest, deprecated: true } }, { token: world.token })
    const references = ['old', digest, 'kept']
    for (const reference of references.toReversed()) await pull(world, reference)
    await untilPulled(world, 3)
    const rules = [{ denyDeprecated: true }, { requireSbom: true, onUnknown: 'DENY' }, { requireSbom: true }, { maxSeverity: 'HIGH' }, { maxAgeDays: 1 }]
    for (const rule of rules) {
      const pullPolicy = { name: freshName('policy'), rules: [{ ...rule, mode: 'ENFORCE' }] }
      const planned = await decisionsIn(world, { pullPolicy })
      const { uid } = await spec.ok('CreatePullPolicy', { parent: world.group, pullPolicy }, { token: world.token })
      expect(decisionsOf(await manifestsOf(world, {}), 'current')).toEqual(planned)
      const answered: string[] = []
      for (const reference of references.toReversed()) answered.unshift((await pull(world, reference)) === 200 ? 'ALLOWED' : 'REFUSED')
      expect([rule, planned]).toEqual([rule, answered])
      expect(await decisionsIn(world, { replaces: String(uid) })).toEqual(references.map(() => 'ALLOWED'))
      await spec.ok('DeletePullPolicy', { uid: String(uid) }, { token: world.token })
    }
  })

  // docs/spec/registry.md#dry-runs
  test('a policy can be replaced by another or by none, and those of groups above count', async () => {
    const world = await makeImageWorld(spec.server)
    const group = String((await spec.ok('CreateGroup', { parent: world.group, group: { name: 'team' } }, { token: world.token }))['uid'])
    await spec.ok('CreateRepo', { parent: group, repo: { name: 'app' } }, { token: world.token })
    const team = { ...world, group, path: world.path.replace(/app$/, 'team/app') }
    await pushPackages(world, '1.0', { musl: '1' })
    await pushPackages(team, '1.0', { musl: '1' })
    const create = async (parent: string, mode: string): Promise<string> =>
      String((await spec.ok('CreatePullPolicy', { parent, pullPolicy: { name: freshName('policy'), rules: [sbomRule(mode)] } }, { token: world.token }))['uid'])
    const [above, below] = [await create(world.group, 'WARN'), await create(group, 'ENFORCE')]
    expect([await pull(world, '1.0'), await pull(team, '1.0')]).toEqual([200, 403])
    await untilPulled(world, 2)
    // A pull that was refused counts too.
    expect(decisionsOf(await manifestsOf(world, {}), 'current')).toEqual(['REFUSED', 'WARNED'])
    expect(await decisionsIn(world, { replaces: above })).toEqual(['REFUSED', 'ALLOWED'])
    expect(await decisionsIn(team, { replaces: below })).toEqual(['WARNED'])
    expect(await decisionsIn(team, { replaces: below, pullPolicy: { name: 'audited', rules: [sbomRule('AUDIT')] } })).toEqual(['WARNED'])
    expect(await decisionsIn(world, { replaces: above, pullPolicy: { name: 'enforced', rules: [sbomRule('ENFORCE')] } })).toEqual(['REFUSED', 'REFUSED'])
    for (const [parent, replaces] of [
      [world.group, below],
      [group, above],
      [group, `${group}/0123456789abcdef`],
    ] as const)
      expectFailure(await spec.call('DryRunPullPolicy', { parent, replaces }, { token: world.token }), { code: 5 })
  })

  // docs/spec/registry.md#dry-runs
  test('pages have each manifest once, and later pulls change nothing on them; a start time leaves earlier pulls out', async () => {
    const world = await makeImageWorld(spec.server)
    const tags = ['a', 'b', 'c', 'd']
    for (const tag of tags) await pushPackages(world, tag, { musl: '1' })
    for (const tag of [...tags, 'b', 'c']) await pull(world, tag)
    await untilPulled(world, 4)
    await vi.waitFor(async () => expect((await manifestsOf(world, { pageSize: 1 }))[0]).toMatchObject({ tag: 'c' }), { timeout: 60_000 })
    const pages: string[][] = []
    for (let pageToken = ''; pages.length < 9;) {
      const body = await dryRun(world, { pageSize: 2, pageToken })
      pages.push(itemsOf(body, 'manifests').map(({ tag }) => String(tag)))
      pageToken = String(body['nextPageToken'] ?? '')
      if (pageToken === '') break
      await pull(world, 'a')
      await vi.waitFor(async () => expect((await manifestsOf(world, { pageSize: 1 }))[0]).toMatchObject({ tag: 'a' }), { timeout: 60_000 })
      expectFailure(await spec.call('DryRunPullPolicy', { parent: world.group, pageToken, startTime: '2020-01-01T00:00:00Z' }, { token: world.token }), {
        code: 3,
      })
    }
    expect(pages).toEqual([
      ['c', 'b'],
      ['d', 'a'],
    ])
    const [last] = await manifestsOf(world, { pageSize: 1 })
    expect((await manifestsOf(world, { startTime: last?.['lastPullTime'] ?? '' })).map(({ tag }) => tag)).toEqual(['a'])
    const [digest] = (await manifestsOf(world, { pageSize: 1 })).map((one) => String(one['digest']))
    await withRegistry(world, (client) => client.send('DELETE', `/v2/${world.path}/manifests/${digest}`))
    expect((await manifestsOf(world, {})).map(({ tag }) => tag)).toEqual(['c', 'b', 'd'])
  })

  // docs/spec/registry.md#dry-runs
  test('a rule that decides nothing is code 3, and other organisations are not seen', async () => {
    const world = await makeImageWorld(spec.server)
    await pushPackages(world, '1.0', { musl: '1' })
    await pull(world, '1.0')
    await untilPulled(world, 1)
    const pullPolicy = {
      name: 'planned',
      rules: [
        { maxAgeDays: 1, mode: 'WARN' },
        { requireSbom: false, mode: 'WARN' },
      ],
    }
    const failed = await spec.call('DryRunPullPolicy', { parent: world.group, pullPolicy }, { token: world.token })
    expectFailure(failed, { code: 3, fields: ['pull_policy.rules[1].require_sbom'] })
    const other = await makeOrganisation(spec.server)
    expect(itemsOf(await spec.ok('DryRunPullPolicy', { parent: other.group }, { token: other.token }), 'manifests')).toEqual([])
    expectFailure(await spec.call('DryRunPullPolicy', { parent: world.group }, { token: other.token }), { code: 5 })
  })

  // docs/spec/registry.md#dry-runs
  test('what cannot be pulled any more is left out, and pulls of what was never there do not count', async () => {
    const world = await makeImageWorld(spec.server)
    const { digest } = await pushPackages(world, '1.0', { musl: '1' })
    const pulled = ['1.0', digest, `sha256:${'0'.repeat(64)}`, `sha256:${'1'.repeat(64)}`]
    for (const reference of pulled) expect(await pull(world, reference)).toBe(reference.startsWith('sha256:') && reference !== digest ? 404 : 200)
    // The last one.
    expect(await pull(world, '1.0')).toBe(200)
    await vi.waitFor(async () => expect((await manifestsOf(world, { pageSize: 1 }))[0]).toMatchObject({ tag: '1.0' }), { timeout: 60_000 })
    await untilPulled(world, 2)
    expect(await manifestsOf(world, { pageSize: 2 })).toHaveLength(2)
    // A tag that is gone is not deprecated.
    await withRegistry(world, (client) => client.send('DELETE', `/v2/${world.path}/manifests/1.0`))
    const pullPolicy = { name: 'planned', rules: [{ denyDeprecated: true, mode: 'ENFORCE' }] }
    expect(await decisionsIn(world, { pullPolicy })).toEqual(['ALLOWED', 'ALLOWED'])
    await spec.ok('DeleteRepo', { uid: world.repo }, { token: world.token })
    expect(await manifestsOf(world, {})).toEqual([])
  })

  // docs/spec/registry.md#dry-runs
  test('dry runs at once are refused above a number for each organisation, and the others are answered whole', async () => {
    const { world, tags } = await withNinePulls()
    const pullTrials = trials()
    const { verdicts } = pullTrials
    const { promise: isTime, resolve } = Promise.withResolvers<void>()
    const held = vi.spyOn(pullTrials, 'verdicts').mockImplementation(async (...asked) => {
      await isTime
      return verdicts(...asked)
    })
    let ended = 0
    const pullPolicy = { name: 'planned', rules: [{ maxSeverity: 'HIGH', mode: 'ENFORCE' }] }
    const asking = Array.from({ length: 20 }, async () => {
      const reply = await spec.call('DryRunPullPolicy', { parent: world.group, pageSize: 100, pullPolicy }, { token: world.token })
      ended += 1
      return reply
    })
    await vi.waitFor(() => expect(ended >= 16 || held.mock.calls.length >= 20 * 8).toBe(true), { timeout: 60_000 })
    held.mockRestore()
    resolve()
    const replies = await Promise.all(asking)
    const refused = replies.filter(({ code }) => code !== 0)
    for (const one of refused) expectFailure(one, { code: 8, reason: 'RATE_LIMITED' })
    const answered = replies.filter(({ code }) => code === 0)
    expect(answered).toHaveLength(4)
    for (const { body } of answered) expect(itemsOf(body, 'manifests')).toHaveLength(tags.length)
    expect(await manifestsOf(world, {})).toHaveLength(tags.length)
  })

  // docs/spec/registry.md#dry-runs
  test('a page ends early after some time or size, and the next one goes on from there', async () => {
    const { world, tags } = await withNinePulls()
    const pullTrials = trials()
    const { verdicts } = pullTrials
    const trying = vi.spyOn(pullTrials, 'verdicts')
    const slow: typeof verdicts = (...asked) => {
      spec.clock.advance(60_000)
      return verdicts(...asked)
    }
    const large: typeof verdicts = async (...asked) => {
      const reasons = ['x'.repeat(300_000)]
      return (await verdicts(...asked))?.map(({ decision }) => create(DryRunPullPolicyResponse_VerdictSchema, { decision, results: [{ reasons }] }))
    }
    try {
      for (const tries of [slow, large]) {
        trying.mockImplementation(tries)
        const first = await dryRun(world, { pageSize: 100 })
        const second = await dryRun(world, { pageSize: 100, pageToken: first['nextPageToken'] ?? '' })
        const found = [first, second].map((page) => itemsOf(page, 'manifests').map(({ tag }) => String(tag)))
        expect(found.map(({ length }) => length)).toEqual(tries === slow ? [8, 1] : [3, 3])
        expect(found.flat()).toEqual(tags.toReversed().slice(0, found.flat().length))
      }
    } finally {
      trying.mockRestore()
    }
  })

  // docs/spec/registry.md#dry-runs
  test('a process that still loads contents or advisories answers code 14, not that nothing is known', async () => {
    const world = await makeImageWorld(spec.server)
    await pushPackages(world, '1.0', { musl: '1' })
    await pull(world, '1.0')
    await untilPulled(world, 1)
    const { services } = spec.server.running.engine
    const { imageContents } = services
    if (imageContents === undefined) throw new Error('the server knows no contents')
    const loading = (): never => {
      throw new DomainError(14, 'they are being loaded; try again', { reason: 'CATALOGUE_LOADING', details: { retryAfterMs: 1_000 } })
    }
    const pullPolicy = { name: 'planned', rules: [{ maxSeverity: 'HIGH', mode: 'ENFORCE' }] }
    for (const start of [
      () => vi.spyOn(services, 'catalogue').mockImplementation(loading),
      () => vi.spyOn(imageContents, 'imagesAmong').mockImplementation(async () => loading()),
    ]) {
      const spied = start()
      try {
        const { code, details } = await spec.call('DryRunPullPolicy', { parent: world.group, pullPolicy }, { token: world.token })
        expect([code, details['ErrorInfo']?.['reason']]).toEqual([14, 'CATALOGUE_LOADING'])
      } finally {
        spied.mockRestore()
      }
    }
    expect(await decisionsIn(world, { pullPolicy })).toEqual(['ALLOWED'])
  })

  // docs/spec/registry.md#dry-runs
  test('a manifest whose bytes are damaged is left out: no pull can have it', async () => {
    const world = await makeImageWorld(spec.server)
    const { digest } = await pushPackages(world, '1.0', { musl: '1' })
    await pushPackages(world, '2.0', { musl: '1' })
    const { directory = '' } = spec.server.config.registry.upstream ?? {}
    const files = (await readdir(directory, { recursive: true })).filter((name) => name.endsWith(hexOf(digest))).map((name) => join(directory, name))
    for (const tag of ['1.0', '2.0']) expect(await pull(world, tag)).toBe(200)
    const lengths = await Promise.all(files.map((file) => readFile(file)))
    for (const [at, file] of files.entries()) if ((lengths[at]?.length ?? 0) > 0) await writeFile(file, '{}')
    await vi.waitFor(async () => expect((await manifestsOf(world, {})).map(({ tag }) => tag)).toEqual(['2.0']), { timeout: 60_000 })
  })
})
