import { create } from '@bufbuild/protobuf'
import { BindingSight, explain as explainGrant, type Effect, type Explanation } from '../../authz/access.ts'
import { decide, type EffectivePermissions } from '../../authz/effective-permissions.ts'
import { capabilityByName, setOf, type Capability } from '../../base/capability.ts'
import { DomainError } from '../../base/errors.ts'
import { rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import {
  BindingEffect,
  ExplainedBindingSchema,
  ExplainResponseSchema,
  Obstacle,
  type ExplainedBinding,
  type ExplainRequest,
} from '../../gen/taproot/iam/v2/access_pb.ts'
import type { RoleBinding } from '../../gen/taproot/iam/v2/role_bindings_pb.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import { notFound } from '../../engine/errors.ts'
import { isMember, isPerson } from '../../engine/membership.ts'
import { callerOf, type Handler, type Services } from '../../engine/services.ts'
import { shownOf } from '../../engine/shown.ts'
import { renderIdentity, roleBindingKind } from './role-bindings.ts'

/** Maximum number of role bindings in a response of Explain. */
const maxBindings = 100

const readsIdentities = setOf(['identity.list'])

const effects = {
  grants: BindingEffect.GRANTS,
  lacks_capability: BindingEffect.LACKS_CAPABILITY,
  role_missing: BindingEffect.ROLE_MISSING,
  confined: BindingEffect.CONFINED,
} satisfies Record<Effect, BindingEffect>

/** Returns the capability with this name, in either spelling. Throws code 3 on this field of the request if there is none. */
export function capabilityNamed(name: string, field = 'capability'): Capability {
  const found = capabilityByName(name)
  if (found === undefined) throw DomainError.invalid(field, 'is not a capability: use a name such as groups.list')
  return found
}

/** Returns a role binding in the form of ListRoleBindings. */
export function shownBinding(services: Services, record: CachedRecord): RoleBinding {
  // a cast: a record of kind RoleBinding contains a RoleBinding
  return shownOf(roleBindingKind, services, record).message as RoleBinding
}

/** True if the caller can read the identity or one of its role bindings. */
function isKnown(tables: RecordTables, asker: { permissions: EffectivePermissions; sight: BindingSight }, identity: Uid): boolean {
  if (tables.get('Identity', identity) !== undefined && decide(asker.permissions, identity, readsIdentities).kind === 'allowed') return true
  return [...tables.table('RoleBinding').matching('identity', identity)].some((record) => asker.sight.shows(record))
}

/** True if the caller can see the identity: it can read the identity, or a role binding of it in an organisation of the identity. */
function isSeen(tables: RecordTables, asker: { permissions: EffectivePermissions; sight: BindingSight }, identity: Uid): boolean {
  if (!isPerson(identity) || decide(asker.permissions, identity, readsIdentities).kind === 'allowed') return true
  const bindings = [...tables.table('RoleBinding').matching('identity', identity)]
  return bindings.some((record) => asker.sight.shows(record) && isMember(tables, identity, rootOf(record.uid)))
}

/** Returns the first reason why a call would be refused, in the order in which a call is checked (docs/spec/iam.md#explain-and-access). */
function blockerOf({ registered, decision, suspended }: Explanation): Obstacle {
  if (!registered) return Obstacle.NOT_REGISTERED
  if (decision.kind === 'hidden') return Obstacle.NO_REACH
  if (decision.kind === 'denied') return Obstacle.MISSING_CAPABILITY
  return suspended ? Obstacle.ORGANIZATION_SUSPENDED : Obstacle.UNSPECIFIED
}

function explainedBinding(services: Services, { record, effect }: Explanation['chain'][number]): ExplainedBinding {
  const { uid, group, role } = shownBinding(services, record)
  return create(ExplainedBindingSchema, { uid, effect: effects[effect], ...(group && { group }), ...(role && { role }) })
}

/**
 * Explain: returns whether an identity holds a capability at a resource, and through which role bindings. `allowed` is correct even if it
 * depends on role bindings that the caller cannot list; these are left out. Throws code 5 for an identity that does not exist or that the
 * caller cannot see.
 */
export const explain: Handler = (services, context, message) => {
  const request = message as ExplainRequest
  const { tables } = services.cache
  const capability = capabilityNamed(request.capability)
  // The schema checked the identity, the request pipeline the resource.
  const [identity, resource] = [trustedUid(request.identity), trustedUid(request.resource)]
  const permissions = callerOf(context).permissions()
  const sight = new BindingSight(permissions)
  if (!isKnown(tables, { permissions, sight }, identity))
    return Promise.reject(notFound('Identity', identity, { concealed: tables.get('Identity', identity) !== undefined }))
  const found = explainGrant(tables, { identity, resource, capability: setOf([capability.name]) })
  const blocker = blockerOf(found)
  const shown = found.chain.filter(({ record }) => sight.shows(record))
  const answer = create(ExplainResponseSchema, {
    allowed: blocker === Obstacle.UNSPECIFIED,
    obstacle: blocker,
    capability: capability.name,
    resource,
    identity: renderIdentity(tables, identity, isSeen(tables, { permissions, sight }, identity)),
    bindings: shown.slice(0, maxBindings).map((link) => explainedBinding(services, link)),
    inherited: found.chain.some(({ record, effect }) => effect === 'grants' && !sight.shows(record)),
    withheldGroups: [...sight.split(resource).withheld],
  })
  return Promise.resolve({ message: answer, subject: resource })
}
