import type { TokenRestrictions } from '../../../src/auth/access-tokens/token-restrictions.ts'
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { text } from 'node:stream/consumers'
import { create } from '@bufbuild/protobuf'
import { trustedUid } from '../../../src/base/uid.ts'
import { RoleBindingSchema } from '../../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { ChangeSet, newEtag } from '../../../src/engine/change-set.ts'
import { roleBindingKind } from '../../../src/iam/records/role-bindings.ts'
import { newUid } from '../../../src/engine/write.ts'
import type { Resource } from '../../../src/cache/records/cached-record.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid, type Organisation, type TestServer } from '../../support/test-server.ts'

/** The root group that the servers of these tests have configured as public. */
export const publicName = 'public-images'

/** An answer of the registry host. */
export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
  /** The codes of the error envelope. */
  readonly codes: readonly string[]
}

/** A request to the registry host, with an unchanged path. */
export interface Asked {
  readonly method?: string
  readonly path: string
  readonly authorization?: string | undefined
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** Source address; 127.0.0.1 by default. */
  readonly from?: string
}

/** One entry of a registry token's `access`. */
export interface Access {
  readonly type: string
  readonly name: string
  readonly actions: readonly string[]
  readonly uid?: string
  readonly parent?: string
}

/** The claims of a registry token. */
export interface Claims {
  readonly iss: string
  readonly sub: string
  readonly aud: string
  readonly exp: number
  readonly iat: number
  readonly use: string
  readonly access: readonly Access[]
}

/** Deviations of an access token from the default. */
interface AccessOptions {
  readonly restrictions?: TokenRestrictions
  readonly audiences?: readonly string[]
  readonly actor?: { readonly issuer: string; readonly subject: string }
}

/** `Basic` of a user and a password. */
export function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
}

/** `Bearer` of a token. */
export function bearer(token: string): string {
  return `Bearer ${token}`
}

/** One part of a JWT. */
export function partOf(token: string, part: 0 | 1): Record<string, unknown> {
  return JSON.parse(Buffer.from(token.split('.')[part] ?? '', 'base64url').toString()) as Record<string, unknown> // a cast of JSON
}

/** The token with one part changed and the old signature. */
export function tampered(token: string, change: (claims: Record<string, unknown>) => Record<string, unknown>): string {
  const [header = '', , signature = ''] = token.split('.')
  return `${header}.${Buffer.from(JSON.stringify(change(partOf(token, 1)))).toString('base64url')}.${signature}`
}

/** The registry host of a test server, with functions that create tenants. */
export class RegistryWorld {
  readonly server: TestServer

  constructor(server: TestServer) {
    this.server = server
  }

  get host(): string {
    return this.server.config.registry.host
  }

  /** Sends one request. */
  async ask({ method = 'GET', path, authorization, headers, body, from = '127.0.0.1' }: Asked): Promise<Answer> {
    const sent = { ...headers, ...(authorization === undefined ? {} : { authorization }) }
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    const request = httpRequest(
      { host: '127.0.0.1', port: this.server.config.registry.port, method, path, headers: sent, agent: false, localAddress: from },
      (response) => {
        text(response).then((answer) => {
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: answer, codes: codesOf(answer) })
        }, reject)
      },
    )
    request.on('error', reject)
    request.end(body)
    return await promise
  }

  /** Asks for a registry token. */
  async requestToken(scopes: readonly string[], authorization?: string): Promise<Answer & { readonly token: string }> {
    const query = new URLSearchParams(scopes.map((scope) => ['scope', scope]))
    const answer = await this.ask({ path: `/token?${query.toString()}`, authorization })
    return { ...answer, token: answer.status === 200 ? String((JSON.parse(answer.body) as { token?: unknown }).token) : '' }
  }

  /** Returns a registry token; throws if it is refused. */
  async tokenFor(scope: string, authorization?: string): Promise<string> {
    const answer = await this.requestToken([scope], authorization)
    if (answer.status !== 200) throw new Error(`${answer.status} ${answer.body}`)
    return answer.token
  }

  /** The claims of a token. */
  claimsOf(token: string): Claims {
    return partOf(token, 1) as unknown as Claims
  }

  /** Calls `tags/list`, a minimal request that needs `pull`. */
  list(repository: string, authorization?: string): Promise<Answer> {
    return this.ask({ path: `/v2/${repository}/tags/list`, authorization })
  }

  /** Starts an upload, a minimal request that needs `push`. */
  upload(repository: string, authorization?: string, query = ''): Promise<Answer> {
    return this.ask({ method: 'POST', path: `/v2/${repository}/blobs/uploads/${query}`, authorization })
  }

  /** An access token of an identity for the registry host. */
  async accessToken(identity: string, options: AccessOptions = {}): Promise<string> {
    const { restrictions = {}, audiences = [this.host], actor = { issuer: 'https://issuer.example', subject: 'test' } } = options
    const act = { ...actor, audience: audiences[0] ?? '' }
    const { token } = await this.server.running.signIn.tokens.mint({ identityUid: trustedUid(identity), audiences, act, restrictions })
    return token
  }

  /** A member with this built-in role, and their credential for the registry host. */
  async member(group: string, options: { role?: string; bindAt?: string } = {}): Promise<{ uid: string; authorization: string }> {
    const { uid } = await makeMember(this.server, group, options)
    return { uid, authorization: bearer(await this.accessToken(uid)) }
  }

  /** A tenant with a repo `app`. */
  async tenant(name = freshName('tenant')): Promise<Tenant> {
    const organisation = await makeOrganisation(this.server, name)
    const repo = await this.repo(organisation.group, 'app')
    return { ...organisation, name, repo, path: `${name}/app`, authorization: bearer(await this.accessToken(organisation.owner)) }
  }

  /** The public organisation with its repo `app`; created once. */
  async publicTenant(): Promise<Tenant> {
    return await (this.#public ??= this.tenant(publicName))
  }

  #public: Promise<Tenant> | undefined

  /** Creates a repo as the operator. */
  async repo(parent: string, name: string): Promise<string> {
    return await this.#create('CreateRepo', { parent, repo: { name } })
  }

  /** Creates a group as the operator. */
  async group(parent: string, name: string): Promise<string> {
    return await this.#create('CreateGroup', { parent, group: { name } })
  }

  /** Binds an identity to a built-in role. */
  async bind(group: string, identity: string, role: string): Promise<string> {
    return await this.#create('CreateRoleBinding', { parent: group, roleBinding: { identityUid: identity, roleUid: roleUid(role) } })
  }

  /** Calls the API as the operator; must succeed. */
  async operate(rpc: string, request: Parameters<TestServer['rest']['call']>[1]): Promise<void> {
    ok(await this.server.rest.call(rpc, request, { token: await this.server.operatorToken() }))
  }

  /** Binds an identity in the store, past a refusal of the API. */
  async bindAnyway(group: string, identity: string, role: string): Promise<void> {
    const { services } = this.server.running.engine
    const nowMs = services.clock.now()
    const changes = new ChangeSet()
    const record = create(RoleBindingSchema, { identityUid: identity, roleUid: roleUid(role) }) as unknown as Resource
    const facts = { etag: newEtag(services.random), createMs: nowMs, updateMs: nowMs, managedBy: '' }
    changes.create(roleBindingKind, { uid: newUid(services, group), record, facts })
    await this.#write(changes)
  }

  async #write(changes: ChangeSet): Promise<void> {
    const { store, cache } = this.server.running.engine
    const outcome = await store.transact(changes, AbortSignal.timeout(60_000))
    if (!outcome.committed) throw new Error('the store refused')
    await cache.reached(outcome.revision, AbortSignal.timeout(60_000))
  }

  async #create(rpc: string, request: Parameters<TestServer['rest']['call']>[1]): Promise<string> {
    return String(ok(await this.server.rest.call(rpc, request, { token: await this.server.operatorToken() }))['uid'])
  }
}

/** An organisation with a repo. */
export interface Tenant extends Organisation {
  readonly name: string
  readonly repo: string
  /** `<name>/app` */
  readonly path: string
  /** The owner's credential for the registry host. */
  readonly authorization: string
}

function codesOf(body: string): string[] {
  if (!body.startsWith('{"errors"')) return []
  return (JSON.parse(body) as { errors: { code: string }[] }).errors.map(({ code }) => code) // a cast: the envelope is as specified
}
