import { expect } from 'vitest'
import { freshName, makeMember, makeOrganisation, ok, roleUid, type Organisation, type TestServer } from '../../support/test-server.ts'

/** An answer of the SCIM server. */
export interface ScimReply {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The body; an empty object if there is none. */
  readonly body: Readonly<Record<string, unknown>>
}

/** The token and body of a request. */
export interface ScimAsk {
  readonly body?: unknown
  /** The exact text of the body. */
  readonly text?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Replaces the directory's own token; no token if empty. */
  readonly token?: string
}

/** An organisation with an identity provider whose SCIM is on, and the directory with its token. */
export interface Directory extends Organisation {
  readonly provider: string
  readonly endpoint: string
  readonly scimToken: string
  ask(method: string, path: string, more?: ScimAsk): Promise<ScimReply>
  /** Sends a request and expects this status. Returns the body. */
  expecting(status: number, method: string, path: string, more?: ScimAsk): Promise<Readonly<Record<string, unknown>>>
  /** Creates a user and returns its id. */
  add(user?: Readonly<Record<string, unknown>>): Promise<string>
  verb(rpc: string, request?: Record<string, string | boolean>): Promise<Record<string, unknown>>
  setEnabled(enabled: boolean): Promise<void>
}

export const userUrn = 'urn:ietf:params:scim:schemas:core:2.0:User'
export const enterpriseUrn = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User'
export const patchUrn = 'urn:ietf:params:scim:api:messages:2.0:PatchOp'

/** Sends a request to a SCIM server. */
export async function askScim(url: string, method: string, { body, text, headers, token }: ScimAsk & { token: string }): Promise<ScimReply> {
  const sent = text ?? (body === undefined ? undefined : JSON.stringify(body))
  const response = await fetch(url, {
    method,
    headers: {
      ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
      ...(sent === undefined ? {} : { 'content-type': 'application/scim+json' }),
      ...headers,
    },
    ...(sent === undefined ? {} : { body: sent }),
  })
  const answered = await response.text()
  const parsed = (answered === '' ? {} : JSON.parse(answered)) as Readonly<Record<string, unknown>>
  return { status: response.status, headers: response.headers, text: answered, body: parsed }
}

/** Creates a Directory. `oidc` are additional fields of the provider. */
export async function makeDirectory(server: TestServer, oidc: Readonly<Record<string, string>> = {}): Promise<Directory> {
  const organisation = await makeOrganisation(server)
  const { group, token } = organisation
  const configuration = { issuer: 'https://login.idp.example', clientId: 'taproot', clientSecret: 'a secret', ...oidc }
  const identityProvider = { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc: configuration }
  const provider = String(ok(await server.rest.call('CreateIdentityProvider', { parent: group, identityProvider }, { token }))['uid'])
  // SCIM needs two owners.
  await makeMember(server, group, { role: 'owner' })
  const verb: Directory['verb'] = async (rpc, request = {}) => ok(await server.rest.call(rpc, { identityProviderUid: provider, ...request }, { token }))
  const scimToken = String((await verb('GenerateScimToken'))['token'])
  const setEnabled = async (enabled: boolean): Promise<void> => {
    const { scim } = ok(await server.rest.call('GetIdentityProvider', { uid: provider }, { token }))
    await verb('SetScimEnabled', { etag: (scim as { etag: string }).etag, enabled })
  }
  await setEnabled(true)
  const endpoint = `${server.config.baseUrl}/scim/v2/${provider}`
  const ask: Directory['ask'] = (method, path, more = {}) => askScim(`${endpoint}/${path}`, method, { token: scimToken, ...more })
  const expecting: Directory['expecting'] = async (status, method, path, more) => {
    const reply = await ask(method, path, more)
    expect([reply.status, reply.text]).toEqual([status, expect.anything()])
    return reply.body
  }
  const add: Directory['add'] = async (user = {}) => {
    const made = await expecting(201, 'POST', 'Users', { body: { schemas: [userUrn], userName: freshName('user'), ...user } })
    return String(made['id'])
  }
  return { ...organisation, provider, endpoint, scimToken, ask, expecting, add, verb, setEnabled }
}

/** A patch with these operations. */
export function patchOf(...operations: readonly unknown[]): ScimAsk {
  return { body: { schemas: [patchUrn], Operations: operations } }
}

/** Checks an error in the form of RFC 7644 3.12. */
export function expectScimError(reply: ScimReply, status: number, scimType?: string): void {
  const { detail, ...rest } = reply.body
  const type = scimType === undefined ? {} : { scimType }
  expect([reply.status, rest]).toEqual([status, { schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'], status: String(status), ...type }])
  expect(detail).toMatch(/./)
  expect(reply.headers.get('content-type')).toBe('application/scim+json')
}

/** The userNames of a list's answer. */
export function namesOf(body: Readonly<Record<string, unknown>>): string[] {
  return (body['Resources'] as { userName: string }[]).map(({ userName }) => userName)
}
