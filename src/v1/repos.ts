import { create, type Message } from '@bufbuild/protobuf'
import { FieldMaskSchema } from '@bufbuild/protobuf/wkt'
import { DomainError } from '../base/errors.ts'
import { isUid, trustedUid } from '../base/uid.ts'
import { messageOf } from '../cache/records/record-types.ts'
import { onceByKey, type Idempotent } from '../engine/idempotency.ts'
import type { Context, Services } from '../engine/services.ts'
import { RepoSchema as RepoV1Schema, type CreateRepoRequest, type Repo as RepoV1 } from '../gen/taproot/registry/v1/registry_pb.ts'
import { RepoReadmeSchema, type RepoReadme } from '../gen/taproot/registry/v2/repos_pb.ts'
import { assertReadme, readmeOf } from '../registry/index.ts'
import type { Answer, Call, Dispatch } from '../transport/calls/call.ts'
import { InnerCall, methodNamed, withFieldNames } from './inner-call.ts'
import { createRequests, forwarded, recordAnswer, replaceRequests, type MethodMapping, type RequestMapping, type Version1Options } from './mapped-methods.ts'
import { repoMap } from './registry-maps.ts'

const update = methodNamed('registry.v2.ReposService/UpdateRepo')
const getReadme = methodNamed('registry.v2.ReposService/GetRepoReadme')
const updateReadme = methodNamed('registry.v2.ReposService/UpdateRepoReadme')
const createRepo = methodNamed('registry.v2.ReposService/CreateRepo')

/** Fields that an update of a repo keeps if they are not set, because clients of version 1 do not send them. */
const kept = ['custom_overlay']

/** The write of the readme of a repo, as a part of a call. */
interface ReadmeWrite {
  readonly call: Call
  readonly options: Version1Options
  /** What its transaction also writes. */
  readonly also?: Context['also']
}

/** Changes the readme of a repo. Errors name it as the field of the repo. */
async function changeReadme({ call, options, also }: ReadmeWrite, uid: string, content: string): Promise<void> {
  try {
    const request = create(updateReadme.input, { repoReadme: { uid, content }, updateMask: create(FieldMaskSchema, { paths: ['content'] }) })
    await options.dispatch(new InnerCall(call, updateReadme, request).storing(also))
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

/** True if the repo keeps its source, or has none before and after. A source may be given by its name, or not at all. */
function keepsSource(current: string | undefined, asked: string | undefined): boolean {
  return current === asked || (current !== undefined && asked !== undefined && !isUid(asked))
}

/** Throws code 3 if the readme of a request cannot be stored. Runs before anything is written. */
async function assertAskedReadme({ services, context }: { services: Services; context: Context }, { repo, place, uid }: AskedRepo): Promise<void> {
  const { readme, syncConfig: sync } = repo
  if (readme === '') return
  if (uid !== undefined) {
    const existing = services.cache.tables.get('Repo', uid)
    if (existing === undefined) return // the handler refuses the request
    const { syncConfig: current } = messageOf(existing, 'Repo')
    if (keepsSource(current?.source, sync?.source) && (await readmeOf(services, uid, context.signal)) === readme) return
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
  { call, options, also, isNew = false, keepsOther = false }: ReadmeWrite & ReadmeFacts,
  answer: Answer,
  readme: string,
): Promise<Answer> {
  const repo = answer.message as RepoV1 // the answer of a method about repos
  const isSynced = repo.syncConfig !== undefined
  // A repo that a dry run creates does not exist, and a synced repo has the readme of its source.
  const stored = isNew && !isSynced && !call.validateOnly ? '' : await readmeOf(options.services, repo.id, call.signal)
  const isKept = isSynced ? readme === '' : keepsOther && stored !== ''
  const isChanged = stored !== undefined && !isKept && (stored !== readme || also !== undefined)
  if (isChanged) await changeReadme({ call, options, also }, repo.id, readme)
  return { ...answer, message: create(RepoV1Schema, { ...repo, readme: isChanged ? readme : (stored ?? readme) }) }
}

/** Returns requests that keep the last one that was read. `check` refuses a request of an authorized caller before its handler runs. */
export function remembering<Request extends Message>(
  { toV2, pathInV1 }: RequestMapping,
  check?: (request: Request, context: Context, mapped: Message) => Promise<void>,
): RequestMapping & { asked: () => Request } {
  let read: Message | undefined
  const asked = (): Request => {
    if (read === undefined) throw new TypeError('the request was not read')
    return read as Request // the request of the method
  }
  const settle = async (mapped: Message, context: Context): Promise<Message> => {
    await check?.(asked(), context, mapped)
    return mapped
  }
  return { pathInV1, toV2: (request) => toV2((read = request)), asked, ...(check === undefined ? {} : { settle }) }
}

const replacing = replaceRequests(update, repoMap, { kept })

/** A create of a repo whose caller was authorized, and its request in version 2. */
interface CheckedCreate {
  readonly context: Context
  readonly message: Message
}

/**
 * Replaces the repo of the group that has the name of the new one, and its readme. The last write also stores the Idempotency-Key, so that a repeated call
 * completes what a failed one began. Returns undefined if there is none any more.
 */
async function replaceExisting(
  outer: { readonly call: Call; readonly options: Version1Options },
  { parentId, repo }: CreateRepoRequest,
  memory: Idempotent | undefined,
): Promise<Answer | undefined> {
  const { call, options } = outer
  const existing = repo === undefined ? undefined : options.services.cache.tables.table('Repo').child(parentId, repo.name)
  if (repo === undefined || existing === undefined) return undefined
  const { uid } = existing
  const also = memory === undefined ? undefined : (nowMs: number) => memory.remember([uid], nowMs)
  const isPlain = messageOf(existing, 'Repo').syncConfig === undefined
  const isLast = also === undefined || repo.syncConfig !== undefined || (isPlain && (await readmeOf(options.services, uid, call.signal)) === repo.readme)
  try {
    const replacement = new InnerCall(call, update, replacing.toV2({ ...repo, id: uid } as Message))
    const updated = await options.dispatch(replacement.storing(isLast ? also : undefined))
    return await withReadme({ ...outer, also: isLast ? undefined : also }, recordAnswer(repoMap, updated), repo.readme)
  } catch (error) {
    throw withFieldNames(error, replacing.pathInV1)
  }
}

/** Replaces a repo like `replaceExisting`, at most once for an Idempotency-Key. */
async function replaceOnce(
  outer: { readonly call: Call; readonly options: Version1Options },
  asked: CreateRepoRequest,
  checked: CheckedCreate,
): Promise<Answer | undefined> {
  const { call, options } = outer
  const once = await onceByKey(options.services, { ...checked, parent: asked.parentId }, (memory) => replaceExisting(outer, asked, memory))
  if (once.kind === 'made') return once.made
  // A call with the same key came first. The create answers its repo.
  const { message } = checked
  const earlier = await options.dispatch(new InnerCall(call, createRepo, () => Promise.resolve({ message })))
  return withReadme({ ...outer, keepsOther: true }, recordAnswer(repoMap, earlier), asked.repo?.readme ?? '')
}

/** Maps the create of a repo: it replaces a repo with the same name, unless the request prevents that, and sets the readme. */
export const createsRepo: MethodMapping = ({ input }) => ({
  method: createRepo,
  async answer(call, options) {
    const outer = { call, options }
    let checked: CheckedCreate | undefined
    const requests = remembering<CreateRepoRequest>(createRequests(input, createRepo, { map: repoMap }), async ({ parentId, repo }, context, message) => {
      checked = { context, message }
      if (repo === undefined) return
      const { services } = options
      const uid = services.cache.tables.table('Repo').child(parentId, repo.name)?.uid
      await assertAskedReadme({ services, context }, { repo, place: parentId, uid })
    })
    const { ifNoneMatch, idempotencyKey } = call.headers
    // A repeated create with a key answers the repo as it is now.
    const facts: ReadmeFacts = idempotencyKey === undefined ? { isNew: true } : { keepsOther: true }
    let answer: Answer
    try {
      answer = await forwarded({ call, dispatch: options.dispatch }, createRepo, requests)
    } catch (error) {
      const isTaken = error instanceof DomainError && error.code === 6 && ifNoneMatch === undefined && !requests.asked().preventExisting
      const replaced = isTaken && checked !== undefined ? await replaceOnce(outer, requests.asked(), checked) : undefined
      if (replaced === undefined) throw error
      return replaced
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
