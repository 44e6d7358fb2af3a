import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { DomainError } from '../../base/errors.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { ChangeSet, newEtag } from '../../engine/change-set.ts'
import { commitPrepared, type MutationPlan } from '../../engine/commit.ts'
import { fromStore, notFound } from '../../engine/errors.ts'
import { onceByKey, type Idempotent } from '../../engine/idempotency.ts'
import type { Planning } from '../../engine/kind.ts'
import type { Context, Handler, HandlerAnswer, Services } from '../../engine/services.ts'
import { assertEtag, emit } from '../../engine/write.ts'
import {
  DeploymentSchema,
  type CreateDeploymentRequest,
  type Deployment,
  type GetDeploymentRequest,
  type UpdateDeploymentRequest,
} from '../../gen/taproot/registry/v1/registry_pb.ts'
import { DeploymentRecordSchema } from '../../gen/taproot/store/v1/registry_pb.ts'
import { recordKey } from '../../store/keys.ts'
import type { Revision } from '../../store/store.ts'

/** The etag of a deployment without charts, which is not stored. */
const noChartsEtag = '0'

/** Returns the key of a repo's deployment. Deployments are stored outside the records, and never kept in memory. */
export function deploymentKey(repo: string): string {
  return `x/deployment/${repo}`
}

/** Returns the record of the repo that a deployment belongs to. Throws code 5 if there is none. */
function repoRecord(services: Services, uid: string): CachedRecord {
  const record = services.cache.tables.get('Repo', uid)
  if (record === undefined) throw notFound('Repo', uid)
  return record
}

/** A deployment as currently stored; without a revision if the repo has no charts. */
interface StoredDeployment {
  readonly repo: CachedRecord
  readonly deployment: Deployment
  readonly etag: string
  readonly revision: Revision | undefined
}

async function readDeployment(services: Services, uid: string, signal: AbortSignal): Promise<StoredDeployment> {
  const repo = repoRecord(services, uid)
  try {
    const entry = await services.store.get(deploymentKey(uid), signal)
    if (entry === undefined) return { repo, deployment: create(DeploymentSchema, { id: uid }), etag: noChartsEtag, revision: undefined }
    const { deployment, etag } = fromBinary(DeploymentRecordSchema, entry.value)
    return { repo, deployment: create(DeploymentSchema, { id: uid, charts: deployment?.charts ?? [] }), etag, revision: entry.revision }
  } catch (error) {
    throw fromStore(error)
  }
}

function answerOf({ deployment, etag }: Pick<StoredDeployment, 'deployment' | 'etag'>): HandlerAnswer {
  return { message: deployment, etag, subject: deployment.id }
}

/** GetDeployment: returns the charts of a repo, which may be none (docs/spec/version-1.md#deployments). */
export const getDeployment: Handler = async (services, context, message) =>
  answerOf(await readDeployment(services, (message as GetDeploymentRequest).repoId, context.signal)) // the request of this method

/** Plans the write of a deployment. One without charts is removed from the store. */
function planDeployment(planning: Planning, context: Context, { stored, next }: { stored: StoredDeployment; next: Deployment }): MutationPlan<HandlerAnswer> {
  const { repo, revision } = stored
  const key = deploymentKey(repo.uid)
  const changes = new ChangeSet()
  changes.guard({ kind: 'unchanged', key: recordKey('Repo', repo.uid), revision: repo.revision })
  changes.guard(revision === undefined ? { kind: 'absent', key } : { kind: 'unchanged', key, revision })
  const etag = next.charts.length === 0 ? noChartsEtag : newEtag(planning.services.random)
  if (next.charts.length > 0)
    changes.write({ kind: 'put', key, value: toBinary(DeploymentRecordSchema, create(DeploymentRecordSchema, { deployment: next, etag })) })
  else if (revision !== undefined) changes.write({ kind: 'delete', key })
  emit(planning, context, { changes, subject: repo.uid, body: { desc: DeploymentSchema, message: next } })
  return { changes, result: answerOf({ deployment: next, etag }) }
}

/** A change of a deployment: what it becomes, and a check of the present one, which throws. */
interface DeploymentChange {
  readonly next: Deployment
  readonly check?: (stored: StoredDeployment) => void
  readonly memory?: Idempotent | undefined
}

function changeDeployment(services: Services, context: Context, { next, check, memory }: DeploymentChange): Promise<HandlerAnswer> {
  const prepare = async (signal: AbortSignal): Promise<StoredDeployment> => {
    const stored = await readDeployment(services, next.id, signal)
    assertEtag(stored, context.ifMatch)
    check?.(stored)
    return stored
  }
  const plan = (planning: Planning, stored: StoredDeployment): MutationPlan<HandlerAnswer> => {
    const planned = planDeployment(planning, context, { stored, next })
    const { guards = [], writes = [] } = memory?.remember([next.id], planning.nowMs) ?? {}
    for (const guard of guards) planned.changes.guard(guard)
    for (const write of writes) planned.changes.write(write)
    return planned
  }
  return commitPrepared(services, context, { prepare, plan })
}

function assertNone({ deployment }: StoredDeployment): void {
  if (deployment.charts.length > 0) throw new DomainError(6, 'the repo has a deployment: update it')
}

/** CreateDeployment: sets the charts of a repo that has none. Throws code 6 if it has some. */
export const createDeployment: Handler = async (services, context, message) => {
  const { parentId, charts } = message as CreateDeploymentRequest // the request of this method
  const next = create(DeploymentSchema, { id: parentId, charts })
  const outcome = await onceByKey(services, { context, message, parent: parentId }, (memory) =>
    changeDeployment(services, context, { next, check: assertNone, memory }),
  )
  return outcome.kind === 'made' ? outcome.made : answerOf(await readDeployment(services, parentId, context.signal))
}

/** UpdateDeployment: replaces the charts of a repo, or removes them. */
export const updateDeployment: Handler = (services, context, message) => {
  const { repoId, charts } = message as UpdateDeploymentRequest // the request of this method
  return changeDeployment(services, context, { next: create(DeploymentSchema, { id: repoId, charts }) })
}
