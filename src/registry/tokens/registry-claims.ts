import { readCallerClaims, readIdentity, writeCallerFacts, type CallerClaims } from '../../auth/tokens/caller-claims.ts'
import type { DecodedToken } from '../../auth/tokens/decoded-token.ts'
import type { TokenUse } from '../../auth/tokens/platform-token.ts'
import { TokenError } from '../../auth/tokens/token-error.ts'
import { isUid, type Uid } from '../../base/uid.ts'
import type { RegistryAction } from '../gate.ts'

/** What a registry token allows with one repository: it names the path AND what the path meant when it was issued. */
export interface TokenAccess {
  readonly path: string
  readonly actions: readonly RegistryAction[]
  /** The repo, or the group in which one of the path's last name may be made. */
  readonly place: { readonly uid: Uid } | { readonly parent: Uid }
}

/** Whom a registry token was issued to. */
export interface TokenBearer extends CallerClaims {
  readonly identityUid: Uid
}

/** What a verified registry token says. */
export interface RegistryClaims {
  /** Undefined for an anonymous token. */
  readonly bearer: TokenBearer | undefined
  /** By path. */
  readonly access: ReadonlyMap<string, TokenAccess>
  /** Whether it lists repositories. */
  readonly catalog: boolean
}

/** What a registry token allows. */
export interface TokenRights {
  readonly access: readonly TokenAccess[]
  readonly catalog?: boolean
}

/** The `use` claim: no other listener accepts such a token. */
export const registryUse: TokenUse = 'registry'
/** The `sub` claim of an anonymous token; it is not a uid. */
const anonymous = 'anonymous'

/** The claims that say who may do what. */
export function writeClaims(bearer: Omit<TokenBearer, 'issuedAtMs'> | undefined, { access, catalog = false }: TokenRights): Readonly<Record<string, unknown>> {
  return {
    sub: bearer?.identityUid ?? anonymous,
    ...(bearer === undefined ? {} : writeCallerFacts(bearer)),
    use: registryUse,
    access: access.map(({ path, actions, place }) => ({ type: 'repository', name: path, actions, ...place })),
    // Apart from `access`: the version before reads that strictly, and passes over this.
    ...(catalog ? { catalog } : {}),
  }
}

/** What the claims of such a token say. Throws TokenError `unreadable`. */
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

/** We signed it: what has another form is of another version, and allows nothing. */
function readAccess(entry: unknown): TokenAccess {
  const { name, actions, uid, parent } = (typeof entry === 'object' && entry !== null ? entry : {}) as Record<string, unknown> // a cast of unknown JSON: each member is checked below
  if (typeof name !== 'string' || !Array.isArray(actions)) throw new TokenError('unreadable')
  const place = typeof uid === 'string' && isUid(uid) ? { uid } : typeof parent === 'string' && isUid(parent) ? { parent } : undefined
  if (place === undefined) throw new TokenError('unreadable')
  return { path: name, actions: actions.filter(isRegistryAction), place }
}

/** True for the actions that are known here. */
export function isRegistryAction(action: unknown): action is RegistryAction {
  return action === 'pull' || action === 'push' || action === 'delete'
}
