import { callerOfToken, apiOwnership, type Caller, type MutationContext, type Services } from '../../engine/services.ts'
import type { Actor } from '../../auth/access-tokens/principal.ts'
import { DomainError } from '../../base/errors.ts'
import type { Uid } from '../../base/uid.ts'
import type { ManifestName } from '../records/manifest-keys.ts'
import { findRepository, pathOf } from '../records/repo-paths.ts'
import type { RegistryAction } from '../gate.ts'
import { createRegistryMinter, type RegistryMinterOptions } from './registry-minter.ts'
import { holds, placesWith } from './rights.ts'

/** What a delegate needs. `minter` signs its tokens. */
export interface RepoDelegateOptions {
  readonly services: Services
  readonly minter: RegistryMinterOptions
  /** The identity as which it acts. */
  readonly identity: Uid
  /** How the audit trail and events name it. */
  readonly subject: string
}

/** Acts at the registry host as an identity that the configuration names. It has the current role bindings of that identity, and no others. */
export class RepoDelegate {
  readonly #options: RepoDelegateOptions
  readonly #mint: ReturnType<typeof createRegistryMinter>

  constructor(options: RepoDelegateOptions) {
    this.#options = options
    this.#mint = createRegistryMinter(options.minter)
  }

  /** Returns the identity as a caller, as of the snapshot. Throws code 16 if it does not exist. */
  caller(): Caller {
    const { services, identity: identityUid } = this.#options
    return callerOfToken(services, { identityUid, operator: false, act: this.#actor, restrictions: {}, issuedAtMs: this.#issuedAtMs })
  }

  /** Returns the path of a repo where the identity holds all these actions now; undefined for any other repo. Throws code 16 if the identity does not exist. */
  pathWith(repo: Uid, actions: readonly RegistryAction[]): string | undefined {
    const { tables } = this.#options.services.cache
    const path = pathOf(tables, repo)
    const target = path === undefined ? undefined : findRepository(tables, path)
    // A path that leads to another repo gives no right here.
    if (target?.kind !== 'repo' || target.uid !== repo) return undefined
    const permissions = this.caller().permissions()
    return actions.every((action) => holds(tables, permissions, { target, action })) ? path : undefined
  }

  /** Returns the topmost groups where the identity holds all these actions now; the empty text for the whole platform. Throws code 16 if it does not exist. */
  placesWith(actions: readonly RegistryAction[]): readonly string[] {
    return placesWith(this.#options.services.cache.tables, this.caller().permissions(), actions)
  }

  /** Returns a registry token that allows to pull one image of a repo, and nothing else. `path` is that of the repo. */
  pullToken({ repo, digest: image }: ManifestName, path: string): string {
    const { identity: identityUid, services } = this.#options
    const notBeforeMs = services.cache.tables.get('Identity', identityUid)?.createMs ?? 0
    const bearer = { identityUid, act: this.#actor, restrictions: {}, notBeforeMs }
    return this.#mint({ bearer, access: [{ path, actions: ['pull'], place: { uid: repo }, image }] }).token
  }

  /** Returns the context of a push to the repo. Each attempt checks the rights again. */
  pushContext(repo: Uid, signal: AbortSignal): MutationContext {
    const authorize = (): void => {
      if (this.pathWith(repo, ['pull', 'push']) === undefined) throw new DomainError(7, 'permission denied: pull and push are needed')
    }
    return { caller: this.caller(), signal, validateOnly: false, ownership: apiOwnership, authorize }
  }

  get #actor(): Actor {
    const { minter, subject } = this.#options
    return { issuer: minter.issuer, subject, audience: minter.service }
  }

  get #issuedAtMs(): number {
    const { services, identity } = this.#options
    // The clock of this process may be behind that of the one that created the identity.
    return Math.max(services.clock.now(), services.cache.tables.get('Identity', identity)?.createMs ?? 0)
  }
}
