import { DomainError } from '../../base/errors.ts'

/** A signed AWS `GetCallerIdentity` request that has the required form (docs/spec/identities.md#aws-request-checks). Only AWS can verify its signature. */
export interface AwsRequest {
  /** The host for which the request is signed, one of the allowed ones. */
  readonly host: string
  /** The headers to send to AWS, by lower-case name: the signed ones, `authorization` and `x-amz-*`. */
  readonly headers: Readonly<Record<string, string>>
  readonly audience: string
  readonly identity: string
}

/** The values that a request must match. */
export interface AwsExpectation {
  /** Hosts for which the request may be signed. */
  readonly hosts: readonly string[]
  /** Audiences that stand for this platform. */
  readonly audiences: readonly string[]
  /** Uid of the identity that the caller wants to assume. */
  readonly identity: string
  /**
   * Prefixes of the two binding headers, in lower case: `taproot` stands for `Taproot-Audience` and `Taproot-Identity`. The request must have exactly one
   * pair.
   */
  readonly prefixes: readonly string[]
  readonly nowMs: number
}

/** The request target of `GetCallerIdentity`. The request has no body. */
export const awsTarget = '/?Action=GetCallerIdentity&Version=2011-06-15'

const maxAgeMs = 15 * 60_000
const maxAheadMs = 5 * 60_000
const maxHeaders = 50

/** Headers about one connection, or that change how the request is parsed. They are never forwarded. */
const connectionHeaders: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/**
 * Returns code 7 in the common form of errors for bad tokens (docs/spec/identities.md#aws-request-checks). `sentence` must not contain any part of the
 * request, or depend on stored records.
 */
export function awsRefusal(sentence: string): DomainError {
  return new DomainError(7, `verifying token: ${sentence}`)
}

/**
 * Returns the text of the HTTP request in a bearer token, which is base64 in either alphabet, with or without padding
 * (docs/spec/identities.md#aws-identities). Returns undefined if the token is not such a request, for example a JWT.
 */
export function awsRequestText(bearer: string): string | undefined {
  if (!/^[A-Za-z0-9+/_-]+={0,2}$/.test(bearer)) return undefined
  const text = Buffer.from(bearer, 'base64').toString('latin1')
  return /^[A-Za-z]{1,16} [^\r\n]*HTTP\/\d/.test(text) ? text : undefined
}

/**
 * Parses the request and makes all checks that do not need AWS, in the specified order (docs/spec/identities.md#aws-request-checks). Throws code 7, which
 * names the failed check.
 */
export function parseAwsRequest(text: string, expected: AwsExpectation): AwsRequest {
  const { method, target, headers } = parseHttp(text)
  if (method !== 'POST') throw awsRefusal('the method of the AWS request must be POST')
  if (target !== awsTarget) throw awsRefusal(`the AWS request must be for ${awsTarget}`)
  const host = headers.get('host') ?? ''
  if (!expected.hosts.includes(host))
    throw awsRefusal('the host of the AWS request is not configured: sign it for another host, or ask the operator to add it to aws.hosts')
  const binding = bindingOf(headers, expected.prefixes)
  const signed = signedHeadersOf(headers.get('authorization') ?? '')
  for (const name of ['host', 'x-amz-date', binding.audience, binding.identity]) {
    if (!signed.has(name)) throw awsRefusal('the signature of the AWS request must cover host, x-amz-date and both binding headers')
  }
  const audience = canonical(headers.get(binding.audience) ?? '')
  if (!expected.audiences.includes(audience)) throw awsRefusal('the audience of the AWS request is not this platform')
  const identity = canonical(headers.get(binding.identity) ?? '')
  if (identity !== expected.identity) throw awsRefusal('the AWS request is for another identity')
  checkDate(headers.get('x-amz-date') ?? '', expected.nowMs)
  return { host, headers: passedOn(headers, signed), audience, identity }
}

interface HttpRequest {
  readonly method: string
  readonly target: string
  /** Header values by lower-case name. */
  readonly headers: ReadonlyMap<string, string>
}

/**
 * Parses the text of an HTTP request. Lines end with CRLF or LF. Refuses repeated headers, because AWS might read the other one. Refuses a body, because it
 * could contain another action.
 */
function parseHttp(text: string): HttpRequest {
  if (!/^[\t\n\r\x20-\x7e]*$/.test(text)) throw awsRefusal('the AWS request must be printable ASCII')
  const end = /\r?\n\r?\n/.exec(text)
  if (end === null) throw awsRefusal('the headers of the AWS request must end with an empty line')
  if (text.length > end.index + end[0].length) throw awsRefusal('the AWS request must not have a body')
  const [first = '', ...lines] = text.slice(0, end.index).split(/\r?\n/)
  const [, method = '', target = ''] = /^([A-Za-z]+) (\S+) HTTP\/1\.1$/.exec(first) ?? []
  if (method === '') throw awsRefusal('the AWS request must start with an HTTP/1.1 request line')
  const headers = headersOf(lines)
  if ((headers.get('content-length') ?? '0') !== '0') throw awsRefusal('the AWS request must not have a body')
  return { method, target, headers }
}

function headersOf(lines: readonly string[]): ReadonlyMap<string, string> {
  if (lines.length > maxHeaders) throw awsRefusal(`the AWS request must not have more than ${String(maxHeaders)} headers`)
  const headers = new Map<string, string>()
  for (const line of lines) {
    const [, name = '', value = ''] = /^([A-Za-z0-9!#$%&'*+.^_`|~-]+):([^\r]*)$/.exec(line) ?? []
    if (name === '') throw awsRefusal('the AWS request has a line that is not a header')
    if (headers.has(name.toLowerCase())) throw awsRefusal('the AWS request must not have a header twice')
    headers.set(name.toLowerCase(), value.trim())
  }
  return headers
}

/** Returns the values of the two binding headers. */
function bindingOf(headers: HttpRequest['headers'], prefixes: readonly string[]): { readonly audience: string; readonly identity: string } {
  const present = (suffix: string): string[] => prefixes.map((prefix) => `${prefix}-${suffix}`).filter((name) => headers.has(name))
  const [audience, ...otherAudiences] = present('audience')
  const [identity, ...otherIdentities] = present('identity')
  if (audience === undefined || identity === undefined) throw awsRefusal('the AWS request must have the headers Taproot-Audience and Taproot-Identity')
  if (otherAudiences.length > 0 || otherIdentities.length > 0) throw awsRefusal('the AWS request must not have a header twice')
  return { audience, identity }
}

const signatureShape: Readonly<Record<string, RegExp>> = {
  credential: /^\w{1,128}\/\d{8}\/[a-z0-9-]{1,64}\/sts\/aws4_request$/,
  signedheaders: /^[a-z0-9-]+(?:;[a-z0-9-]+)*$/,
  signature: /^[0-9a-f]{64}$/,
}

/**
 * Returns the names of the headers that are signed, according to an `Authorization` header of Signature Version 4. Each of its three components must occur
 * exactly once, and no other.
 */
function signedHeadersOf(authorization: string): ReadonlySet<string> {
  const malformed = awsRefusal(
    'the Authorization of the AWS request must be AWS4-HMAC-SHA256 with Credential (service sts), SignedHeaders and Signature, once each',
  )
  const [, rest] = /^AWS4-HMAC-SHA256 +(\S.*)$/.exec(authorization) ?? []
  const parts = (rest ?? '').split(',').map((part) => /^ *([A-Za-z]+)=(\S+) *$/.exec(part))
  const components = new Map(parts.map((part) => [part?.[1]?.toLowerCase() ?? '', part?.[2] ?? '']))
  const isWhole = parts.length === 3 && components.size === 3 && Object.entries(signatureShape).every(([name, shape]) => shape.test(components.get(name) ?? ''))
  if (!isWhole) throw malformed
  return new Set(components.get('signedheaders')?.split(';'))
}

/** Returns a header value in the form in which Signature Version 4 signs it: trimmed, with each run of spaces replaced by one. */
function canonical(value: string): string {
  return value.replace(/ +/g, ' ').replace(/^ | $/g, '')
}

function checkDate(text: string, nowMs: number): void {
  const iso = text.replace(/^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})Z$/, '$1-$2-$3T$4:$5:$6.000Z')
  const atMs = iso === text ? Number.NaN : Date.parse(iso)
  // A date that does not exist, such as February 30, changes when it is formatted again.
  if (Number.isNaN(atMs) || new Date(atMs).toISOString() !== iso) throw awsRefusal('the X-Amz-Date of the AWS request must be a time as YYYYMMDDTHHMMSSZ')
  if (nowMs - atMs > maxAgeMs) throw awsRefusal('the AWS request is older than 15 minutes')
  if (atMs - nowMs > maxAheadMs) throw awsRefusal('the X-Amz-Date of the AWS request is more than 5 minutes ahead')
}

function passedOn(headers: HttpRequest['headers'], signed: ReadonlySet<string>): Record<string, string> {
  const isNeeded = (name: string): boolean => name === 'authorization' || name.startsWith('x-amz-') || signed.has(name)
  const entries = [...headers].filter(([name]) => isNeeded(name))
  if (entries.some(([name]) => connectionHeaders.has(name))) throw awsRefusal('the signature of the AWS request must not cover headers about the connection')
  return Object.fromEntries(entries)
}
