import { decide as decideAccess } from '../../authz/effective-permissions.ts'
import { isSuspended } from '../../authz/access.ts'
import { emptySet } from '../../base/capability.ts'
import { isWithin, type Uid } from '../../base/uid.ts'
import type { AuditTrail } from '../../base/audit-line.ts'
import type { Digest } from '../../base/digest.ts'
import { heldManifest } from '../records/manifests.ts'
import { findRepository, isRepositoryName, nearestGroup, type RepoTarget } from '../records/repo-paths.ts'
import type { Caller, Services } from '../../engine/services.ts'
import { capabilitiesOfAction, type AdmittedRequest, type Gate, type Presented, type RegistryAction } from '../gate.ts'
import { RegistryError } from '../registry-error.ts'
import type { Challenger, ChallengeScope } from './challenge.ts'
import { auditDenial } from './denial.ts'
import type { VerifiedCredential, RegistryAuthenticator } from './registry-authenticator.ts'
import type { TokenAccess } from './registry-claims.ts'
import { holds, isPublic, placeOf } from './rights.ts'
import { assertInOrganization, catalogScope, type RepositoryScope } from './scope.ts'

/** Dependencies of the gate. */
export interface RegistryGateOptions {
  readonly services: Services
  readonly endpoint: RegistryAuthenticator
  readonly challenger: Challenger
  /** Name of the root group whose repos anyone may pull. */
  readonly publicOrganization: string | undefined
  readonly auditLog: AuditTrail
}

/** A request to decide on, with its credential and the access that it asks for. */
interface RequestedAccess {
  readonly path: string
  readonly actions: readonly RegistryAction[]
  /** Scopes for a challenge. */
  readonly scopes: readonly RepositoryScope[]
  readonly credential: VerifiedCredential
  readonly caller: Caller | undefined
}

/**
 * Creates a Gate. Only the verified signature of a token is cached. Identity, path and role bindings are read from the snapshot for each
 * request.
 */
export function createRegistryGate(options: RegistryGateOptions): Gate {
  const { endpoint, challenger } = options
  return {
    async enter(presented, { repository: path, actions, mountFrom, content }) {
      if (!isRepositoryName(path)) throw new RegistryError('NAME_INVALID', 'the repository name must be lowercase components, separated by slashes')
      assertInOrganization(path)
      const scopes = scopesOf({ path, actions }, mountFrom)
      let caller: Caller | undefined
      try {
        const credential = await endpoint.credential(presented, actions.every((action) => action === 'pull') ? 'read' : 'write')
        caller = endpoint.callerOf(credential)
        const asked = { path, actions, scopes, credential, caller }
        const access = accessOf(asked)
        const admitted = decide(options, asked, access)
        const image = access?.image
        if (image !== undefined) await assertPartOf(options, { image, content, admitted }, presented.signal)
        return admitted
      } catch (error) {
        throw refuse(options, presented, { error, caller, scopes })
      }
    },
    async signedIn(presented) {
      try {
        const credential = await endpoint.credential(presented, 'read')
        if (credential.kind === 'none') throw challenger.unauthorized('sign in first')
        endpoint.callerOf(credential)
      } catch (error) {
        throw refuse(options, presented, { error, caller: undefined, scopes: [] })
      }
    },
    async catalog(presented) {
      const scopes = [catalogScope] as const
      try {
        const credential = await endpoint.credential(presented, 'read')
        const caller = endpoint.callerOf(credential)
        if (caller === undefined) throw challenger.unauthorized('sign in first', scopes)
        if (credential.kind === 'registry' && !credential.claims.catalog)
          throw challenger.unauthorized('the token does not allow the catalog', scopes, 'insufficient_scope')
        return caller
      } catch (error) {
        throw refuse(options, presented, { error, caller: undefined, scopes })
      }
    },
  }
}

/** Returns the scopes that the client must request a token for. A mount also needs `pull` at the source. */
function scopesOf({ path, actions }: RepositoryScope, mountFrom: string | undefined): readonly RepositoryScope[] {
  if (mountFrom === undefined || !isRepositoryName(mountFrom) || !mountFrom.includes('/')) return [{ path, actions }]
  if (mountFrom === path) return [{ path, actions: [...new Set<RegistryAction>(['pull', ...actions])] }]
  return [
    { path, actions },
    { path: mountFrom, actions: ['pull'] },
  ]
}

/** Returns the error of a refused request, and writes it to the audit log unless the request came without a credential. */
function refuse(
  { challenger, auditLog, services }: RegistryGateOptions,
  presented: Presented,
  refused: { error: unknown; caller: Caller | undefined; scopes: readonly ChallengeScope[] },
): RegistryError {
  const { caller, scopes } = refused
  const error = challenger.refusal(refused.error, scopes)
  const [first] = scopes
  const scope = first === catalogScope ? undefined : first
  if (presented.authorization === undefined) return error
  if (scope === undefined) auditDenial(auditLog, presented, { method: 'sign-in', caller, error })
  else {
    const { path, actions } = scope
    const { tables } = services.cache
    const target = findRepository(tables, path)
    const subject = target?.kind === 'repo' ? target.uid : nearestGroup(tables, path)
    const capability = actions.flatMap((action) => capabilitiesOfAction[action]).join(',')
    auditDenial(auditLog, presented, { method: actions.join(), caller, capability, subject, kind: 'Repo', name: path, error })
  }
  return error
}

/** Returns the access that a registry token grants to the repository; undefined for other credentials, and for a token without such access. */
function accessOf({ credential, path }: RequestedAccess): TokenAccess | undefined {
  return credential.kind === 'registry' ? credential.claims.access.get(path) : undefined
}

/** Checks that the request asks for the manifest of the image, or for a blob that the manifest names. Throws RegistryError DENIED. */
async function assertPartOf(
  { services }: RegistryGateOptions,
  { image, content, admitted }: { readonly image: Digest; readonly content: Digest | undefined; readonly admitted: AdmittedRequest },
  signal: AbortSignal,
): Promise<void> {
  if (content === image) return
  const { target } = admitted
  const record = content === undefined || target.kind !== 'repo' ? undefined : await heldManifest(services, { repo: target.uid, digest: image }, signal)
  if (record === undefined || ![record.config, ...record.layers].some((blob) => blob?.digest === content))
    throw denied('the token is for one image only, and the request asks for something else')
}

/** Decides on a request as of one snapshot. `access` is what its token grants. Throws RegistryError. */
function decide(options: RegistryGateOptions, asked: RequestedAccess, access: TokenAccess | undefined): AdmittedRequest {
  const { path, actions, credential, caller } = asked
  if (credential.kind === 'registry' && access === undefined)
    throw denied('the token grants no access to this image: sign in for this image, and check your roles')
  const target = findRepository(options.services.cache.tables, path)
  // A token covers only the object that the path named when the token was issued. Callers get the same error whatever the path names now.
  if (access !== undefined && (target === undefined || !agrees(access, target)))
    throw denied('the token is for an earlier repository of this name: sign in again')
  if (target === undefined) throw unknown(options, asked)
  const allowed = (action: RegistryAction): boolean => isAllowed(options, caller, { target, action })
  const lacking = actions.filter((action) => !allowed(action))
  if (lacking.length > 0) throw refused(options, asked, target)
  if (access !== undefined && !actions.every((action) => access.actions.includes(action))) {
    throw options.challenger.unauthorized('the token does not allow this action', asked.scopes, 'insufficient_scope')
  }
  if (target.kind === 'absent' && !actions.includes('push')) throw new RegistryError('NAME_UNKNOWN', 'there is no such repository')
  return {
    repository: path,
    target,
    caller,
    may: (action) => (access === undefined || access.actions.includes(action)) && allowed(action),
    holds: allowed,
    pullable: (other) => pullable(options, asked, other),
  }
}

/** Returns whether the caller's current role bindings allow the actions. */
function isAllowed(
  { services, publicOrganization }: RegistryGateOptions,
  caller: Caller | undefined,
  asked: { target: RepoTarget; action: RegistryAction },
): boolean {
  const { tables } = services.cache
  if (asked.action === 'pull' && isPublic(tables, publicOrganization, asked.target)) return true
  return caller !== undefined && holds(tables, caller.permissions(), asked)
}

/**
 * Returns whether the path still means the same as when the token was issued. The token does not cover another repo or group that has the name now. A repo that
 * did not exist then may have been created since, in groups that were created with it.
 */
function agrees({ place }: TokenAccess, target: RepoTarget): boolean {
  return 'uid' in place ? target.kind === 'repo' && target.uid === place.uid : isWithin(target.parent, place.parent)
}

/** Returns whether the caller may know that the object exists. */
function mayLookAt(caller: Caller, uid: Uid): boolean {
  return decideAccess(caller.permissions(), uid, emptySet).kind !== 'hidden'
}

/**
 * Returns the error for a path without a target. Only callers with rights at the parent learn that the path names nothing. Others get the
 * same error as for a repo of another tenant.
 */
function unknown({ services, challenger }: RegistryGateOptions, { path, scopes, caller }: RequestedAccess): RegistryError {
  if (caller === undefined) return challenger.unauthorized('sign in first', scopes)
  const nearest = nearestGroup(services.cache.tables, path)
  return nearest !== undefined && mayLookAt(caller, nearest) ? new RegistryError('NAME_UNKNOWN', 'there is no such repository') : denied('permission denied')
}

function refused({ services, challenger }: RegistryGateOptions, { scopes, caller }: RequestedAccess, target: RepoTarget): RegistryError {
  if (caller === undefined) return challenger.unauthorized('sign in first', scopes)
  const place = placeOf(target)
  return denied(isSuspended(services.cache.tables, place) && mayLookAt(caller, place) ? 'the organisation is suspended: ask an operator' : 'permission denied')
}

function denied(message: string): RegistryError {
  return new RegistryError('DENIED', message)
}

function pullable(options: RegistryGateOptions, { credential, caller }: RequestedAccess, path: string): ReturnType<AdmittedRequest['pullable']> {
  const target = findRepository(options.services.cache.tables, path)
  if (target?.kind !== 'repo' || !isAllowed(options, caller, { target, action: 'pull' })) return undefined
  if (credential.kind !== 'registry') return target.uid
  const access = credential.claims.access.get(path)
  return access !== undefined && access.image === undefined && access.actions.includes('pull') && agrees(access, target) ? target.uid : undefined
}
