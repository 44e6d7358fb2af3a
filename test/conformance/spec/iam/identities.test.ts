import { createHash } from 'node:crypto'
import type { JsonObject } from '@bufbuild/protobuf'
import { exportJWK, generateKeyPair } from 'jose'
import { expect, test } from 'vitest'
import type { Reply } from '../../../support/api-clients.ts'
import { freshName, makeMember, makeOrganisation, ok, startTestServer } from '../../../support/test-server.ts'
import { expectFailure, fieldViolations, itemsOf, specSuite, uidOf } from '../spec-suite.ts'
import { claimMatch, identityUnder } from '../spec-kinds.ts'

const dayMs = 24 * 3_600_000

async function jwks(which: 'public' | 'private'): Promise<string> {
  const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true })
  return JSON.stringify({ keys: [{ ...(await exportJWK(which === 'public' ? publicKey : privateKey)), kid: 'one', alg: 'ES256' }] })
}

specSuite('identities', (spec) => {
  const create = async (identity: JsonObject): Promise<JsonObject> => {
    const { group, token } = await makeOrganisation(spec.server)
    return spec.ok('CreateIdentity', { parent: group, identity }, { token })
  }
  const refused = async (identity: JsonObject) => {
    const { group, token } = await makeOrganisation(spec.server)
    return spec.call('CreateIdentity', { parent: group, identity }, { token })
  }

  // docs/spec/conventions.md#create
  test('create returns the identity with all its fields', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const identity = { name: 'ci builder', description: 'builds images', claimMatch: { issuer: 'https://token.example.com', subject: 'repo:acme/app' } }
    const made = await spec.ok('CreateIdentity', { parent: group, identity }, { token })
    expect(made).toMatchObject(identity)
    for (const time of ['createTime', 'updateTime', 'lastSeenTime']) expect(made[time]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    expect(made['updateTime']).toBe(made['createTime'])
    expect(await spec.ok('GetIdentity', { uid: uidOf(made) }, { token })).toEqual(made)
  })

  // docs/spec/resources.md#uid-shape
  test('the uid is that of the parent, a slash and 16 hex digits', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await identityUnder(spec, group, token))
    expect(uid.slice(0, group.length + 1)).toBe(`${group}/`)
    expect(uid.slice(group.length + 1)).toMatch(/^[0-9a-f]{16}$/)
  })

  // docs/spec/identities.md#relationships
  test('create with an empty body is code 3 and lists name, then the missing relationship', async () => {
    const reply = await refused({})
    expectFailure(reply, { code: 3, fields: ['name', 'claim_match'] })
    expect(reply.details['ErrorInfo']?.['@type']).toBe('type.googleapis.com/google.rpc.ErrorInfo')
    expect(reply.details['BadRequest']?.['@type']).toBe('type.googleapis.com/google.rpc.BadRequest')
  })

  // docs/spec/resources.md#names
  test('create with an invalid name is code 3 on the name alone', async () => {
    const reply = await refused({ name: 'Not Allowed!', claimMatch: claimMatch() })
    expectFailure(reply, { code: 3, fields: ['name'] })
    expect(reply.message).toMatch(/^Invalid argument: name: ./)
  })

  // docs/spec/resources.md#names
  test.each([['a'], ['0'], ['a b.c_d-e'], [' '], ['x'.repeat(255)]])('%j is a valid name', async (name) => {
    expect((await create({ name, claimMatch: claimMatch() }))['name']).toBe(name)
  })

  // docs/spec/resources.md#names
  test.each([['A'], ['a/b'], ['ä'], ['a\nb'], ['a\n'], ['x'.repeat(256)]])('%j is an invalid name', async (name) => {
    expectFailure(await refused({ name, claimMatch: claimMatch() }), { code: 3, fields: ['name'] })
  })

  // docs/spec/resources.md#unique-names
  test('two identities of one group may have the same name', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const [one, other] = [await identityUnder(spec, group, token, 'twin'), await identityUnder(spec, group, token, 'twin')]
    expect(uidOf(one)).not.toBe(uidOf(other))
  })

  // docs/spec/resources.md#output-only-fields
  test('output-only fields of a create body are ignored', async () => {
    const given = { uid: 'f'.repeat(40), createTime: '2001-01-01T00:00:00Z', lastSeenTime: '2001-01-01T00:00:00Z', email: 'a@example.com' }
    const made = await create({ name: 'plain', claimMatch: claimMatch(), ...given })
    expect(uidOf(made)).not.toBe(given.uid)
    expect(String(made['createTime'])).not.toMatch(/^2001/)
    expect(String(made['lastSeenTime'])).not.toMatch(/^2001/)
    expect(made['email']).not.toBe(given.email)
  })

  // docs/spec/conventions.md#delete
  test('delete returns an empty body, and then get and delete are 404', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const uid = uidOf(await identityUnder(spec, group, token))
    expect(await spec.ok('DeleteIdentity', { uid }, { token })).toEqual({})
    expectFailure(await spec.call('GetIdentity', { uid }, { token }), { code: 5 })
    expectFailure(await spec.call('DeleteIdentity', { uid }, { token }), { code: 5 })
  })

  // docs/spec/conventions.md#deletion-order
  test('the deletion of an identity deletes its bindings, and its tokens are 401 at once', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const member = await makeMember(spec.server, group, { role: 'viewer' })
    const bindings = { identity: member.uid }
    const [binding] = itemsOf(await spec.ok('ListRoleBindings', bindings, { token }), 'roleBindings')
    expect((await spec.call('GetGroup', { uid: group }, { token: member.token })).code).toBe(0)
    await spec.ok('DeleteIdentity', { uid: member.uid }, { token })
    expectFailure(await spec.call('GetGroup', { uid: group }, { token: member.token }), { code: 16 })
    expect(await spec.ok('ListRoleBindings', bindings, { token })).toMatchObject({ roleBindings: [], totalCount: '0' })
    expectFailure(await spec.call('GetRoleBinding', { uid: uidOf(binding ?? {}) }, { token }), { code: 5 })
  })

  // docs/spec/identities.md#claim-matching
  test.each([
    ['the issuer is missing', { subject: 's' }, /^claim_match\.iss/],
    ['the subject is missing', { issuer: 'https://issuer.example' }, /^claim_match\.sub/],
    ['a pattern does not compile', { issuer: 'https://issuer.example', subjectPattern: '(' }, 'claim_match.subject_pattern'],
    ['a pattern is not RE2', { issuer: 'https://issuer.example', subjectPattern: '(?=a)a' }, 'claim_match.subject_pattern'],
    ['an audience pattern does not compile', { ...claimMatch(), audiencePattern: '[' }, 'claim_match.audience_pattern'],
  ] as const)('a claim match where %s is code 3', async (_, match, field) => {
    expectFailure(await refused({ name: 'bad match', claimMatch: match }), { code: 3, fields: [field] })
  })

  // docs/spec/identities.md#patterns
  test('a claim pattern that does not compile is code 3 on that pattern', async () => {
    const reply = await refused({ name: 'bad match', claimMatch: { ...claimMatch(), claimPatterns: { team: '(' } } })
    expectFailure(reply, { code: 3, fields: [/^claim_match\.claim_patterns/] })
  })

  // docs/spec/identities.md#claim-matching
  test('patterns, audience and further claims are kept as given', async () => {
    const match = { issuerPattern: 'https://.*', subjectPattern: '.*', audiencePattern: 'a|b', claims: { team: 'core' }, claimPatterns: { ref: 'refs/.*' } }
    expect((await create({ name: 'patterns', claimMatch: match }))['claimMatch']).toEqual(match)
  })

  // docs/spec/identities.md#relationships
  test.each([
    ['without a scheme', 'token.actions.githubusercontent.com'],
    ['of another scheme', 'ftp://issuer.example'],
    ['with a user', 'https://user@issuer.example'],
    ['with a query', 'https://issuer.example/?tenant=a'],
    ['the URL of a discovery document', 'https://issuer.example/.well-known/openid-configuration'],
  ])('a claim match with an issuer %s can never be verified: code 3', async (_what, issuer) => {
    const found = await refused({ name: 'never', claimMatch: { issuer, subject: 's' } })
    expectFailure(found, { code: 3, fields: ['claim_match.issuer'] })
  })

  // docs/spec/identities.md#relationships
  test('a claim match accepts the issuer accounts.google.com without https, and in development an http issuer', async () => {
    for (const issuer of ['accounts.google.com', 'http://localhost:8081/realm']) {
      expect(await create({ name: 'matched', claimMatch: { issuer, subject: 's' } })).toMatchObject({ claimMatch: { issuer, subject: 's' } })
    }
  })

  // docs/spec/identities.md#relationships
  test('no identity may name this server as issuer', async () => {
    const issuer = spec.server.config.baseUrl
    expectFailure(await refused({ name: 'self', claimMatch: { issuer, subject: 's' } }), { code: 3, fields: ['claim_match.issuer'] })
    const staticKeys = { issuer, subject: 's', issuerKeys: await jwks('public') }
    expectFailure(await refused({ name: 'self', staticKeys }), { code: 3, fields: ['static_keys.issuer'] })
  })

  // docs/spec/identities.md#static-keys
  test('static keys expire after 365 days by default, never later, and can be read again', async () => {
    const staticKeys = { issuer: 'https://no-discovery.example', subject: 's', issuerKeys: await jwks('public') }
    const made = await create({ name: 'static', staticKeys })
    const createMs = Date.parse(String(made['createTime']))
    expect(made['staticKeys']).toMatchObject({ ...staticKeys, expirationTime: new Date(createMs + 365 * dayMs).toISOString() })
    const tooLate = new Date(spec.clock.now() + 366 * dayMs).toISOString()
    expectFailure(await refused({ name: 'static', staticKeys: { ...staticKeys, expirationTime: tooLate } }), {
      code: 3,
      fields: ['static_keys.expiration_time'],
    })
  })

  // docs/spec/identities.md#static-keys
  test('static keys that are private, unreadable or for two audiences are code 3', async () => {
    const base = { issuer: 'https://no-discovery.example', subject: 's' }
    for (const issuerKeys of [await jwks('private'), 'no json', '{"keys":[]}', '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}']) {
      expectFailure(await refused({ name: 'static', staticKeys: { ...base, issuerKeys } }), { code: 3, fields: ['static_keys.issuer_keys'] })
    }
    const two = { ...base, issuerKeys: await jwks('public'), audiences: ['a', 'b'] }
    expectFailure(await refused({ name: 'static', staticKeys: two }), { code: 3, fields: ['static_keys.audiences'] })
  })

  // docs/spec/identities.md#aws-identities
  test('an AWS identity needs a 12 digit account, an arn and a user id', async () => {
    const aws = { awsAccount: '123456789012', arn: 'arn:aws:sts::123456789012:assumed-role/r/s', userIdPattern: '^AROA.*$' }
    expect((await create({ name: 'aws', awsIdentity: aws }))['awsIdentity']).toEqual(aws)
    expectFailure(await refused({ name: 'aws', awsIdentity: { ...aws, awsAccount: '12' } }), { code: 3, fields: ['aws_identity.aws_account'] })
    const none = await refused({ name: 'aws', awsIdentity: { awsAccount: '123456789012' } })
    expectFailure(none, { code: 3, fields: [/^aws_identity\.(aws_)?arn/, /^aws_identity\.(aws_)?user_id/] })
  })

  // docs/spec/identities.md#relationships
  test('an update may change the kind of relationship; the old one is removed', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await identityUnder(spec, group, token)
    const staticKeys = { issuer: 'https://no-discovery.example', subject: 's', issuerKeys: await jwks('public') }
    const changed = await spec.ok('UpdateIdentity', { identity: { uid: uidOf(made), staticKeys } }, { token })
    expect(changed).toMatchObject({ name: made['name'], staticKeys })
    expect(changed).not.toHaveProperty('claimMatch')
  })

  // docs/spec/identities.md#relationships
  test('an update can not remove the relationship or the name of an identity', async () => {
    const { group, token } = await makeOrganisation(spec.server)
    const made = await identityUnder(spec, group, token)
    const reply = await spec.call('UpdateIdentity', { identity: { uid: uidOf(made) }, updateMask: '*' }, { token })
    expectFailure(reply, { code: 3, fields: ['name', 'claim_match'] })
    expect(await spec.ok('GetIdentity', { uid: uidOf(made) }, { token })).toEqual(made)
  })

  // docs/spec/identities.md#identity-lookup
  test('lookupIdentity gives any signed-in caller the uid for an issuer and subject, even before registration', async () => {
    const { group } = await makeOrganisation(spec.server)
    const { token } = await makeMember(spec.server, group)
    const issuer = 'https://issuer.example'
    const uid = createHash('sha256').update(`${issuer}\0build-bot`).digest('hex').slice(0, 40)
    expect(await spec.ok('LookupIdentity', { issuer, subject: 'build-bot' }, { token })).toEqual({ uid })
    const bare = await spec.ok('LookupIdentity', { issuer: 'accounts.google.com', subject: 's' }, { token })
    expect(bare).toEqual(await spec.ok('LookupIdentity', { issuer: 'https://accounts.google.com', subject: 's' }, { token }))
    expectFailure(await spec.call('LookupIdentity', {}, { token }), { code: 3, fields: ['issuer', 'subject'] })
    expectFailure(await spec.call('LookupIdentity', { issuer, subject: 's' }), { code: 16 })
  })

  // docs/spec/identities.md#last-seen-time
  test('lastSeenTime is written at most hourly and changes neither etag nor updateTime', async () => {
    const { group, owner } = await makeOrganisation(spec.server)
    const subject = freshName('subject')
    const identity = { name: 'seen', claimMatch: { issuer: spec.server.devIssuer.issuer, subject } }
    const token = (): Promise<string> => spec.server.tokenFor(owner)
    const made = await spec.ok('CreateIdentity', { parent: group, identity }, { token: await token() })
    const uid = uidOf(made)
    const signIn = async (): Promise<JsonObject> => {
      const audience = spec.server.config.baseUrl
      const upstream = await spec.server.devIssuer.mintDevToken({ subject, audience })
      const answer = await spec.ok('Exchange', { identity: uid, aud: [audience] }, { token: upstream })
      expect(answer['token']).toMatch(/^ey/)
      return spec.ok('GetIdentity', { uid }, { token: await token() })
    }
    expect(await signIn()).toEqual(made)
    spec.clock.advance(59 * 60_000)
    expect(await signIn()).toEqual(made)
    spec.clock.advance(2 * 60_000)
    const seen = await signIn()
    expect(Date.parse(String(seen['lastSeenTime'])) - Date.parse(String(made['lastSeenTime']))).toBeGreaterThanOrEqual(61 * 60_000)
    expect(seen).toEqual({ ...made, lastSeenTime: seen['lastSeenTime'] })
  })

  spec.only('rest', () => {
    // docs/spec/identities.md#claim-matching
    test('the exact form and the pattern of one claim together are code 3', async () => {
      const both = await refused({ name: 'both', claimMatch: { issuer: 'https://issuer.example', issuerPattern: '.*', subject: 's' } })
      expectFailure(both, { code: 3 })
      expect(fieldViolations(both)[0]?.field).toMatch(spec.transport === 'rest' ? /^claimMatch\.issuerPattern$/ : /^claim_match\.issuer_pattern$/)
    })

    // docs/spec/identities.md#relationships
    test('two kinds of relationship together are code 3', async () => {
      const awsIdentity = { awsAccount: '123456789012', arn: 'arn', userId: 'id' }
      expectFailure(await refused({ name: 'both', claimMatch: claimMatch(), awsIdentity }), { code: 3 })
    })
  })
})

test('in production a claim match needs an https issuer, unless the configuration allows a private one', async () => {
  const allowed = 'http://issuer.internal'
  const server = await startTestServer({
    store: 'sqlite',
    production: true,
    env: { TAPROOT_ISSUERS: JSON.stringify([{ issuer: allowed, allowPrivate: true }]) },
  })
  try {
    const { group, token } = await makeOrganisation(server)
    const create = async (issuer: string): Promise<Reply> =>
      server.rest.call('CreateIdentity', { parent: group, identity: { name: 'matched', claimMatch: { issuer, subject: 's' } } }, { token })
    for (const issuer of ['https://issuer.example', allowed]) expect(ok(await create(issuer))).toMatchObject({ claimMatch: { issuer } })
    const plain = await create('http://issuer.example')
    expectFailure(plain, { code: 3, fields: ['claim_match.issuer'] })
    expect(plain.message).toBe('Invalid argument: claimMatch.issuer: must be an https URL')
  } finally {
    await server.stop()
  }
})
