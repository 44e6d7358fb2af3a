import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import type { Digest } from '../../base/digest.ts'
import { hashQuery, sealCursor } from '../../base/page-token.ts'
import type { Uid } from '../../base/uid.ts'
import { isBefore, millisecondFrom, millisecondUpTo } from '../../base/schema/whole-milliseconds.ts'
import {
  ListTagHistoryResponseSchema,
  TagHistoryRecordSchema,
  type ListTagHistoryRequest,
  type RestoreTagRequest,
} from '../../gen/taproot/registry/v2/history_pb.ts'
import { TagSchema } from '../../gen/taproot/registry/v2/tags_pb.ts'
import { ManifestRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { Resource } from '../../cache/records/cached-record.ts'
import type { Guard, Write } from '../../store/store.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import { notFound } from '../../engine/errors.ts'
import { openPage, pageLimit, recordAnswer } from '../../engine/read.ts'
import { callerOf, type Handler, type Services } from '../../engine/services.ts'
import { assertEtag, emit } from '../../engine/write.ts'
import { contentEpoch, guardEpoch } from '../records/content-epoch.ts'
import { manifestKey, referrerKeyPrefix } from '../records/manifest-keys.ts'
import { missingReferences } from '../records/manifests.ts'
import { everPointedTo, historyAt, readHistory, type TagName } from './tag-history.ts'
import { planMove, readMoveFacts } from './tag-moves.ts'
import { tagKind, tagNamed } from '../records/tags.ts'

/** ListTagHistory: lists the moves of a tag, oldest first. Also works for a deleted tag, and for a tag of a deleted repo. */
export const listTagHistory: Handler = async (services, context, message) => {
  const { repoUid: repo, tag: name, start, end, pageSize, pageToken } = message as ListTagHistoryRequest
  if (name === '') throw DomainError.invalid('tag', 'is required')
  const from = start ?? timestampFromMs(0)
  if (end !== undefined && !isBefore(from, end)) throw DomainError.invalid('end', 'must be later than start')
  const startMs = millisecondFrom(from)
  const endMs = end === undefined ? undefined : millisecondFrom(end)
  const queryHash = hashQuery([context.method.rpc, repo, name, startMs, endMs ?? null, callerOf(context).identity])
  const { key, restarted } = await openPage(services, context, { text: pageToken, queryHash })
  // The position in a page token is the time of the last record.
  const fromMs = key === undefined ? startMs : Number(key[0]) + 1
  const window = { repo, name, startMs: fromMs, limit: pageLimit(pageSize), ...(endMs === undefined ? {} : { endMs }) }
  const found = await readHistory(services, window, context.signal)
  if (found === undefined) throw notFound('TagHistoryRecord', repo)
  const last = found.records.at(-1)
  const cursor = last !== undefined && found.more ? { key: [last.timeMs], queryHash, issuedMs: services.clock.now() } : undefined
  const answer = create(ListTagHistoryResponseSchema, {
    history: found.records.map(({ timeMs, digest }) => create(TagHistoryRecordSchema, { updateTimestamp: timestampFromMs(timeMs), digest })),
    nextPageToken: cursor === undefined ? '' : sealCursor(cursor, services.pageKeys.current(), services.random),
  })
  return { message: answer, ...(restarted ? { pageTokenRestarted: true } : {}) }
}

function notRestorable(reason: string, description: string): DomainError {
  return new DomainError(9, `Precondition failed: ${description}`, { reason, details: { precondition: [{ type: reason, subject: '', description }] } })
}

/**
 * Returns the digest that the request selects. Throws code 9 if the tag did not exist at the requested time, or never pointed to the
 * requested digest.
 */
async function wantedDigest({ store }: Services, request: RestoreTagRequest, signal: AbortSignal): Promise<Digest> {
  const tag: TagName = { repo: request.repoUid, name: request.tag }
  if (request.time === undefined) {
    // The schema requires a valid digest.
    const digest = request.digest as Digest
    if (await everPointedTo(store, { ...tag, digest }, signal)) return digest
    throw notRestorable('DIGEST_NOT_IN_HISTORY', `the tag ${tag.name} never pointed to ${digest}`)
  }
  const digest = await historyAt(store, { ...tag, timeMs: millisecondUpTo(request.time) }, signal)
  if (digest !== undefined && digest !== '') return digest
  throw notRestorable('DIGEST_NOT_IN_HISTORY', `the tag ${tag.name} ${digest === '' ? 'was deleted' : 'did not exist yet'} at that time`)
}

/** Writes that undo the deletion of a manifest whose bytes still exist. */
interface Revival {
  readonly guards: readonly Guard[]
  readonly writes: readonly Write[]
}

/**
 * Returns how to undo the deletion of a manifest; undefined if it is not deleted. Throws code 9 if the manifest was garbage-collected, or
 * if the upstream no longer has its bytes.
 */
async function revivalOf(services: Services, name: { repo: Uid; digest: Digest }, signal: AbortSignal): Promise<Revival | undefined> {
  const { content, store, clock } = services
  if (content === undefined) return undefined
  const { repo, digest } = name
  const gone = notRestorable('DIGEST_NOT_FOUND', `the repo no longer holds ${digest}`)
  const epoch = await contentEpoch(services, repo, signal)
  const key = manifestKey(repo, digest)
  const entry = await store.get(key, signal)
  if (entry === undefined) throw gone
  const record = fromBinary(ManifestRecordSchema, entry.value)
  if (!(await content.holdsManifest(repo, record.upstreamDigest as Digest, signal))) throw gone
  if (record.deleteTimeMs === 0n) return undefined
  if ((await missingReferences(services, { repo, record }, signal)).length > 0) throw gone
  const back = create(ManifestRecordSchema, { ...record, deleteTimeMs: 0n, createTimeMs: BigInt(clock.now()) })
  const referrer: Write[] = record.subject === '' ? [] : [{ kind: 'put', key: `${referrerKeyPrefix(repo, record.subject)}${digest}`, value: new Uint8Array() }]
  return {
    guards: [{ kind: 'unchanged', key, revision: entry.revision }, await guardEpoch(services, { repo, epoch }, signal)],
    writes: [{ kind: 'put', key, value: toBinary(ManifestRecordSchema, back) }, ...referrer],
  }
}

/** RestoreTag: points a tag, or a deleted tag, to a digest of its history. Adds this as one more move at the end of the history. */
export const restoreTag: Handler = async (services, context, message) => {
  const request = message as RestoreTagRequest
  const { repoUid, tag: name, digest: text, time } = request
  if (name === '') throw DomainError.invalid('tag', 'is required')
  if ((text === '') === (time === undefined)) throw DomainError.invalid('digest', 'set either digest or time, not both')
  const tag = { repo: repoUid as Uid, name }
  const restored = await commitPrepared(services, context, {
    prepare: async (signal) => {
      const digest = await wantedDigest(services, request, signal)
      const revival = await revivalOf(services, { repo: tag.repo, digest }, signal)
      const facts = await readMoveFacts(services, { ...tag, digest }, signal)
      return { digest, revival, facts: revival === undefined ? facts : { ...facts, manifest: 'unchecked' as const } }
    },
    plan: (planning, { digest, revival, facts }): MutationPlan<Resource> => {
      assertEtag(tagNamed(planning.tables, tag.repo, name), context.ifMatch)
      const changes = new ChangeSet()
      changes.add(revival)
      const planned = planMove(planning, changes, { ...tag, state: { digest }, facts })
      emit(planning, context, { changes, subject: planned.tag.uid, body: { desc: TagSchema, message: planned.tag } })
      return { changes, result: planned.tag }
    },
  })
  return recordAnswer(tagKind, services, restored)
}
