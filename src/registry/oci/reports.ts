import { create } from '@bufbuild/protobuf'
import { parseDigest, type Digest } from '../../base/digest.ts'
import type { Uid } from '../../base/uid.ts'
import { PullPolicyResultSchema, type PullPolicyResult } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { AdmittedRequest } from '../gate.ts'
import type { PolicyResult } from '../policies/verdict.ts'
import type { Traffic } from '../records/traffic.ts'
import type { RegistryError } from '../registry-error.ts'
import type { RegistryExchange } from './exchange.ts'
import type { OciHost } from './oci-host.ts'
import type { OciPath, OciPathKind } from './oci-path.ts'
import type { ReportedRequest, RequestDetails, RequestKey } from './traffic-events.ts'

/** Maximum length of the user agent in an event, in characters. */
const maxUserAgentLength = 512
/** Maximum length of an error message in an event, in characters. */
const maxMessageLength = 512
const subdomainPattern = /^[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,7}$/

/** Returns the part of the requested host name before the name of this host. Undefined if there is none, or if it is not a valid host name. */
function subdomainOf({ registryHost }: OciHost, exchange: RegistryExchange): string | undefined {
  const named = exchange.header('host') ?? ''
  if (named.length <= registryHost.length || !named.endsWith(registryHost)) return undefined
  const before = named.slice(0, -registryHost.length)
  return before.endsWith('.') && subdomainPattern.test(before.slice(0, -1)) ? before.slice(0, -1) : undefined
}

/** Returns what the headers of the request say for its event. */
function detailsOf(host: OciHost, exchange: RegistryExchange): Pick<RequestDetails, 'userAgent' | 'subdomain'> {
  const subdomain = subdomainOf(host, exchange)
  return { userAgent: exchange.header('user-agent')?.slice(0, maxUserAgentLength) ?? '', ...(subdomain !== undefined && { subdomain }) }
}

/** Returns the data of the request for its event. */
export function trafficOf(host: OciHost, exchange: RegistryExchange): Traffic {
  return { host: host.registryHost, remoteAddress: exchange.remoteAddress, ...detailsOf(host, exchange) }
}

/** Content that was pulled. */
interface Pulled {
  readonly entry: AdmittedRequest
  readonly repo: Uid
  readonly digest: Digest
  readonly tag?: string | undefined
  readonly type: 'manifest' | 'blob'
  readonly method: 'GET' | 'HEAD'
}

/** Records a pull for its event. */
export function reportPull(host: OciHost, exchange: RegistryExchange, { entry, repo, digest, tag, type, method }: Pulled): void {
  const { repository, caller } = entry
  const { remoteAddress } = exchange
  const request: RequestKey = { kind: 'pull', caller, remoteAddress, repo, digest, tag, method, timeMs: host.services.clock.now() }
  reportWithPolicies(host, exchange, { request, details: () => ({ ...detailsOf(host, exchange), repository, type }) })
}

/** Messages of the results of verdicts. Most pulls share a verdict. */
const resultMessages = new WeakMap<readonly PolicyResult[], PullPolicyResult[]>()

function messagesOf(results: readonly PolicyResult[]): PullPolicyResult[] {
  const known = resultMessages.get(results)
  if (known !== undefined) return known
  const made = results.map(({ policy, name, mode, result, reasons }) =>
    create(PullPolicyResultSchema, { policyId: policy, policyName: name, mode, result, reasons: [...reasons] }),
  )
  resultMessages.set(results, made)
  return made
}

/** Records a request for its event, with what pull policies say about it. A violation has an event of its own. */
function reportWithPolicies(
  host: OciHost,
  exchange: RegistryExchange,
  { request, details }: { readonly request: RequestKey; readonly details: () => RequestDetails },
): void {
  const { judged } = exchange
  if (judged === undefined) {
    host.report(request, details)
    return
  }
  const policyResults = messagesOf(judged.results)
  const reported = { ...request, digest: judged.digest, policyResults }
  host.report(reported, details)
  const isRefused = request.error?.code === 'DENIED'
  if (isRefused || policyResults.some(({ result }) => result === 'VIOLATED')) host.report({ ...reported, kind: 'policy.violated' }, details)
}

type FailedRequest = Required<Pick<ReportedRequest, 'kind' | 'type'>>

/** Kinds of request whose failures get an event. A HEAD of a blob gets none, since each push uses it to find blobs that it need not send. */
const failing: Partial<Record<OciPathKind, Readonly<Record<string, FailedRequest>>>> = {
  manifest: { GET: { kind: 'pull', type: 'manifest' }, HEAD: { kind: 'pull', type: 'manifest' }, PUT: { kind: 'push', type: 'manifest' } },
  blob: { GET: { kind: 'pull', type: 'blob' } },
  uploads: { POST: { kind: 'push', type: 'blob' } },
  upload: { PATCH: { kind: 'push', type: 'blob' }, PUT: { kind: 'push', type: 'blob' } },
}

/**
 * Records a pull or push that failed after the caller was admitted to the repo. Refused callers are in the audit trail instead. A
 * disconnect of the client is not a failure (docs/spec/events.md#registry-traffic).
 */
export function reportFailure(host: OciHost, exchange: RegistryExchange, { path, error }: { readonly path: OciPath; readonly error: RegistryError }): void {
  const { method = '' } = exchange.request
  const row = failing[path.kind]?.[method]
  const { admitted } = exchange
  if (row === undefined || admitted?.target.kind !== 'repo' || exchange.signal.aborted) return
  const { repository, caller, target } = admitted
  const { kind, type } = row
  const request: RequestKey = {
    kind,
    caller,
    remoteAddress: exchange.remoteAddress,
    ...namedIn(exchange, path),
    repo: target.uid,
    ...(kind === 'pull' && { method }),
    timeMs: host.services.clock.now(),
    error: { status: error.status, code: error.code, message: error.message.slice(0, maxMessageLength) },
  }
  reportWithPolicies(host, exchange, { request, details: () => ({ ...detailsOf(host, exchange), repository, type }) })
}

/** Returns the tag or digest that the request names, if it is a valid one. */
function namedIn(exchange: RegistryExchange, path: OciPath): Pick<Traffic, 'tag' | 'digest'> {
  if (path.kind === 'blob') return { digest: path.digest }
  if (path.kind !== 'manifest') return { digest: parseDigest(exchange.query.get('digest') ?? '') ?? '' }
  const { reference } = path
  if (reference.kind === 'digest') return { digest: reference.digest }
  return reference.kind === 'tag' ? { tag: reference.tag } : {}
}
