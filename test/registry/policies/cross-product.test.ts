import type { JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { TestClock } from '../../conformance/spec/test-clock.ts'
import { withRegistry } from '../../contents/counts/image-world.ts'
import { makeMember, ok, startTestServer, type TestServer } from '../../support/test-server.ts'
import { isFullTier, sampleOf } from '../../support/tier.ts'
import { exceptionKinds, naiveVerdict, policyModes, ruleKinds, type ExceptionKind, type NaivePolicy } from './naive-policies.ts'
import { makePolicyImages, oldDays, type PolicyImages, type PolicyPull } from './policy-images.ts'
import { identity } from './signing.ts'

/** Policies of the outer group and of the inner group, which has the repo. */
interface PolicyCase {
  readonly outer?: NaivePolicy
  readonly inner?: NaivePolicy
}

const unknowns = ['ALLOW', 'DENY'] as const
const dayMs = 86_400_000
/** Cases that `npm test` tries, and over time all. */
const share = 1 / 20

/** All policies of one rule with one kind of exception. */
const policies: readonly NaivePolicy[] = ruleKinds.flatMap((kind) =>
  policyModes.flatMap((mode) => unknowns.flatMap((onUnknown) => exceptionKinds.map((exception) => ({ kind, mode, onUnknown, exception })))),
)

/** Returns the cases of a policy: alone in a group, with one of each mode in the other group, and with a weaker one. */
function casesOf(outer: NaivePolicy): PolicyCase[] {
  const plain = { ...outer, exception: 'none' } as const
  const inOthers = policyModes.map((mode) => ({ ...plain, mode }))
  const weak: NaivePolicy = { ...plain, mode: 'AUDIT', isLenient: true }
  return [
    ...[{ outer }, { inner: outer }],
    // One of both has the exception.
    ...inOthers.flatMap((other) =>
      outer.exception === 'none'
        ? [{ outer, inner: other }]
        : [
            { outer, inner: other },
            { outer: other, inner: outer },
          ],
    ),
    ...(outer.exception === 'none' ? [{ outer, inner: { ...weak, onUnknown: outer.onUnknown === 'DENY' ? 'ALLOW' : 'DENY' } as const }] : []),
    { outer, inner: { ...weak, exception: 'repo' } },
  ]
}

const titleOf = ({ outer, inner }: PolicyCase): string => {
  const partOf = (one: NaivePolicy | undefined): string => (one === undefined ? 'none' : Object.values(one).join(' '))
  return `outer: ${partOf(outer)}, inner: ${partOf(inner)}`
}

/** One case of each kind is tried in any case. */
const kindOf = ({ outer, inner }: PolicyCase): string => `${(outer ?? inner)?.kind} ${(outer ?? inner)?.exception}`

const cases = policies.flatMap(casesOf)
const tried = isFullTier ? cases : sampleOf(cases, { nameOf: titleOf, kindOf, share })

const clock = new TestClock()
let server: TestServer
let images: PolicyImages
let puller = ''
beforeAll(async () => {
  server = await startTestServer({ store: 'sqlite', clock, env: { TAPROOT_REGISTRY_READ_CONTENTS: 'true' } })
  images = await makePolicyImages(server, clock)
  puller = (await makeMember(server, images.world.group, { role: 'registry.pull' })).uid
}, 300_000)
afterAll(() => server?.stop())

/** Returns the condition of a rule. */
function conditionOf({ kind, isLenient = false }: NaivePolicy): JsonObject {
  if (kind === 'maxSeverity') return { maxSeverity: isLenient ? 'HIGH' : 'LOW' }
  if (kind === 'maxAgeDays') return { maxAgeDays: isLenient ? 36_500 : oldDays - 1 }
  return kind === 'requireSignature' ? { requireSignature: { keys: [images.key], identities: [identity] } } : { [kind]: true }
}

/** Returns the exceptions of a kind. */
function exceptionsOf(kind: ExceptionKind): JsonObject[] {
  const { world, otherRepo, excepted, vulnerability } = images
  const other = `sha256:${'0'.repeat(64)}`
  const rows: Readonly<Record<ExceptionKind, readonly JsonObject[]>> = {
    none: [],
    repo: [{ repoUid: world.repo }],
    digest: excepted.map((digest) => ({ digest })),
    vulnerability: [{ vulnerability }],
    expired: [{ repoUid: world.repo }, ...excepted.map((digest) => ({ digest })), { vulnerability }],
    'other repo': [{ repoUid: otherRepo }, ...excepted.map((digest) => ({ digest, repoUid: otherRepo })), { vulnerability, repoUid: otherRepo }],
    'other digest': [{ digest: other }, { repoUid: world.repo, digest: other }, { vulnerability, digest: other }],
    'other vulnerability': [{ vulnerability: 'CVE-2026-3' }, { repoUid: world.repo, vulnerability: 'CVE-2026-3' }],
  }
  const endTime = new Date(clock.now() + (kind === 'expired' ? -1 : 1) * dayMs).toISOString()
  return rows[kind].map((row) => ({ ...row, endTime }))
}

/** Both policies of a case have one name: a group cannot replace a policy of a group above it. */
function policyOf(policy: NaivePolicy): JsonObject {
  const { mode, onUnknown, exception } = policy
  return { name: 'policy', rules: [{ ...conditionOf(policy), mode, onUnknown }], exceptions: exceptionsOf(exception) }
}

/** Calls `work` while the policies are there. */
async function withPolicies(given: readonly (readonly [parent: string, policy: NaivePolicy | undefined])[], work: () => Promise<void>): Promise<void> {
  const { token } = images.world
  const uids: string[] = []
  for (const [parent, policy] of given)
    if (policy !== undefined) uids.push(String(ok(await server.rest.call('CreatePullPolicy', { parent, pullPolicy: policyOf(policy) }, { token }))['uid']))
  try {
    await work()
  } finally {
    for (const uid of uids) ok(await server.rest.call('DeletePullPolicy', { uid }, { token }))
  }
}

const keyOf = ({ tag, digest }: Pick<PolicyPull, 'tag' | 'digest'>): string => `${digest} ${tag}`
/** Returns the policies of a case, those of the outer group first. */
const policiesIn = ({ outer, inner }: PolicyCase): NaivePolicy[] => [outer, inner].filter((one) => one !== undefined)

/** Resolves with what pulls are answered, by those who may only pull. */
async function pulled(method: 'GET' | 'HEAD'): Promise<readonly (readonly [string, string])[]> {
  const { world, pulls } = images
  return withRegistry({ ...world, owner: puller }, (client) =>
    Promise.all(
      pulls.map(async (one) => {
        const { status, headers, codes } = await client.send(method, `/v2/${world.path}/manifests/${one.tag === '' ? one.digest : one.tag}`)
        const isWarned = String(headers['warning'] ?? '').includes('a pull policy')
        const refused = method === 'HEAD' ? status === 403 : status === 403 && codes.join() === 'DENIED'
        return [keyOf(one), refused ? 'REFUSED' : status !== 200 ? String(status) : isWarned ? 'WARNED' : 'ALLOWED'] as const
      }),
    ),
  )
}

/** Returns what a naive model can say of a verdict in an answer. */
function verdictIn(verdict: unknown): unknown {
  // A cast: a verdict of an answer.
  const { decision, results } = verdict as { decision: string; results: { result: string; mode: string }[] }
  return { decision, results: results.map(({ result, mode }) => ({ result, mode })) }
}

// docs/spec/registry.md#dry-runs
// First: the fewer pulls there were, the sooner a dry run is done.
test('dry runs decide like a naive model does, for each rule, mode, place, exception and state of an image', { timeout: 1_200_000 }, async () => {
  const { world, inner, pulls } = images
  const { token } = world
  const dryRun = async (request: JsonObject): Promise<JsonObject[]> =>
    ok(await server.rest.call('DryRunPullPolicy', { pageSize: 100, ...request }, { token }))['manifests'] as JsonObject[] // a list answer
  await pulled('GET')
  await vi.waitFor(async () => expect(await dryRun({ parent: world.group })).toHaveLength(pulls.length), { timeout: 60_000 })
  for (const [at, one] of tried.entries()) {
    // A policy of the inner group is planned, or one of the outer group. It counts after those that are there.
    const isInner = one.outer === undefined || (one.inner !== undefined && at % 2 === 0)
    const [planned, there] = isInner ? [one.inner, one.outer] : [one.outer, one.inner]
    if (planned === undefined) throw new Error('a case without policies')
    await withPolicies([[isInner ? world.group : inner, there]], async () => {
      const found = await dryRun({ parent: isInner ? inner : world.group, pullPolicy: policyOf(planned) })
      const answered = found.map((row) => {
        const reference = keyOf({ tag: String(row['tag']), digest: String(row['digest']) })
        return [reference, { current: verdictIn(row['current']), planned: verdictIn(row['planned']) }] as const
      })
      const before = there === undefined ? [] : [there]
      const expected = pulls.map((pull) => [keyOf(pull), { current: naiveVerdict(before, pull), planned: naiveVerdict([...before, planned], pull) }] as const)
      expect(new Map(answered), titleOf(one)).toEqual(new Map(expected))
    })
  }
})

// docs/spec/registry.md#pull-policies
test('pulls are decided like a naive model does, for each rule, mode, place, exception and state of an image', { timeout: 1_200_000 }, async () => {
  const { world, inner, pulls } = images
  for (const one of tried)
    await withPolicies(
      [
        [world.group, one.outer],
        [inner, one.inner],
      ],
      async () => {
        const expected = pulls.map((pull) => [keyOf(pull), naiveVerdict(policiesIn(one), pull).decision])
        for (const method of ['GET', 'HEAD'] as const) expect(await pulled(method), `${method}, ${titleOf(one)}`).toEqual(expected)
      },
    )
})
