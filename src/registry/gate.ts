import type { CredentialInput } from '../auth/access-tokens/authenticator.ts'
import type { Digest } from '../base/digest.ts'
import type { Uid } from '../base/uid.ts'
import type { RepoTarget } from './records/repo-paths.ts'
import type { Caller } from '../engine/services.ts'

export type { RepoTarget }

/** An action on a repository, with its name in the distribution token protocol. */
export type RegistryAction = 'pull' | 'push' | 'delete'

/** The capabilities that each action needs at the repo, or at its group if the push creates the repo. */
export const capabilitiesOfAction = {
  pull: ['repo.list', 'manifest.list', 'repo.blobs.get'],
  push: ['manifest.create', 'tag.create'],
  delete: ['manifest.delete', 'tag.delete'],
} as const satisfies Readonly<Record<RegistryAction, readonly string[]>>

/** The credential of a request to the registry host, and where the request came from. */
export interface Presented extends CredentialInput {
  /** The client's address. Rejected credentials are counted for each address if requests are rate-limited. */
  readonly remoteAddress?: string | undefined
  /** The id of the request, as the audit trail records it. */
  readonly requestId?: string | undefined
  readonly userAgent?: string | undefined
  /** Aborts the request. Read only if the request has to wait for something. */
  readonly signal: AbortSignal
  /** Calls `listener` once when the response has ended, with the number of bytes sent. If absent, the request counts as ended at once. */
  onceAnswered?(listener: (sentBytes: number) => void): void
}

/** The repository that a request names, and the actions that it needs there. */
export interface EntryRequest {
  /** The path `<organization>/<image...>`, decoded. */
  readonly repository: string
  /** The caller needs all of these actions. A request that needs only `pull` is rate-limited as a read. */
  readonly actions: readonly RegistryAction[]
  /**
   * The repository from which a mount copies a blob. A challenge also asks for `pull` there. To check the caller's rights there, call
   * `pullable`.
   */
  readonly mountFrom?: string | undefined
  /** The digest of the manifest or blob that the request asks for, if it names one. A token for one image allows no other request. */
  readonly content?: Digest | undefined
}

/** A request that passed authentication and authorization. */
export interface AdmittedRequest {
  readonly repository: string
  readonly target: RepoTarget
  /** The caller; undefined for an anonymous request, which only reads public repos. */
  readonly caller: Caller | undefined
  /**
   * Returns true if the caller's current rights and the token both allow the action on the repository. If the repository does not exist,
   * `push` includes `repo.create`.
   */
  may(action: RegistryAction): boolean
  /** Like `may`, but by the caller's current rights alone: registry tokens have only the actions that the client asked for. */
  holds(action: RegistryAction): boolean
  /**
   * Like `may('pull')`, for another repository that the request names (`from` of a mount). Returns the uid of its repo if the caller may
   * pull there. Returns undefined if the caller may not, or if the repository does not exist.
   */
  pullable(repository: string): Uid | undefined
}

/**
 * Authorizes requests at the registry host. Its snapshot holds everything that was acknowledged before the request arrived. Throws RegistryError. UNAUTHORIZED
 * (401, with a challenge): the credential is missing or invalid. DENIED (403): the credential is for another audience or image, or lacks a right. NAME_UNKNOWN
 * (404): there is no such repository. NAME_INVALID (400): no repository can have that name. UNAVAILABLE (503): the store cannot be reached.
 */
export interface Gate {
  enter(presented: Presented, request: EntryRequest): Promise<AdmittedRequest>
  /** Checks only that the credential is valid. For requests without a repository (`GET /v2/`). */
  signedIn(presented: Presented): Promise<void>
  /** Returns the caller of `_catalog`. A registry token must have the scope `registry:catalog:*`. */
  catalog(presented: Presented): Promise<Caller>
}
