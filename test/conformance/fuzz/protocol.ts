import type { JsonObject } from '@bufbuild/protobuf'

/** What the fuzzer asks of the process under test, by message. */
export type Question =
  | { readonly ask: 'corpus' }
  | { readonly ask: 'state'; readonly settle: boolean }
  | { readonly ask: 'memory' }
  | { readonly ask: 'faults' }
  | { readonly ask: 'work' }
  | { readonly ask: 'fill'; readonly filling: Filling }
  | { readonly ask: 'token'; readonly identity: string }
  | { readonly ask: 'swept'; readonly boundMs: number }
  | { readonly ask: 'stop' }

/**
 * Records to write without a call, below `parent`. They are bindings of identities that do not exist, groups that each bind a role to `identity`, or
 * identities.
 */
export type Filling =
  | { readonly records: 'bindings'; readonly parent: string; readonly count: number }
  | { readonly records: 'teams'; readonly parent: string; readonly identity: string; readonly count: number }
  | { readonly records: 'identities'; readonly parent: string; readonly issuers: readonly string[] }

/** A request that the server takes, from the walk. */
export interface Example {
  /** `GroupsService/CreateGroup` */
  readonly method: string
  readonly request: JsonObject
  readonly token: string
}

/** What requests are made of: a world of its own in the server, with real records. */
export interface Corpus {
  readonly examples: readonly Example[]
  /** Access tokens of callers that differ in what they may do. */
  readonly tokens: readonly string[]
  /** An access token of a caller without any right. */
  readonly outsider: string
  /** Uids of real records, of this tenant and of another one. */
  readonly uids: readonly string[]
  readonly registry: RegistryCorpus
  readonly login: LoginCorpus
  readonly scim: ScimCorpus
}

/** What requests to the registry host are made of. */
export interface RegistryCorpus {
  /** `<organisation>/<repo>` */
  readonly path: string
  readonly host: string
  /** Headers that each name a caller: an access token for this host, a registry token. */
  readonly authorizations: readonly string[]
}

/** What sign-ins by browsers and devices are made of. Whatever works once is used up by the first request that is accepted. */
export interface LoginCorpus {
  readonly baseUrl: string
  readonly group: string
  /** The uid of an identity provider that is there. */
  readonly provider: string
  /** Codes of headless clients. */
  readonly headlessCodes: readonly string[]
  /** Codes that devices show, and those that devices keep. Each is for one state: no sign-in yet, refused, or signed in. */
  readonly userCodes: readonly string[]
  readonly deviceCodes: readonly string[]
  readonly refreshTokens: readonly string[]
  /** What our confirmation page would send. */
  readonly confirmations: readonly BoundToBrowser[]
  /** With what an identity provider sends the browser back. */
  readonly callbacks: readonly BoundToBrowser[]
}

/** A step of a sign-in, and the cookie of the browser that it is for. */
export interface BoundToBrowser {
  readonly fields: readonly Field[]
  readonly cookie: string
}

/** A name and a value of a query or a form. */
export type Field = readonly [name: string, value: string]

/** What requests to a provider's SCIM server are made of. */
export interface ScimCorpus {
  readonly provider: string
  readonly token: string
  /** Of users that are there. */
  readonly ids: readonly string[]
}

/** A key of the store that was written or removed. */
export interface StateChange {
  readonly key: string
  readonly how: 'added' | 'changed' | 'removed'
}

/** What the server logged that it never should. */
export interface LoggedError {
  readonly requestId: string
  readonly text: string
}

/** Where the process under test listens, all on the loopback address. */
export interface Ports {
  readonly api: number
  readonly ops: number
  readonly registry: number
}

/** What the thread of the server did. */
export interface Work {
  /** Its processor time so far, in milliseconds. */
  readonly totalMs: number
  /** The most of it in one turn of the event loop, and a few milliseconds more, since this was asked last. */
  readonly longestTurnMs: number
}
