import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { closeNow, listenOnLoopback } from '../loopback.ts'

/** An access key and its owner. */
export interface AccessKey {
  readonly id: string
  readonly secret: string
  /** Set for temporary credentials. */
  readonly sessionToken?: string
  readonly arn: string
  readonly userId: string
  readonly account: string
}

/** A request to sign. */
export interface ToSign {
  readonly method?: string
  readonly target?: string
  /** In the order of the request, with `Host`. All are signed unless `signed` lists some. */
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly signed?: readonly string[]
  readonly date: Date
  readonly region?: string
  readonly body?: string
}

/** `20260115T120000Z` */
export function amzDate(date: Date): string {
  return date.toISOString().replace(/[-:]|\.\d{3}/g, '')
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')
const hmac = (key: string | Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest()
const collapsed = (value: string): string => value.trim().replace(/ +/g, ' ')

interface Signature {
  readonly method: string
  readonly target: string
  /** By lower-case name. */
  readonly headers: ReadonlyMap<string, string>
  readonly signed: readonly string[]
  readonly amzDate: string
  readonly region: string
  readonly body: string
}

/** AWS Signature Version 4: canonical request, string to sign, derived key. */
function signatureOf(secret: string, { method, target, headers, signed, amzDate: at, region, body }: Signature): string {
  const [path = '/', query = ''] = target.split('?')
  const canonicalQuery = query.split('&').toSorted().join('&')
  const canonicalHeaders = signed.map((name) => `${name}:${collapsed(headers.get(name) ?? '')}\n`).join('')
  const canonicalRequest = [method, path, canonicalQuery, canonicalHeaders, signed.join(';'), sha256(body)].join('\n')
  const day = at.slice(0, 8)
  const scope = `${day}/${region}/sts/aws4_request`
  const key = [region, 'sts', 'aws4_request'].reduce<Buffer>((derived, part) => hmac(derived, part), hmac(`AWS4${secret}`, day))
  return hmac(key, ['AWS4-HMAC-SHA256', at, scope, sha256(canonicalRequest)].join('\n')).toString('hex')
}

/** A signed request in the form of the public clients, before base64. */
export function signedRequest(key: AccessKey, input: ToSign): string {
  const { method = 'POST', target = '/?Action=GetCallerIdentity&Version=2011-06-15', date, region = 'us-east-1', body = '' } = input
  const all = [
    ...input.headers,
    ['X-Amz-Date', amzDate(date)] as const,
    ...(key.sessionToken === undefined ? [] : [['X-Amz-Security-Token', key.sessionToken] as const]),
  ]
  const headers = new Map(all.map(([name, value]) => [name.toLowerCase(), value]))
  const signed = (input.signed ?? [...headers.keys()]).toSorted()
  const signature = signatureOf(key.secret, { method, target, headers, signed, amzDate: amzDate(date), region, body })
  const credential = `${key.id}/${amzDate(date).slice(0, 8)}/${region}/sts/aws4_request`
  const authorization = `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${signed.join(';')}, Signature=${signature}`
  const lines = [...all, ['Authorization', authorization] as const].map(([name, value]) => `${name}: ${value}`)
  return `${[`${method} ${target} HTTP/1.1`, ...lines].join('\r\n')}\r\n\r\n${body}`
}

/** The token of a public client: a request with some unsigned headers, in base64url. */
export function awsToken(
  key: AccessKey,
  { audience, identity, date, host = 'sts.amazonaws.com' }: { audience: string; identity: string; date: Date; host?: string },
): string {
  const headers = [
    ['Host', host],
    ['Accept', 'application/json'],
    ['Taproot-Audience', audience],
    ['Taproot-Identity', identity],
  ] as const
  const text = signedRequest(key, { headers, date })
  return Buffer.from(text.replace('\r\n', '\r\nUser-Agent: client/1.1\r\nContent-Length: 0\r\n')).toString('base64url')
}

/** A token service of AWS with `GetCallerIdentity`, which verifies signatures, dates and keys. */
export interface AwsSts {
  readonly url: string
  readonly keys: Map<string, AccessKey>
  /** The requests that came. */
  readonly asked: { readonly host: string; readonly headers: IncomingMessage['headers']; readonly accepted: boolean }[]
  /** If set, the answer to all requests. */
  broken: { readonly status: number; readonly body?: string; readonly headers?: Record<string, string> } | 'silent' | undefined
  stop(): Promise<void>
}

const xmlns = 'https://sts.amazonaws.com/doc/2011-06-15/'
const requestId = '01234567-89ab-cdef-0123-456789abcdef'

function refusal(status: number, code: string): { status: number; type: string; body: string } {
  const body = `<ErrorResponse xmlns="${xmlns}">\n  <Error>\n    <Type>Sender</Type>\n    <Code>${code}</Code>\n    <Message>no</Message>\n  </Error>\n  <RequestId>${requestId}</RequestId>\n</ErrorResponse>\n`
  return { status, type: 'text/xml', body }
}

function answerOf({ arn, userId, account }: AccessKey, accept: string | undefined): { status: number; type: string; body: string } {
  if (accept === 'application/json') {
    const body = {
      GetCallerIdentityResponse: { GetCallerIdentityResult: { Account: account, Arn: arn, UserId: userId }, ResponseMetadata: { RequestId: requestId } },
    }
    return { status: 200, type: 'application/json', body: JSON.stringify(body) }
  }
  const escaped = arn.replaceAll('&', '&amp;')
  const body = `<GetCallerIdentityResponse xmlns="${xmlns}">
  <GetCallerIdentityResult>
    <Arn>${escaped}</Arn>
    <UserId>${userId}</UserId>
    <Account>${account}</Account>
  </GetCallerIdentityResult>
  <ResponseMetadata>
    <RequestId>${requestId}</RequestId>
  </ResponseMetadata>
</GetCallerIdentityResponse>
`
  return { status: 200, type: 'text/xml', body }
}

function isCurrent(at: string, nowMs: number): boolean {
  const atMs = Date.parse(at.replace(/^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})Z$/, '$1-$2-$3T$4:$5:$6Z'))
  return Math.abs(nowMs - atMs) <= 15 * 60_000
}

/** True if all required headers are signed and all signed headers are present. */
function isCovered(signed: readonly string[], sent: readonly string[]): boolean {
  const must = sent.filter((name) => name === 'host' || name.startsWith('x-amz-'))
  return must.every((name) => signed.includes(name)) && signed.every((name) => sent.includes(name))
}

/** The signing key, or the code of the refusal. */
function verified(request: IncomingMessage, body: string, { keys, nowMs }: { keys: ReadonlyMap<string, AccessKey>; nowMs: number }): AccessKey | string {
  const authorization = request.headers.authorization ?? ''
  const [, id = '', day = '', region = '', list = '', signature = ''] =
    /^AWS4-HMAC-SHA256 +Credential=(\w+)\/(\d{8})\/([\w-]+)\/sts\/aws4_request, *SignedHeaders=([^, ]+), *Signature=([0-9a-f]{64})$/.exec(authorization) ?? []
  const key = keys.get(id)
  if (key === undefined) return id === '' ? 'IncompleteSignature' : 'InvalidClientTokenId'
  const at = String(request.headers['x-amz-date'])
  if (at.slice(0, 8) !== day || !isCurrent(at, nowMs)) return 'SignatureDoesNotMatch'
  const signed = list.split(';')
  const headers = new Map(Object.entries(request.headers).map(([name, value]) => [name, String(value)]))
  if (!isCovered(signed, [...headers.keys()])) return 'SignatureDoesNotMatch'
  const expected = signatureOf(key.secret, { method: String(request.method), target: String(request.url), headers, signed, amzDate: at, region, body })
  if (!timingSafeEqual(Buffer.from(expected), Buffer.from(signature))) return 'SignatureDoesNotMatch'
  return headers.get('x-amz-security-token') === key.sessionToken ? key : 'InvalidClientTokenId'
}

/** Starts the service on a loopback port, with `now` as its time. */
export async function startAwsSts(now: () => number): Promise<AwsSts> {
  const keys = new Map<string, AccessKey>()
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Uint8Array[] = []
    for await (const chunk of request) chunks.push(chunk as Uint8Array) // an HTTP body is bytes
    const { broken } = sts
    const found = verified(request, Buffer.concat(chunks).toString(), { keys, nowMs: now() })
    sts.asked.push({ host: request.headers.host ?? '', headers: request.headers, accepted: typeof found !== 'string' })
    if (broken === 'silent') return
    if (broken !== undefined) return void response.writeHead(broken.status, broken.headers ?? {}).end(broken.body ?? '')
    const isKnown = request.method === 'POST' && request.url === '/?Action=GetCallerIdentity&Version=2011-06-15'
    const { status, type, body } = !isKnown
      ? refusal(400, 'InvalidAction')
      : typeof found === 'string'
        ? refusal(403, found)
        : answerOf(found, request.headers.accept)
    response.writeHead(status, { 'content-type': type }).end(body)
  }
  const server = createServer((request, response) => void respond(request, response))
  const port = await listenOnLoopback(server)
  const sts: AwsSts = {
    url: `http://127.0.0.1:${port}`,
    keys,
    asked: [],
    broken: undefined,
    stop: () => closeNow(server),
  }
  return sts
}
