import { parseDigest, type Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import type { AdmittedRequest } from '../gate.ts'
import type { Traffic } from '../records/traffic.ts'
import type { RegistryError } from '../registry-error.ts'
import type { RegistryExchange } from './exchange.ts'
import type { OciHost } from './oci-host.ts'
import type { OciPath, OciPathKind } from './oci-path.ts'

/** The most of a client's name for itself that an event has, in characters. */
const maxUserAgentLength = 512
/** The most of an error's message that an event has, in characters. */
const maxMessageLength = 512
const subdomainPattern = /^[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,7}$/

/** Returns what the client wrote before the name of this host; undefined if nothing, or no host name. */
function subdomainOf({ registryHost }: OciHost, exchange: RegistryExchange): string | undefined {
  const named = exchange.header('host') ?? ''
  if (named.length <= registryHost.length || !named.endsWith(registryHost)) return undefined
  const before = named.slice(0, -registryHost.length)
  return before.endsWith('.') && subdomainPattern.test(before.slice(0, -1)) ? before.slice(0, -1) : undefined
}

/** Returns the data of the request that an event contains. */
export function trafficOf(host: OciHost, exchange: RegistryExchange): Traffic {
  const subdomain = subdomainOf(host, exchange)
  return {
    host: host.registryHost,
    remoteAddress: exchange.remoteAddress,
    userAgent: exchange.header('user-agent')?.slice(0, maxUserAgentLength) ?? '',
    ...(subdomain !== undefined && { subdomain }),
  }
}

/** Something that was pulled. */
interface Pulled {
  readonly entry: AdmittedRequest
  readonly repo: Uid
  readonly digest: Digest
  readonly tag?: string | undefined
  readonly type: 'manifest' | 'blob'
  readonly method: 'GET' | 'HEAD'
}

/** Reports that something was pulled. */
export function reportPull(host: OciHost, exchange: RegistryExchange, { entry, repo, digest, tag, type, method }: Pulled): void {
  const { repository, caller } = entry
  const timeMs = host.services.clock.now()
  host.report({ kind: 'pull', ...trafficOf(host, exchange), repo, repository, digest, ...(tag !== undefined && { tag }), type, method, caller, timeMs })
}

type FailedRequest = Pick<Parameters<OciHost['report']>[0], 'kind' | 'type'>

/** The requests whose failures have events. A HEAD of a blob has none: each push asks so for what it need not send. */
const failing: Partial<Record<OciPathKind, Readonly<Record<string, FailedRequest>>>> = {
  manifest: { GET: { kind: 'pull', type: 'manifest' }, HEAD: { kind: 'pull', type: 'manifest' }, PUT: { kind: 'push', type: 'manifest' } },
  blob: { GET: { kind: 'pull', type: 'blob' } },
  uploads: { POST: { kind: 'push', type: 'blob' } },
  upload: { PATCH: { kind: 'push', type: 'blob' }, PUT: { kind: 'push', type: 'blob' } },
}

/**
 * Reports a pull or push that failed after the caller was let in to the repo. Refusals are in the audit trail. A client that went away did not fail
 * (docs/spec/events.md#registry-traffic).
 */
export function reportFailure(host: OciHost, exchange: RegistryExchange, { path, error }: { readonly path: OciPath; readonly error: RegistryError }): void {
  const { method = '' } = exchange.request
  const row = failing[path.kind]?.[method]
  const { admitted } = exchange
  if (row === undefined || admitted?.target.kind !== 'repo' || exchange.signal.aborted) return
  const { repository, caller, target } = admitted
  host.report({
    ...row,
    ...trafficOf(host, exchange),
    ...namedIn(exchange, path),
    repo: target.uid,
    repository,
    ...(row.kind === 'pull' && { method }),
    caller,
    timeMs: host.services.clock.now(),
    error: { status: error.status, code: error.code, message: error.message.slice(0, maxMessageLength) },
  })
}

/** Returns what the request names, as far as it can be a tag or a digest. */
function namedIn(exchange: RegistryExchange, path: OciPath): Pick<Traffic, 'tag' | 'digest'> {
  if (path.kind === 'blob') return { digest: path.digest }
  if (path.kind !== 'manifest') return { digest: parseDigest(exchange.query.get('digest') ?? '') ?? '' }
  const { reference } = path
  if (reference.kind === 'digest') return { digest: reference.digest }
  return reference.kind === 'tag' ? { tag: reference.tag } : {}
}
