import { create, type Message } from '@bufbuild/protobuf'
import { FieldMaskSchema } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import { trustedUid } from '../base/uid.ts'
import type { CachedRecord } from '../cache/records/cached-record.ts'
import { messageOf } from '../cache/records/record-types.ts'
import type { Context, Services } from '../engine/services.ts'
import { RepoSchema as RepoV1Schema, type CreateRepoRequest, type Repo as RepoV1 } from '../gen/taproot/registry/v1/registry_pb.ts'
import { RepoReadmeSchema, type RepoReadme } from '../gen/taproot/registry/v2/repos_pb.ts'
import { assertReadme, readmeOf } from '../registry/index.ts'
import type { Answer, Call, Dispatch } from '../transport/call.ts'
import { InnerCall, methodNamed, withFieldNames } from './inner-call.ts'
import { createRequests, forwarded, recordAnswer, replaceRequests, type MethodMapping, type RequestMapping, type Version1Options } from './mapped-methods.ts'
import { repoMap } from './registry-maps.ts'

const update = methodNamed('registry.v2.ReposService/UpdateRepo')
const getReadme = methodNamed('registry.v2.ReposService/GetRepoReadme')
const updateReadme = methodNamed('registry.v2.ReposService/UpdateRepoReadme')
const createRepo = methodNamed('registry.v2.ReposService/CreateRepo')

/** Fields that an update of a repo keeps if they are not set, because clients of version 1 do not send them. */
const kept = ['custom_overlay']

/** Changes the readme of a repo. Errors name it as the field of the repo. */
async function changeReadme({ call, dispatch }: { call: Call; dispatch: Dispatch }, uid: string, content: string): Promise<void> {
  try {
    await dispatch(
      new InnerCall(
        call,
        updateReadme,
        create(updateReadme.input, { repoReadme: { uid, content }, updateMask: create(FieldMaskSchema, { paths: ['content'] }) }),
      ),
    )
  } catch (error) {
    throw withFieldNames(error, readmeInV1)
  }
}

/** A repo as a request of version 1 writes it. */
interface AskedRepo {
  readonly repo: RepoV1
  /** The uid of the repo, or of the group of a new one. */
  readonly place: string
  /** The uid of the repo that the request changes; undefined for a new one. */
  readonly uid: string | undefined
}

/** True if the repo has this source, or if both have none. An empty source keeps that of a synced repo. */
function hasSource(record: CachedRecord, asked: string | undefined): boolean {
  const { source } = messageOf(record, 'Repo').syncConfig ?? {}
  return source === asked || (source !== undefined && asked === '')
}

/** Throws code 3 if the readme of a request cannot be stored. Runs before anything is written. */
async function assertAskedReadme({ services, context }: { services: Services; context: Context }, { repo, place, uid }: AskedRepo): Promise<void> {
  const { readme, syncConfig: sync } = repo
  if (readme === '') return
  if (uid !== undefined) {
    const existing = services.cache.tables.get('Repo', uid)
    if (existing === undefined) return // the handler refuses the request
    if (hasSource(existing, sync?.source) && (await readmeOf(services, uid, context.signal)) === readme) return
  }
  if (sync !== undefined) throw DomainError.invalid('readme', 'is inherited from the source of the sync: leave it empty')
  try {
    await assertReadme(context, create(RepoReadmeSchema, { content: readme }), trustedUid(place))
  } catch (error) {
    throw withFieldNames(error, readmeInV1)
  }
}

function readmeInV1(path: string): string {
  return path === 'content' ? 'readme' : path
}

/** What is known about the readme of a repo that was written. */
interface ReadmeFacts {
  /** True if the repo was created just now: it has no readme, unless it is synced. */
  readonly isNew?: boolean
  /** True if a readme that is not empty stays as it is. */
  readonly keepsOther?: boolean
}

/** Returns the answer of a write of a repo with its readme. Changes the readme first if it differs. A dry run only checks it. */
async function withReadme(
  { call, options, isNew = false, keepsOther = false }: { call: Call; options: Version1Options } & ReadmeFacts,
  answer: Answer,
  readme: string,
): Promise<Answer> {
  const repo = answer.message as RepoV1 // the answer of a method about repos
  const isSynced = repo.syncConfig !== undefined
  // A repo that a dry run creates does not exist, and a synced repo has the readme of its source.
  const stored = isNew && !isSynced && !call.validateOnly ? '' : await readmeOf(options.services, repo.id, call.signal)
  const isKept = isSynced ? readme === '' : keepsOther && stored !== ''
  const isChanged = stored !== undefined && stored !== readme && !isKept
  if (isChanged) await changeReadme({ call, dispatch: options.dispatch }, repo.id, readme)
  return { ...answer, message: create(RepoV1Schema, { ...repo, readme: isChanged ? readme : (stored ?? readme) }) }
}

/** Returns requests that keep the last one that was read. `check` refuses a request of an authorized caller before its handler runs. */
export function remembering<Request extends Message>(
  { toV2, pathInV1 }: RequestMapping,
  check?: (request: Request, context: Context) => Promise<void>,
): RequestMapping & { asked: () => Request } {
  let read: Message | undefined
  const asked = (): Request => {
    if (read === undefined) throw new TypeError('the request was not read')
    return read as Request // the request of the method
  }
  const settle = async (mapped: Message, context: Context): Promise<Message> => {
    await check?.(asked(), context)
    return mapped
  }
  return { pathInV1, toV2: (request) => toV2((read = request)), asked, ...(check === undefined ? {} : { settle }) }
}

const replacing = replaceRequests(update, repoMap, { kept })

/** Replaces the repo of the group that has the name of the new one. Returns undefined if there is none any more. */
async function replaceExisting(
  { call, options }: { call: Call; options: Version1Options },
  { parentId, repo }: CreateRepoRequest,
): Promise<Answer | undefined> {
  const existing = repo === undefined ? undefined : options.services.cache.tables.table('Repo').child(parentId, repo.name)
  if (repo === undefined || existing === undefined) return undefined
  try {
    return await options.dispatch(new InnerCall(call, update, replacing.toV2({ ...repo, id: existing.uid } as Message)))
  } catch (error) {
    throw withFieldNames(error, replacing.pathInV1)
  }
}

/** Maps the create of a repo: it replaces a repo with the same name, unless the request prevents that, and sets the readme. */
export const createsRepo: MethodMapping = ({ input }) => ({
  method: createRepo,
  async answer(call, options) {
    const requests = remembering<CreateRepoRequest>(createRequests(input, createRepo, { map: repoMap }), async ({ parentId, repo }, context) => {
      if (repo === undefined) return
      const { services } = options
      const uid = services.cache.tables.table('Repo').child(parentId, repo.name)?.uid
      await assertAskedReadme({ services, context }, { repo, place: parentId, uid })
    })
    const outer = { call, options }
    const { ifNoneMatch, idempotencyKey } = call.headers
    // A repeated create with a key answers the repo as it is now.
    let facts: ReadmeFacts = idempotencyKey === undefined ? { isNew: true } : { keepsOther: true }
    let answer: Answer | undefined
    try {
      answer = await forwarded({ call, dispatch: options.dispatch }, createRepo, requests)
    } catch (error) {
      const isTaken = error instanceof DomainError && error.code === 6 && ifNoneMatch === undefined && !requests.asked().preventExisting
      facts = {}
      answer = isTaken ? await replaceExisting(outer, requests.asked()) : undefined
      if (answer === undefined) throw error
    }
    return withReadme({ ...outer, ...facts }, recordAnswer(repoMap, answer), requests.asked().repo?.readme ?? '')
  },
})

/** Maps the update of a repo, which also replaces its readme. */
export const replacesRepo: MethodMapping = () => ({
  method: update,
  async answer(call, options) {
    const requests = remembering<RepoV1>(replacing, async (repo, context) => {
      const { services } = options
      await assertAskedReadme({ services, context }, { repo, place: repo.id, uid: repo.id })
    })
    const answer = await forwarded({ call, dispatch: options.dispatch }, update, requests)
    return withReadme({ call, options }, recordAnswer(repoMap, answer), requests.asked().readme)
  },
})

/** Returns the record of a list by `id` with its readme. */
export async function withStoredReadme(call: Call, dispatch: Dispatch, item: Message): Promise<Message> {
  const repo = item as RepoV1 // an item of a list of repos
  const { message: readme } = await dispatch(new InnerCall(call, getReadme, create(getReadme.input, { uid: repo.id })))
  return create(RepoV1Schema, { ...repo, readme: (readme as RepoReadme).content }) // the answer of this method
}
