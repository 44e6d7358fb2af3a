import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { readdir, rename, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { create as createMessage, type JsonObject } from '@bufbuild/protobuf'
import { afterAll, afterEach, expect, test, vi } from 'vitest'
import { digestOf, hexOf } from '../../../../src/base/digest.ts'
import { untilAborted } from '../../../../src/base/timing.ts'
import { trustedUid } from '../../../../src/base/uid.ts'
import {
  DryRunPullPolicyResponse_Verdict_Decision,
  PullPolicy_Mode,
  PullPolicy_SignatureRequirementSchema,
  PullPolicySchema,
} from '../../../../src/gen/taproot/registry/v2/pull_policies_pb.ts'
import { makeImageWorld, pushManifest, withRegistry, type ImageWorld } from '../../../contents/counts/image-world.ts'
import { descriptorOf, indexType, manifestOf, type Answer, type TestManifest } from '../../../registry/oci/oci-client.ts'
import { bundleType, pushLayer, signatureLayouts } from '../../../registry/policies/push-signature.ts'
import { Authority, identity, newKeys, pemOf, signedBundle, signedPayload } from '../../../registry/policies/signing.ts'
import { slowness } from '../../../budgets.ts'
import { longestTurn } from '../../../support/longest-turn.ts'
import { freshName, makeMember } from '../../../support/test-server.ts'
import { specSuite } from '../spec-suite.ts'

const platform = { architecture: 'amd64', os: 'linux' }
const hourMs = 3_600_000

const authority = new Authority()
const folder = mkdtempSync(join(tmpdir(), 'taproot-trusted-root-'))
const trustedRootFile = join(folder, 'trusted_root.json')
writeFileSync(trustedRootFile, JSON.stringify(await authority.trustedRoot()))
afterAll(() => rm(folder, { recursive: true }))
afterEach(() => void vi.restoreAllMocks())

specSuite(
  'required signatures',
  (spec) => {
    const requiring = (requireSignature: JsonObject, fields: JsonObject = {}): JsonObject => ({ requireSignature, mode: 'ENFORCE', ...fields })
    const create = async (world: ImageWorld, rule: JsonObject): Promise<string> => {
      const request = { parent: world.group, pullPolicy: { name: freshName('signed'), rules: [rule] } }
      return String((await spec.ok('CreatePullPolicy', request, { token: world.token }))['uid'])
    }
    const change = (world: ImageWorld, uid: string, rule: JsonObject): Promise<JsonObject> =>
      spec.ok('UpdatePullPolicy', { pullPolicy: { uid, rules: [rule] }, updateMask: 'rules' }, { token: world.token })
    /** Makes a repo with an image, and a person who may only pull it. */
    const makeWorld = async (): Promise<{ world: ImageWorld; reader: ImageWorld; image: TestManifest }> => {
      const world = await makeImageWorld(spec.server)
      const { uid: owner } = await makeMember(spec.server, world.group, { role: 'registry.pull' })
      return { world, reader: { ...world, owner }, image: await pushNew(world, 'v1') }
    }
    const pushNew = async (world: ImageWorld, reference: string): Promise<TestManifest> => {
      const image = await withRegistry(world, (client) => client.image(world.path))
      await pushManifest(world, reference === '' ? image.digest : reference, image)
      return image
    }
    const pull = (world: ImageWorld, reference: string): Promise<Answer> =>
      withRegistry(world, (client) => client.send('GET', `/v2/${world.path}/manifests/${reference}`))
    const statusOf = async (world: ImageWorld, reference: string): Promise<number> => (await pull(world, reference)).status
    const reasonOf = async (world: ImageWorld, reference: string): Promise<string> => (await pull(world, reference)).body.toString()
    const remove = (world: ImageWorld, { digest }: TestManifest): Promise<Answer> =>
      withRegistry(world, (client) => client.send('DELETE', `/v2/${world.path}/manifests/${digest}`))

    for (const [layout, signWith] of Object.entries(signatureLayouts)) {
      // docs/spec/registry.md#pull-policies
      test(`a signature in ${layout} counts for the next pull, and no longer once it is removed`, async () => {
        const { world, reader, image } = await makeWorld()
        const [keys, rotated] = [newKeys(), newKeys()]
        const uid = await create(world, requiring({ keys: [pemOf(keys)] }))
        for (const reference of ['v1', image.digest]) expect(await reasonOf(reader, reference)).toContain('requireSignature: there is no signature')
        const wrong = [await signWith(world, image, { keys: rotated }), await signWith(world, image, { keys }, (await pushNew(world, 'v2')).digest)]
        for (const reference of ['v1', 'v2', image.digest]) expect(await statusOf(reader, reference)).toBe(403)
        const good = await signWith(world, image, { keys })
        for (const reference of ['v1', image.digest]) expect(await statusOf(reader, reference)).toBe(200)
        // A key that is rotated counts from the next pull on.
        await change(world, uid, requiring({ keys: [pemOf(newKeys())] }))
        expect(await reasonOf(reader, 'v1')).toContain('it is by another key')
        await change(world, uid, requiring({ keys: [pemOf(newKeys()), pemOf(keys)] }))
        expect(await statusOf(reader, 'v1')).toBe(200)
        for (const one of [good, ...wrong]) expect((await remove(world, one)).status).toBe(202)
        for (const reference of ['v1', image.digest]) expect(await reasonOf(reader, reference)).toContain('there is no signature')
      })

      // docs/spec/registry.md#pull-policies
      test(`a keyless signature in ${layout} counts by its identity, if its certificate was valid when it was logged`, async () => {
        const { world, reader, image } = await makeWorld()
        const uid = await create(world, requiring({ identities: [identity] }))
        await signWith(world, image, { keys: newKeys(), keyless: { authority, loggedAfterMs: hourMs } })
        expect(await reasonOf(reader, 'v1')).toContain('certificate is not valid or expired')
        await signWith(world, image, { keys: newKeys(), keyless: { authority: new Authority() } })
        expect(await statusOf(reader, 'v1')).toBe(403)
        await signWith(world, image, { keys: newKeys(), keyless: { authority } })
        expect(await statusOf(reader, 'v1')).toBe(200)
        await change(world, uid, requiring({ identities: [{ ...identity, issuer: 'https://other.example' }] }))
        expect(await statusOf(reader, 'v1')).toBe(403)
        await change(world, uid, requiring({ identities: [{ issuer: identity.issuer, subjectPattern: 'https://example.com/*@main' }] }))
        expect(await statusOf(reader, 'v1')).toBe(200)
      })
    }

    // docs/spec/registry.md#pull-policies
    test('the first pull after each push has the right answer: a tag that goes from signed to unsigned images and back', async () => {
      const { world, reader, image: unsigned } = await makeWorld()
      const keys = newKeys()
      const uid = await create(world, requiring({ keys: [pemOf(keys)] }))
      for (const [layout, signWith] of Object.entries(signatureLayouts)) {
        // Signed after its push, and before that, as an image is that another tag has.
        const [late, early] = [await pushNew(world, 'moving'), await pushNew(world, '')]
        expect([layout, await statusOf(reader, 'moving')]).toEqual([layout, 403])
        await signWith(world, late, { keys })
        expect([layout, await statusOf(reader, 'moving')]).toEqual([layout, 200])
        await signWith(world, early, { keys })
        for (const [image, status] of [
          [unsigned, 403],
          [early, 200],
          [await pushNew(world, ''), 403],
          [late, 200],
        ] as const) {
          await pushManifest(world, 'moving', image)
          expect([layout, await statusOf(reader, 'moving')]).toEqual([layout, status])
        }
        await change(world, uid, requiring({ keys: [pemOf(newKeys())] }))
        expect([layout, await statusOf(reader, 'moving')]).toEqual([layout, 403])
        await change(world, uid, requiring({ keys: [pemOf(keys)] }))
        expect([layout, await statusOf(reader, 'moving')]).toEqual([layout, 200])
      }
    })

    // docs/spec/registry.md#pull-policies
    test('an image of a signed index may be pulled by digest, and by no tag of its own', async () => {
      const { world, reader, image } = await makeWorld()
      const keys = newKeys()
      await create(world, requiring({ keys: [pemOf(keys)] }))
      const index = manifestOf({ schemaVersion: 2, mediaType: indexType, manifests: [{ ...descriptorOf(image), platform }] })
      await pushManifest(world, 'all', index)
      expect([await statusOf(reader, 'all'), await statusOf(reader, image.digest)]).toEqual([403, 403])
      const signature = await signatureLayouts['a referrer'](world, index, { keys })
      expect([await statusOf(reader, 'all'), await statusOf(reader, index.digest), await statusOf(reader, image.digest)]).toEqual([200, 200, 200])
      expect(await statusOf(reader, 'v1')).toBe(403)
      expect(await statusOf(reader, signature.digest)).toBe(200)
      await remove(world, signature)
      expect([await statusOf(reader, 'all'), await statusOf(reader, image.digest)]).toEqual([403, 403])
    })

    // docs/spec/registry.md#pull-policies
    test('who may push may read by digest what is not signed, to sign it, unless another rule refuses it', async () => {
      const { world, image } = await makeWorld()
      const rule = requiring({ keys: [pemOf(newKeys())] })
      const uid = await create(world, rule)
      const read = await pull(world, image.digest)
      expect([read.status, read.headers['warning']]).toEqual([200, expect.stringContaining('a pull policy refuses a pull of this')])
      expect(await statusOf(world, 'v1')).toBe(403)
      await spec.ok(
        'UpdatePullPolicy',
        { pullPolicy: { uid, rules: [rule, { requireSbom: true, mode: 'ENFORCE', onUnknown: 'DENY' }] }, updateMask: 'rules' },
        { token: world.token },
      )
      expect(await statusOf(world, image.digest)).toBe(403)
    })

    // docs/spec/registry.md#pull-policies
    test('a signature that is too large or malformed does not count, and one that cannot be read now is not known', async () => {
      const { world, reader, image } = await makeWorld()
      const keys = newKeys()
      const uid = await create(world, requiring({ keys: [pemOf(keys)] }))
      const more = { artifactType: bundleType, subject: descriptorOf(image) as JsonObject }
      for (const bytes of [
        Buffer.concat([await signedBundle({ keys }, { digest: image.digest }), Buffer.alloc(300_000, ' ')]),
        Buffer.from('{"a":'.repeat(9_999)),
      ]) {
        const bad = await pushLayer(world, '', { bytes, mediaType: bundleType, more })
        expect(await reasonOf(reader, 'v1')).toContain('none of 1 signature counts')
        await remove(world, bad)
      }
      const bytes = await signedBundle({ keys }, { digest: image.digest })
      const restore = await hideBlob(world, async () => void (await pushLayer(world, '', { bytes, mediaType: bundleType, more })), digestOf(bytes))
      expect(await statusOf(reader, 'v1')).toBe(200)
      await change(world, uid, requiring({ keys: [pemOf(keys)] }, { onUnknown: 'DENY' }))
      expect(await reasonOf(reader, 'v1')).toContain('not known, because signatures cannot be read now')
      await restore()
      spec.clock.advance(5_000)
      expect(await statusOf(reader, 'v1')).toBe(200)
    })

    // docs/spec/registry.md#pull-policies
    test('many signatures and keys, and costly certificates, neither allow a pull nor hold up other requests', async () => {
      const { world, reader, image } = await makeWorld()
      const uid = await create(world, requiring({ keys: Array.from({ length: 10 }, () => pemOf(generateKeyPairSync('ed25519'))) }))
      const signer = { keys: generateKeyPairSync('ed25519'), hash: null }
      const { payload, annotations } = await signedPayload(signer, { digest: image.digest })
      const bundle = JSON.parse((await signedBundle({ keys: newKeys() }, { digest: image.digest })).toString()) as JsonObject
      // Each empty value in it costs time.
      const rawBytes = Buffer.concat([Buffer.from('3083008ca0', 'hex'), Buffer.alloc(36_000, Buffer.from([5, 0]))]).toString('base64')
      const costly = Buffer.from(JSON.stringify({ ...bundle, verificationMaterial: { certificate: { rawBytes }, tlogEntries: [] } }))
      const subject = descriptorOf(image) as JsonObject
      for (let at = 0; at < 6; at++) {
        const mediaType = 'application/vnd.dev.cosign.simplesigning.v1+json'
        const more = { artifactType: 'application/vnd.dev.cosign.artifact.sig.v1+json', subject, annotations }
        await pushLayer(world, '', { bytes: payload, mediaType, more, copies: 20 })
        await pushLayer(world, '', { bytes: costly, mediaType: bundleType, more: { artifactType: bundleType, subject }, copies: 20 })
      }
      const { result, longestMs } = await longestTurn(() => Promise.all(['v1', image.digest].map((reference) => statusOf(reader, reference))))
      expect(result).toEqual([403, 403])
      expect(longestMs).toBeLessThan(50 * slowness())
      await change(world, uid, requiring({ keys: [pemOf(signer.keys)] }))
      expect(await statusOf(reader, 'v1')).toBe(200)
    })

    // docs/spec/registry.md#pull-policies
    test('a pull of a tag that is exempt does not keep an earlier answer about other tags', async () => {
      const { world, reader } = await makeWorld()
      const chart = await pushLayer(world, 'chart', { bytes: randomBytes(50), mediaType: 'application/vnd.example.chart', more: {} })
      const exempt = `sha256-${'a'.repeat(64)}.sig`
      await pushManifest(world, exempt, chart)
      const rule = requiring({ keys: [pemOf(newKeys())] })
      const uid = await create(world, { ...rule, mode: 'AUDIT' })
      expect([await statusOf(reader, 'chart'), await statusOf(reader, exempt), await statusOf(reader, 'chart')]).toEqual([200, 200, 200])
      await change(world, uid, rule)
      expect([await statusOf(reader, exempt), await statusOf(reader, 'chart')]).toEqual([200, 403])
    })

    /** Returns what asks for the verdict on a signed image, as a dry run does. The first read of the signature waits until it is aborted. */
    const startTrial = async () => {
      const { world, image } = await makeWorld()
      const keys = newKeys()
      await signatureLayouts['a referrer'](world, image, { keys })
      const { content, pullTrials } = spec.server.running.engine.services
      if (content === undefined || pullTrials === undefined) throw new Error('the server has no content')
      const { promise: isReading, resolve } = Promise.withResolvers<void>()
      const reads = vi.spyOn(content, 'readBlob').mockImplementationOnce((_repo, _blob, signal) => {
        resolve()
        return untilAborted(new Promise<never>(() => undefined), signal)
      })
      const condition = { case: 'requireSignature' as const, value: createMessage(PullPolicy_SignatureRequirementSchema, { keys: [pemOf(keys)] }) }
      const policy = createMessage(PullPolicySchema, { name: 'signed', rules: [{ condition, mode: PullPolicy_Mode.ENFORCE }] })
      const pulled = { repo: trustedUid(world.repo), digest: image.digest, tag: 'v1' }
      const ask = (signal: AbortSignal): Promise<unknown> => pullTrials.verdicts(pulled, [[policy]], signal)
      return { ask, isReading, countReads: () => reads.mock.calls.filter(([repo]) => repo === world.repo).length }
    }

    // docs/spec/registry.md#dry-runs
    test('dry runs share what they read, and one that is cancelled takes nothing from the others', async () => {
      const { ask, isReading, countReads } = await startTrial()
      const leaving = new AbortController()
      const left = ask(leaving.signal).catch((error: unknown) => error)
      await isReading
      const stayed = ask(new AbortController().signal)
      // By then the second one waits for the first, if it ever does.
      await delay(200)
      leaving.abort(new Error('the caller left'))
      expect(await left).toMatchObject({ message: 'the caller left' })
      expect(await stayed).toMatchObject([{ decision: DryRunPullPolicyResponse_Verdict_Decision.ALLOWED, results: [{ result: 'PASSED' }] }])
      expect(countReads()).toBe(2)
    })

    // docs/spec/registry.md#dry-runs
    test('a dry run waits no longer than a pull for what is known of a manifest', async () => {
      const pullLimit = new AbortController()
      const timeout = AbortSignal.timeout.bind(AbortSignal)
      vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => (ms === 30_000 ? pullLimit.signal : timeout(ms)))
      const { ask, isReading } = await startTrial()
      const asked = ask(new AbortController().signal).catch((error: unknown) => error)
      await isReading
      pullLimit.abort(new DOMException('the time is over', 'TimeoutError'))
      expect(await asked).toMatchObject({ code: 14, message: 'the upstream storage is unreachable; try again' })
    })

    /** Pushes, and takes the file of a blob away from the embedded store. Returns a function that puts it back. */
    async function hideBlob({ server }: ImageWorld, push: () => Promise<void>, digest: ReturnType<typeof digestOf>): Promise<() => Promise<void>> {
      await push()
      const { directory = '' } = server.config.registry.upstream ?? {}
      const names = await readdir(directory, { recursive: true })
      const found = names.filter((name) => name.endsWith(hexOf(digest))).map((name) => join(directory, name))
      expect(found.length).toBeGreaterThan(0)
      for (const file of found) await rename(file, `${file}.hidden`)
      return async () => {
        for (const file of found) await rename(`${file}.hidden`, file)
      }
    }

    // docs/spec/registry.md#pull-policies
    test('a signature is read once, however often its image is pulled', async () => {
      const { world, reader, image } = await makeWorld()
      const keys = newKeys()
      await create(world, requiring({ keys: [pemOf(keys)] }))
      await signatureLayouts['a referrer'](world, image, { keys })
      const { content } = spec.server.running.engine.services
      if (content === undefined) throw new Error('the server has no content')
      const reads = vi.spyOn(content, 'readBlob')
      try {
        for (let time = 0; time < 5; time++) expect(await statusOf(reader, 'v1')).toBe(200)
        expect(reads.mock.calls.filter(([repo]) => repo === world.repo)).toHaveLength(1)
        // The signature of another image makes the registry look again, and read nothing again.
        await signatureLayouts['a referrer'](world, await pushNew(world, 'v2'), { keys })
        expect(await statusOf(reader, 'v1')).toBe(200)
        expect(reads.mock.calls.filter(([repo]) => repo === world.repo)).toHaveLength(1)
      } finally {
        reads.mockRestore()
      }
    })
  },
  { env: { TAPROOT_REGISTRY_SIGNATURES_TRUSTED_ROOT_FILE: trustedRootFile } },
)
