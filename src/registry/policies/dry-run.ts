import { create, toBinary } from '@bufbuild/protobuf'
import { timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { TenantSlots } from '../../auth/oidc/tenant-slots.ts'
import type { Digest } from '../../base/digest.ts'
import { DomainError } from '../../base/errors.ts'
import { hashQuery, sealCursor } from '../../base/page-token.ts'
import { isWithin, parentOf, rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import { CooperativeScheduler, CooperativeTask } from '../../cache/cooperative-task.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import { notFound } from '../../engine/errors.ts'
import type { Position } from '../../engine/log/log-index.ts'
import { outboxTimeMs } from '../../engine/log/outbox-keys.ts'
import { openPage } from '../../engine/read.ts'
import { callerOf, turnOf, type Context, type Handler, type PullTrials, type Services, type TriedPull } from '../../engine/services.ts'
import {
  DryRunPullPolicyResponseSchema,
  DryRunPullPolicyResponse_PulledManifestSchema,
  DryRunPullPolicyResponse_ResultSchema,
  DryRunPullPolicyResponse_VerdictSchema,
  DryRunPullPolicyResponse_Verdict_Decision as Decision,
  PullPolicy_Mode,
  PullPolicySchema,
  type DryRunPullPolicyRequest,
  type DryRunPullPolicyResponse_PulledManifest,
  type DryRunPullPolicyResponse_Verdict,
  type PullPolicy,
} from '../../gen/taproot/registry/v2/pull_policies_pb.ts'
import { ManifestCache } from '../oci/manifests/manifest-cache.ts'
import { tagNamed, tagOf } from '../records/tags.ts'
import { RegistryError } from '../registry-error.ts'
import { UpstreamError, type Upstream } from '../upstream/upstream.ts'
import { PullChecks } from './pull-checks.ts'
import { assertRules, policiesAbove } from './pull-policies.ts'
import type { SignaturesOptions } from './signatures.ts'
import type { PullVerdict } from './verdict.ts'

const [defaultManifests, maxManifests] = [50, 100]
/** Number of manifests to ask about at the same time. */
const asksAtOnce = 8
/** Number of dry runs at once, of an organisation and of all. Others are refused: each asks much of the threads that pulls use too. */
const running = new TenantSlots({ each: 4, all: 16 })
/** After this time, in milliseconds, a page ends, and before this size in bytes: clients of gRPC accept 4 MiB. */
const [pageMs, pageBytes] = [15_000, 2 * 1024 * 1024]
/** Number of events between two looks at the clock. */
const eventsPerLook = 1_024
/** All dry runs together take as much of the event loop as one. */
const looks = new CooperativeScheduler()
/** Memory for the manifests that trials read, in bytes. */
const manifestBytes = 4 * 1024 * 1024

const decisions = { allow: Decision.ALLOWED, warn: Decision.WARNED, deny: Decision.REFUSED } as const

function verdictMessage(verdict: PullVerdict): DryRunPullPolicyResponse_Verdict {
  const results = verdict.results.map(({ policy, name, mode, result, reasons }) =>
    create(DryRunPullPolicyResponse_ResultSchema, { policyUid: policy, policyName: name, mode: PullPolicy_Mode[mode], result, reasons: [...reasons] }),
  )
  return create(DryRunPullPolicyResponse_VerdictSchema, { decision: decisions[verdict.decision], results })
}

/** Returns undefined for a manifest whose bytes are damaged: no pull can have it. Throws other errors again. */
function noneIfDamaged(error: unknown): undefined {
  if (!(error instanceof UpstreamError && error.kind === 'corrupt')) throw error
}

/** What trials need. */
export interface PullTrialsOptions extends Pick<SignaturesOptions, 'services' | 'trustedRoot'> {
  readonly upstream: Pick<Upstream, 'getManifest'>
}

/** Creates trials of pull policies. They read what pulls would read, and remember nothing of it, so pulls lose nothing that they remember. */
export function createPullTrials({ services, upstream, trustedRoot }: PullTrialsOptions): PullTrials {
  const missing = (): void => undefined
  const manifests = new ManifestCache({ services, upstream, maxBytes: manifestBytes, missing })
  const checks = new PullChecks({ services, manifests, trustedRoot })
  return {
    async verdicts({ repo, digest, tag }, sets, signal) {
      const name = { repo, digest }
      const held = manifests.at(name) ?? (await manifests.get(name, signal).catch(noneIfDamaged))
      if (held === undefined) return undefined
      const record = tag === '' ? undefined : tagNamed(services.cache.tables, repo, tag)
      const named = tag === '' ? undefined : { name: tag, deprecated: record !== undefined && tagOf(record).deprecated }
      // A cast: a policy of a request has no uid yet.
      const verdicts = await checks.trial({ repo, digest, tag: named, bytes: held.bytes }, sets, signal)
      return verdicts?.map(verdictMessage) ?? sets.map(() => create(DryRunPullPolicyResponse_VerdictSchema, { decision: Decision.EXEMPT }))
    },
    close: () => checks.close(),
  }
}

/** A manifest that was pulled, and when it was last. */
interface LastPull extends TriedPull {
  readonly timeMs: number
}

/** Which pulls of a group count: those from a time on, and up to a position in the event log. */
interface Span {
  readonly parent: Uid
  readonly startMs: number
  readonly end: Position | undefined
  /** The most manifests to look for. */
  readonly limit: number
}

/** Resolves with the manifests that were pulled, the last pull first, and the position of the newest event that was looked at. */
async function lastPulls(services: Services, { parent, startMs, end, limit }: Span, signal: AbortSignal): Promise<{ pulls: LastPull[]; end: Position }> {
  const used = await services.eventLog.acquire(signal)
  try {
    const { log } = used
    await log.caughtUp(signal)
    const last = end ?? log.last
    const task = new CooperativeTask(looks)
    const found = new Map<string, LastPull>()
    let looked = 0
    for (const { key, subject, pulled } of log.upTo(last, rootOf(parent))) {
      looked += 1
      if (looked % eventsPerLook === 0 && task.shouldYield) {
        await task.pause()
        signal.throwIfAborted()
      }
      const timeMs = outboxTimeMs(key)
      if (pulled === undefined || timeMs < startMs || !isWithin(subject, parent)) continue
      const id = `${subject} ${pulled.digest} ${pulled.tag}`
      if (found.has(id)) continue
      found.set(id, { repo: trustedUid(subject), digest: pulled.digest as Digest, tag: pulled.tag, timeMs }) // of an event of the registry host
      if (found.size >= limit) break
    }
    return { pulls: [...found.values()], end: last }
  } finally {
    used.release()
  }
}

/** A change of the policies of a group. */
interface PlannedChange {
  readonly policy: PullPolicy | undefined
  /** The uid of the policy that goes. */
  readonly replaces: string
}

/** Returns the change in a request. Throws code 3 for rules that decide nothing, and code 5 for a policy that the group does not have. */
function changeIn(services: Services, { parent, pullPolicy, replaces }: DryRunPullPolicyRequest): PlannedChange {
  if (pullPolicy !== undefined) assertRules(pullPolicy, parent, 'pull_policy.')
  if (replaces !== '') {
    const known = services.cache.tables.get('PullPolicy', replaces)
    if (known === undefined || parentOf(trustedUid(replaces)) !== parent) throw notFound('PullPolicy', replaces, { concealed: known !== undefined })
  }
  return { policy: pullPolicy === undefined ? undefined : { ...pullPolicy, uid: '' }, replaces }
}

function afterChange(current: readonly CachedRecord[], { policy, replaces }: PlannedChange): PullPolicy[] {
  const added = policy === undefined ? [] : [policy]
  const kept = current.map((record) => messageOf(record, 'PullPolicy'))
  if (replaces === '') return [...kept, ...added]
  return kept.flatMap((one) => (one.uid === replaces ? added : [one]))
}

/** Resolves with what policies say about a manifest, and what they would say. Undefined if its repo does not hold it any more. */
async function triedPull(services: Services, trials: PullTrials, { pull, change, signal }: { pull: LastPull; change: PlannedChange; signal: AbortSignal }) {
  const { tables } = services.cache
  // The records of its manifests are removed later.
  if (tables.get('Repo', pull.repo) === undefined) return undefined
  const current = policiesAbove(tables, pull.repo)
  const sets = [current.map((record) => messageOf(record, 'PullPolicy')), afterChange(current, change)]
  const verdicts = await trials.verdicts(pull, sets, signal).catch((error: unknown) => {
    // It was deleted meanwhile.
    if (error instanceof RegistryError ? error.code === 'MANIFEST_UNKNOWN' : error instanceof DomainError && error.code === 5) return undefined
    throw error
  })
  if (verdicts === undefined) return undefined
  const [now, planned] = verdicts
  return create(DryRunPullPolicyResponse_PulledManifestSchema, {
    ...{ repoUid: pull.repo, digest: pull.digest, tag: pull.tag, lastPullTime: timestampFromMs(pull.timeMs) },
    ...(now && { current: now }),
    ...(planned && { planned }),
  })
}

/** Opens a page token: the newest event that counts, and how many manifests were on earlier pages. */
async function placeOf(services: Services, context: Context, token: { text: string; queryHash: string }) {
  const { key, restarted } = await openPage(services, context, token)
  const [revision, eventKey, skip] = key ?? []
  if (typeof revision !== 'number' || typeof eventKey !== 'string' || typeof skip !== 'number') return { end: undefined, skip: 0, restarted }
  return { end: { revision, key: eventKey }, skip, restarted }
}

/** Resolves with the manifests of a page, and how many pulls it took. It ends early after some time, and before it is too large for clients. */
async function triedPage(services: Services, context: Context, tried: { trials: PullTrials; page: readonly LastPull[]; change: PlannedChange }) {
  const { trials, page, change } = tried
  const { signal } = context
  const untilMs = services.clock.now() + pageMs
  const manifests: DryRunPullPolicyResponse_PulledManifest[] = []
  let [count, bytes] = [0, 0]
  do {
    const asked = page.slice(count, count + asksAtOnce).map((pull) => triedPull(services, trials, { pull, change, signal }))
    const found = await Promise.all(asked)
    context.authorize()
    for (const one of found) {
      bytes += one === undefined ? 0 : toBinary(DryRunPullPolicyResponse_PulledManifestSchema, one).length
      if (bytes > pageBytes && manifests.length > 0) return { manifests, count }
      if (one !== undefined) manifests.push(one)
      count += 1
    }
  } while (count < page.length && services.clock.now() < untilMs)
  return { manifests, count }
}

/** Rejects with code 14 while this process loads contents or advisories. A pull takes that for not known, but who plans a policy can wait for the answer. */
async function assertLoaded({ imageContents, catalogue }: Services, context: Context, [pull]: readonly LastPull[]): Promise<void> {
  catalogue('advisories')
  if (pull !== undefined) await imageContents?.imagesAmong([pull], turnOf(context))
}

/** Returns the function that ends a dry run. Throws code 8 if its organisation has as many as it may. */
function begin(parent: Uid): () => void {
  const end = running.take([rootOf(parent)])
  if (end === undefined)
    throw new DomainError(8, 'too many dry runs of the organisation at once; try again', { reason: 'RATE_LIMITED', details: { retryAfterMs: 1_000 } })
  return end
}

/** DryRunPullPolicy: tells what a change of pull policies would mean for the manifests that were pulled lately (docs/spec/registry.md#dry-runs). */
export const dryRunPullPolicy: Handler = async (services, context, message) => {
  const request = message as DryRunPullPolicyRequest // the method's input
  const { pullTrials: trials } = services
  if (trials === undefined) throw new DomainError(9, 'no upstream is configured, so there are no images', { reason: 'NO_UPSTREAM' })
  const { signal } = context
  const parent = trustedUid(request.parent)
  const change = changeIn(services, request)
  const startMs = request.startTime === undefined ? 0 : timestampMs(request.startTime)
  const policy = request.pullPolicy === undefined ? null : Buffer.from(toBinary(PullPolicySchema, request.pullPolicy)).toString('base64')
  const queryHash = hashQuery([context.method.rpc, parent, request.replaces, startMs, policy, callerOf(context).identity])
  const end = begin(parent)
  try {
    const { end: upTo, skip, restarted } = await placeOf(services, context, { text: request.pageToken, queryHash })
    const size = Math.min(request.pageSize === 0 ? defaultManifests : request.pageSize, maxManifests)
    // One more tells whether there is another page.
    const { pulls, end: last } = await lastPulls(services, { parent, startMs, end: upTo, limit: skip + size + 1 }, signal)
    const page = pulls.slice(skip, skip + size)
    await assertLoaded(services, context, page)
    const { manifests, count } = await triedPage(services, context, { trials, page, change })
    const next = skip + count
    const cursor = { key: [last.revision, last.key, next], queryHash, issuedMs: services.clock.now() }
    const nextPageToken = next < pulls.length ? sealCursor(cursor, services.pageKeys.current(), services.random) : ''
    return { message: create(DryRunPullPolicyResponseSchema, { manifests, nextPageToken }), ...(restarted ? { pageTokenRestarted: true } : {}) }
  } finally {
    end()
  }
}
