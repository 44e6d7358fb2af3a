import { readCallerClaims, readIdentity, writeCallerFacts, type CallerClaims } from '../../auth/access-tokens/caller-claims.ts'
import type { DecodedToken } from '../../auth/access-tokens/decoded-token.ts'
import type { TokenUse } from '../../auth/access-tokens/platform-token.ts'
import { TokenError } from '../../auth/access-tokens/token-error.ts'
import { isDigest, type Digest } from '../../base/digest.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import type { RegistryAction } from '../gate.ts'

/** Access to one repository: the actions, and the object that the path named when the token was issued. */
export interface TokenAccess {
  readonly path: string
  readonly actions: readonly RegistryAction[]
  /** The repo, or the group in which a push may create a repo with the last name of the path. */
  readonly place: { readonly uid: Uid } | { readonly parent: Uid }
  /** The only image that may be pulled: its manifest, and the blobs that the manifest names. Undefined for the whole repo. */
  readonly image?: Digest | undefined
}

/** The caller for whom a registry token was issued. */
export interface TokenBearer extends CallerClaims {
  readonly identityUid: Uid
}

/** The claims of a verified registry token. */
export interface RegistryClaims {
  /** Undefined for an anonymous token. */
  readonly bearer: TokenBearer | undefined
  /** Access by path. */
  readonly access: ReadonlyMap<string, TokenAccess>
  /** True if the token allows `_catalog`. */
  readonly catalog: boolean
}

/** The access that a registry token grants. */
export interface TokenRights {
  readonly access: readonly TokenAccess[]
  readonly catalog?: boolean
}

/** The `use` claim of registry tokens. Only this listener accepts it. */
export const registryUse: TokenUse = 'registry'
/** The `sub` claim of an anonymous token; it is not a uid. */
const anonymous = 'anonymous'

/** Returns the claims for a registry token. */
export function writeClaims(bearer: Omit<TokenBearer, 'issuedAtMs'> | undefined, { access, catalog = false }: TokenRights): Readonly<Record<string, unknown>> {
  return {
    sub: bearer?.identityUid ?? anonymous,
    ...(bearer === undefined ? {} : writeCallerFacts(bearer)),
    use: registryUse,
    access: access.map(({ path, actions, place, image }) => ({ type: 'repository', name: path, actions, ...place, ...(image === undefined ? {} : { image }) })),
    // Not part of `access`, which older versions parse strictly. They ignore unknown claims.
    ...(catalog ? { catalog } : {}),
  }
}

/** Parses the claims of a registry token. Throws TokenError `unreadable`. */
export function readClaims(token: DecodedToken): RegistryClaims {
  const { access } = token.claims
  if (!Array.isArray(access)) throw new TokenError('unreadable')
  const entries = access.map(readAccess)
  return {
    bearer: token.subject === anonymous ? undefined : { identityUid: readIdentity(token.subject), ...readCallerClaims(token.claims) },
    access: new Map(entries.map((entry) => [entry.path, entry])),
    catalog: token.claims['catalog'] === true,
  }
}

/** Parses one entry of `access`. The token is signed by this server, so an unknown form comes from another version. It grants nothing. */
function readAccess(entry: unknown): TokenAccess {
  const { name, actions, uid, parent, image } = (typeof entry === 'object' && entry !== null ? entry : {}) as Record<string, unknown> // a cast of unknown JSON: each member is checked below
  if (typeof name !== 'string' || !Array.isArray(actions)) throw new TokenError('unreadable')
  const place = typeof uid === 'string' && isUid(uid) ? { uid } : typeof parent === 'string' && isUid(parent) ? { parent } : undefined
  if (place === undefined) throw new TokenError('unreadable')
  if (image !== undefined && !(typeof image === 'string' && isDigest(image))) throw new TokenError('unreadable')
  return { path: name, actions: actions.filter(isRegistryAction), place, image }
}

/** Returns true for a known action. */
export function isRegistryAction(action: unknown): action is RegistryAction {
  return action === 'pull' || action === 'push' || action === 'delete'
}
