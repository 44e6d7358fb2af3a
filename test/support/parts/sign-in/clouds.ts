import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createRemoteJWKSet, decodeJwt, jwtVerify } from 'jose'
import { closeNow, listenOnLoopback } from '../loopback.ts'

/** A request to a cloud, and whether the answer had a credential. */
export interface Asked {
  readonly path: string
  readonly form: URLSearchParams
  readonly token: string
  readonly given: boolean
}

/** The token services of three cloud providers, which verify tokens by their issuer's discovery document and keys, as the real ones do. */
export interface Clouds {
  readonly amazon: string
  readonly google: string
  readonly azure: string
  /** The trusted subject by account, project number or `<tenant>/<client>`. */
  readonly trusts: Map<string, string>
  readonly asked: Asked[]
  /** If set, the status of all answers. */
  broken: number | undefined
  stop(): Promise<void>
}

/** The subject of a valid token for this audience; undefined if it is invalid. */
async function subjectOf(token: string, audience: string): Promise<string | undefined> {
  const { iss = '' } = decodeJwt(token)
  const discovery = (await (await fetch(`${iss}/.well-known/openid-configuration`)).json()) as { issuer: string; jwks_uri: string }
  const { payload } = await jwtVerify(token, createRemoteJWKSet(new URL(discovery.jwks_uri)), { issuer: discovery.issuer, audience })
  return payload.sub
}

interface Answer {
  readonly status: number
  readonly type: string
  readonly body: string
}

const xmlns = 'https://sts.amazonaws.com/doc/2011-06-15/'

function amazonRefusal(status: number, code: string): Answer {
  return {
    status,
    type: 'text/xml',
    body: `<ErrorResponse xmlns="${xmlns}"><Error><Type>Sender</Type><Code>${code}</Code><Message>no</Message></Error></ErrorResponse>`,
  }
}

function oauthRefusal(error: string): Answer {
  return { status: 400, type: 'application/json', body: JSON.stringify({ error, error_description: 'no' }) }
}

const accessToken: Answer = {
  status: 200,
  type: 'application/json',
  body: JSON.stringify({ access_token: 'secret-of-the-cloud', token_type: 'Bearer', expires_in: 3600 }),
}

/** The answers of each service to a form. */
const services: Readonly<Record<string, (form: URLSearchParams, trusts: ReadonlyMap<string, string>, path: string) => Promise<Answer>>> = {
  async amazon(form, trusts) {
    if (form.get('Action') !== 'AssumeRoleWithWebIdentity' || form.get('Version') !== '2011-06-15') return amazonRefusal(400, 'InvalidAction')
    const [, account = '', role = ''] = /^arn:aws:iam::(\d{12}):role\/([\w+=,.@-]{1,64})$/.exec(form.get('RoleArn') ?? '') ?? []
    const session = form.get('RoleSessionName') ?? ''
    if (account === '' || !/^[\w+=,.@-]{2,64}$/.test(session) || Number(form.get('DurationSeconds')) < 900) return amazonRefusal(400, 'ValidationError')
    const subject = await subjectOf(form.get('WebIdentityToken') ?? '', 'sts.amazonaws.com')
    if (subject === undefined || trusts.get(account) !== subject) return amazonRefusal(403, 'AccessDenied')
    const arn = `arn:aws:sts::${account}:assumed-role/${role}/${session}`
    const body = `<AssumeRoleWithWebIdentityResponse xmlns="${xmlns}"><AssumeRoleWithWebIdentityResult><AssumedRoleUser><Arn>${arn}</Arn></AssumedRoleUser>
<Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>secret-of-the-cloud</SecretAccessKey></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
    return { status: 200, type: 'text/xml', body }
  },
  async google(form, trusts) {
    if (form.get('grant_type') !== 'urn:ietf:params:oauth:grant-type:token-exchange') return oauthRefusal('unsupported_grant_type')
    if (form.get('subject_token_type') !== 'urn:ietf:params:oauth:token-type:jwt') return oauthRefusal('invalid_request')
    if (form.get('requested_token_type') !== 'urn:ietf:params:oauth:token-type:access_token' || form.get('scope') === null)
      return oauthRefusal('invalid_request')
    const resource = form.get('audience') ?? ''
    const [, project = ''] = /^\/\/iam\.googleapis\.com\/projects\/(\d+)\/locations\/global\/workloadIdentityPools\/pool\/providers\/name$/.exec(resource) ?? []
    const subject = await subjectOf(form.get('subject_token') ?? '', `https:${resource}`)
    return subject !== undefined && trusts.get(project) === subject ? accessToken : oauthRefusal('invalid_grant')
  },
  async azure(form, trusts, path) {
    const [, tenant = ''] = /^\/azure\/([^/]+)\/oauth2\/v2\.0\/token$/.exec(path) ?? []
    if (form.get('grant_type') !== 'client_credentials' || form.get('scope')?.endsWith('/.default') !== true) return oauthRefusal('invalid_request')
    if (form.get('client_assertion_type') !== 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer') return oauthRefusal('invalid_request')
    const subject = await subjectOf(form.get('client_assertion') ?? '', 'api://AzureADTokenExchange')
    return subject !== undefined && trusts.get(`${tenant}/${form.get('client_id')}`) === subject ? accessToken : oauthRefusal('invalid_client')
  },
}

async function formOf(request: IncomingMessage): Promise<URLSearchParams> {
  const chunks: Uint8Array[] = []
  for await (const chunk of request) chunks.push(chunk as Uint8Array) // an HTTP body is bytes
  const isForm = request.method === 'POST' && request.headers['content-type'] === 'application/x-www-form-urlencoded'
  return new URLSearchParams(isForm ? Buffer.concat(chunks).toString() : '')
}

/** Starts all three on one loopback port. */
export async function startClouds(): Promise<Clouds> {
  const trusts = new Map<string, string>()
  const asked: Asked[] = []
  const answer = async (request: IncomingMessage): Promise<Answer> => {
    const path = request.url ?? ''
    const form = await formOf(request)
    const service = services[path.split('/')[1] ?? '']
    const reply =
      clouds.broken === undefined
        ? ((await service?.(form, trusts, path).catch(() => oauthRefusal('invalid_request'))) ?? { status: 404, type: 'text/plain', body: '' })
        : { status: clouds.broken, type: 'text/html', body: '<html>' }
    const token = form.get('WebIdentityToken') ?? form.get('subject_token') ?? form.get('client_assertion') ?? ''
    asked.push({ path, form, token, given: reply.body.includes('secret-of-the-cloud') })
    return reply
  }
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { status, type, body } = await answer(request)
    response.writeHead(status, { 'content-type': type }).end(body)
  }
  const server = createServer((request, response) => void respond(request, response))
  const port = await listenOnLoopback(server)
  const origin = `http://127.0.0.1:${port}`
  const clouds: Clouds = {
    amazon: `${origin}/amazon`,
    google: `${origin}/google`,
    azure: `${origin}/azure`,
    trusts,
    asked,
    broken: undefined,
    stop: () => closeNow(server),
  }
  return clouds
}
