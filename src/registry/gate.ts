import type { CredentialInput } from '../auth/tokens/authenticator.ts'
import type { Uid } from '../base/uid.ts'
import type { RepoTarget } from './records/repo-paths.ts'
import type { Caller } from '../engine/services.ts'

export type { RepoTarget }

/** What a client may want to do with a repository, as the distribution token protocol names it. */
export type RegistryAction = 'pull' | 'push' | 'delete'

/** The capabilities that each action needs at the repo (or, for one still to be made, at its group). */
export const capabilitiesOfAction = {
  pull: ['repo.list', 'manifest.list', 'repo.blobs.get'],
  push: ['manifest.create', 'tag.create'],
  delete: ['manifest.delete', 'tag.delete'],
} as const satisfies Readonly<Record<RegistryAction, readonly string[]>>

/** What a request to the registry host says of who sent it. */
export interface Presented extends CredentialInput {
  /** The client's address: refused credentials are counted by it, where requests are limited. */
  readonly remoteAddress?: string | undefined
  /** For the audit trail. */
  readonly requestId?: string | undefined
  readonly userAgent?: string | undefined
  /** Asked for only where something has to be waited for. */
  readonly signal: AbortSignal
  /** Calls `listener` once when the answer is over, with the bytes that were sent for it. Absent: the request is over at once. */
  onceAnswered?(listener: (sentBytes: number) => void): void
}

/** What is to be done. */
export interface EntryRequest {
  /** `<organization>/<image...>`, as it stands in the path, decoded. */
  readonly repository: string
  /** All are needed. A request that needs only `pull` is a read: it has the limits of reads. */
  readonly actions: readonly RegistryAction[]
  /** The repository that a mount takes a blob from: a challenge names `pull` there too. Rights there are asked for by `pullable`. */
  readonly mountFrom?: string | undefined
}

/** A request that was let in. */
export interface AdmittedRequest {
  readonly repository: string
  readonly target: RepoTarget
  /** Undefined for an anonymous request (public repos). */
  readonly caller: Caller | undefined
  /** Whether the caller may do this to the target, by the rights as they are now and what the token allows. For a target that is absent `push` includes `repo.create`. */
  may(action: RegistryAction): boolean
  /**
   * Like `may`, for another repo that a request names by path (`from` of a mount). Returns its uid if the caller may pull there, else undefined, both for
   * missing and for foreign repos.
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
  /** For what belongs to no repository (`GET /v2/`): only that the credential is good. */
  signedIn(presented: Presented): Promise<void>
  /** For `_catalog`: who asks. A registry token must have been asked for with `registry:catalog:*`. */
  catalog(presented: Presented): Promise<Caller>
}
