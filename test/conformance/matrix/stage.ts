import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { personUid } from '../../../src/auth/oidc/issuer-name.ts'
import type { TokenRestrictions } from '../../../src/auth/access-tokens/token-restrictions.ts'
import { trustedUid } from '../../../src/base/uid.ts'
import { issueRefreshToken } from '../../../src/iam/signin/refresh-tokens.ts'
import type { ApiClient, Options, Reply } from '../../support/api-clients.ts'
import { freshName, makeMember, makeOrganisation, ok, roleUid, type Organisation, type TestServer } from '../../support/test-server.ts'
import { signWith, type OidcProvider } from '../../iam/signin/issuers.ts'
import { makeRole } from '../walk/world.ts'

/** A person with an account at the issuer. */
export interface TestPerson {
  readonly subject: string
  /** Their uid on this server. */
  readonly uid: string
}

/** The server and issuer for attempts over one transport. Each attempt has a new organisation. */
export class Stage {
  readonly server: TestServer
  readonly apiClient: ApiClient
  /** An issuer that the server's configuration names. */
  readonly issuer: OidcProvider

  constructor({ server, issuer }: Pick<Stage, 'server' | 'issuer'>, transport: 'rest' | 'grpc') {
    this.server = server
    this.issuer = issuer
    this.apiClient = server[transport]
  }

  call(rpc: string, request: JsonObject, token: string, options: Options = {}): Promise<Reply> {
    return this.apiClient.call(rpc, request, { ...options, token })
  }

  async ok(rpc: string, request: JsonObject, token: string): Promise<JsonObject> {
    return ok(await this.call(rpc, request, token))
  }

  async uid(rpc: string, request: JsonObject, token: string): Promise<string> {
    return String((await this.ok(rpc, request, token))['uid'])
  }

  /** Calls, and expects a refusal with this code. */
  async refused(code: number, call: readonly [rpc: string, request: JsonObject, token: string, options?: Options]): Promise<Reply> {
    const reply = await this.call(...call)
    expect({ rpc: call[0], request: call[1], code: reply.code, message: reply.message }).toMatchObject({ code })
    return reply
  }

  organisation(): Promise<Organisation> {
    return makeOrganisation(this.server)
  }

  group({ group, token }: Organisation, name = freshName('team')): Promise<string> {
    return this.uid('CreateGroup', { parent: group, group: { name } }, token)
  }

  /** Creates an identity of the organisation with exactly these capabilities, in the root group or elsewhere. */
  async holding({ group }: Organisation, capabilities: readonly string[], bindAt = group): Promise<{ uid: string; token: string; role: string }> {
    const role = await makeRole(this.server, group, capabilities)
    return { ...(await makeMember(this.server, group, { role, bindAt })), role }
  }

  bind({ group, token }: Organisation, identityUid: string, role: string, at = group): Promise<string> {
    return this.uid('CreateRoleBinding', { parent: at, roleBinding: { identityUid, roleUid: roleUid(role) } }, token)
  }

  person(): TestPerson {
    const subject = freshName('foreign-name')
    return { subject, uid: personUid(this.issuer.issuer, subject) }
  }

  /** A token of the issuer, for the platform or a client. */
  external({ subject }: TestPerson, audience = this.server.config.baseUrl, claims: JsonObject = {}): Promise<string> {
    return signWith(this.issuer.key(), this.issuer.claims({ sub: subject, aud: audience, ...claims }))
  }

  /** A provider whose people the issuer knows. */
  provider({ group, token }: Organisation, clientId: string, more: JsonObject = {}): Promise<string> {
    const oidc = { issuer: this.issuer.issuer, clientId, clientSecret: 'a secret', groupsClaim: 'groups' }
    return this.uid(
      'CreateIdentityProvider',
      { parent: group, identityProvider: { name: freshName('idp'), defaultRole: roleUid('viewer'), oidc, ...more } },
      token,
    )
  }

  /** A refresh token of a registered person, as a browser login gives it. */
  async refreshToken({ subject, uid }: TestPerson, restrictions: TokenRestrictions = {}): Promise<string> {
    const { services } = this.server.running.engine
    const act = { issuer: this.issuer.issuer, subject, audience: this.server.config.baseUrl }
    const claims = { act, restrictions, issuedAtMs: services.clock.now() }
    const grant = { person: trustedUid(uid), claims, provider: undefined, externalId: '', audiences: [act.audience] }
    return (await issueRefreshToken(services, grant, AbortSignal.timeout(60_000))).text
  }
}
