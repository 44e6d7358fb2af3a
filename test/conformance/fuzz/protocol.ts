import type { JsonObject } from '@bufbuild/protobuf'

/** A message from the fuzzer to the process under test. */
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
 * Records to write without an API call, below `parent`. They are bindings of missing identities, groups that each bind a role to `identity`, or identities.
 */
export type Filling =
  | { readonly records: 'bindings'; readonly parent: string; readonly count: number }
  | { readonly records: 'teams'; readonly parent: string; readonly identity: string; readonly count: number }
  | { readonly records: 'identities'; readonly parent: string; readonly issuers: readonly string[] }

/** A request that the server accepts, from the walk tests. */
export interface Example {
  /** `GroupsService/CreateGroup` */
  readonly method: string
  readonly request: JsonObject
  readonly token: string
}

/** A method whose handler blocks the thread if the request is larger than 1 KiB, and for how much processor time in milliseconds. */
export interface DearMethod {
  readonly method: string
  readonly ms: number
}

/** Data for requests: a group of existing records on the server. */
export interface Corpus {
  readonly examples: readonly Example[]
  /** Access tokens of callers with different rights. */
  readonly tokens: readonly string[]
  /** An access token of a caller without rights. */
  readonly outsider: string
  /** Uids of existing records, of this tenant and of another one. */
  readonly uids: readonly string[]
  readonly registry: RegistryCorpus
  readonly login: LoginCorpus
  readonly scim: ScimCorpus
}

/** Data for requests to the registry host. */
export interface RegistryCorpus {
  /** `<organisation>/<repo>` */
  readonly path: string
  readonly host: string
  /** Authorization headers of different callers: an access token for this host, a registry token. */
  readonly authorizations: readonly string[]
}

/** Data for sign-ins by browsers and devices. The first accepted request uses up each single-use value. */
export interface LoginCorpus {
  readonly baseUrl: string
  readonly group: string
  /** The uid of an existing identity provider. */
  readonly provider: string
  /** Codes of headless clients. */
  readonly headlessCodes: readonly string[]
  /** User codes and device codes, each in one state: no sign-in yet, refused, or signed in. */
  readonly userCodes: readonly string[]
  readonly deviceCodes: readonly string[]
  readonly refreshTokens: readonly string[]
  /** Fields that the confirmation page would send. */
  readonly confirmations: readonly BoundToBrowser[]
  /** Parameters with which an identity provider redirects the browser back. */
  readonly callbacks: readonly BoundToBrowser[]
}

/** A step of a sign-in, and the cookie that binds it to a browser. */
export interface BoundToBrowser {
  readonly fields: readonly Field[]
  readonly cookie: string
}

/** A name and a value of a query or a form. */
export type Field = readonly [name: string, value: string]

/** Data for requests to a provider's SCIM server. */
export interface ScimCorpus {
  readonly provider: string
  readonly token: string
  /** Ids of existing users. */
  readonly ids: readonly string[]
}

/** A key of the store that was written or removed. */
export interface StateChange {
  readonly key: string
  readonly how: 'added' | 'changed' | 'removed'
}

/** A log line that should never appear. */
export interface LoggedError {
  readonly requestId: string
  readonly text: string
}

/** The ports of the process under test, all on the loopback address. */
export interface Ports {
  readonly api: number
  readonly ops: number
  readonly registry: number
}

/** Processor time of the server's main thread. */
export interface Work {
  /** Processor time since its start, in milliseconds. */
  readonly totalMs: number
  /** Maximum in one turn of the event loop since the last call, plus a few milliseconds. */
  readonly longestTurnMs: number
}
