import { methods } from '../../base/schema/schema.ts'
import type { Digest } from '../../base/digest.ts'
import { trustedUid } from '../../base/uid.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { ChangeSet } from '../../engine/change-set.ts'
import { commit, type MutationPlan } from '../../engine/commit.ts'
import { platformContext, type Services } from '../../engine/services.ts'
import { emit } from '../../engine/write.ts'
import { TagSchema } from '../../gen/taproot/registry/v2/tags_pb.ts'
import { tagOf } from '../records/tags.ts'
import { planMove } from './tag-moves.ts'

function createTagMethod() {
  const found = methods.find(({ service, rpc }) => service === 'taproot.registry.v2.TagsService' && rpc === 'CreateTag')
  if (found === undefined) throw new TypeError('the schema has no method to create tags')
  return found
}

/** True if the life cycle set `deprecated` of a tag, and no caller changed that since. */
export function isDeprecatedByLifeCycle(record: CachedRecord): boolean {
  return tagOf(record).deprecated && record.lifeCycleDigest !== ''
}

/** Tags of signatures, attestations and SBOMs, and of the list of referrers. They go with their image. */
const accompanyingTag = /^sha256-[0-9a-f]{64}(?:\.|$)/

/** True if the life cycle may set `deprecated` of a tag: it is not set, and no caller cleared it for this digest. */
export function mayDeprecate(record: CachedRecord): boolean {
  const { deprecated, digest, name } = tagOf(record)
  return !deprecated && !accompanyingTag.test(name) && digest !== '' && record.lifeCycleDigest !== digest
}

/**
 * Sets or clears `deprecated` of a tag on behalf of its life cycle, with its event (docs/adr/0042). Does nothing if the tag was written since `record`, or must
 * be left alone. Resolves with whether it changed the tag. Rejects with DomainError, or the signal's reason.
 */
export async function followLifeCycle(
  services: Services,
  { record, deprecated }: { readonly record: CachedRecord; readonly deprecated: boolean },
  signal: AbortSignal,
): Promise<boolean> {
  const context = platformContext(services, { method: createTagMethod(), requestId: 'life-cycles', signal })
  return commit(services, context, (planning): MutationPlan<boolean> => {
    const changes = new ChangeSet()
    const current = planning.tables.get('Tag', record.uid)
    const isOpen = current?.revision === record.revision && (deprecated ? mayDeprecate(current) : isDeprecatedByLifeCycle(current))
    if (!isOpen) return { changes, result: false }
    // What the platform decides does not count as use.
    changes.isMetered = false
    const digest = tagOf(current).digest as Digest // checked when it was written
    const move = { repo: trustedUid(current.parent), name: current.name, state: { digest, deprecated, lifeCycleDigest: deprecated ? digest : ('' as const) } }
    const { tag } = planMove(planning, changes, { ...move, facts: { head: { entry: undefined, head: undefined }, manifest: 'unchecked' } })
    emit(planning, context, { changes, subject: tag.uid, body: { desc: TagSchema, message: tag } })
    return { changes, result: true }
  })
}
