import type { JsonObject } from '@bufbuild/protobuf'
import { freshName } from '../../../support/test-server.ts'
import { inCreate, inUpdate, long, pairs, type BadField } from '../bad-fields.ts'
import type { BadInput, MethodCase } from './method-case.ts'
import { made, type World } from '../world.ts'

const issuer = 'https://issuer.example'
const claimMatch = { issuer, subject: 'foreign-name' }
const tooLong = long(2049)

/** Returns a bad input with a changed claim match. Undefined members are left out. */
function match(what: string, breaks: readonly string[], claims: JsonObject, fields?: readonly string[]): BadField {
  return { what, breaks: breaks.map((one) => `claim_match.${one}`), set: { claimMatch: claims }, ...(fields === undefined ? {} : { fields }) }
}

const badClaimMatch: readonly BadField[] = [
  match('neither issuer nor pattern', ['iss:oneof.required'], { subject: 'foreign-name' }),
  match('neither subject nor pattern', ['sub:oneof.required'], { issuer }),
  match('an empty issuer', ['issuer:string.min_len'], { issuer: '', subject: 'foreign-name' }),
  match('an issuer that is too long', ['issuer:string.max_len'], { issuer: tooLong, subject: 'foreign-name' }),
  match('an empty issuer pattern', ['issuer_pattern:string.min_len'], { issuerPattern: '', subject: 'foreign-name' }),
  match('an issuer pattern that is too long', ['issuer_pattern:string.max_len'], { issuerPattern: tooLong, subject: 'foreign-name' }),
  match('an empty subject', ['subject:string.min_len'], { issuer, subject: '' }),
  match('a subject that is too long', ['subject:string.max_len'], { issuer, subject: tooLong }),
  match('an empty subject pattern', ['subject_pattern:string.min_len'], { issuer, subjectPattern: '' }),
  match('a subject pattern that is too long', ['subject_pattern:string.max_len'], { issuer, subjectPattern: tooLong }),
  match('an empty audience', ['audience:string.min_len'], { ...claimMatch, audience: '' }),
  match('an audience that is too long', ['audience:string.max_len'], { ...claimMatch, audience: tooLong }),
  match('an empty audience pattern', ['audience_pattern:string.min_len'], { ...claimMatch, audiencePattern: '' }),
  match('an audience pattern that is too long', ['audience_pattern:string.max_len'], { ...claimMatch, audiencePattern: tooLong }),
  match('more than 50 claims', ['claims:map.max_pairs'], { ...claimMatch, claims: pairs(51) }),
  match('a claim without a name', ['claims{key}:string.min_len'], { ...claimMatch, claims: { '': 'x' } }),
  match('a claim whose name is too long', ['claims{key}:string.max_len'], { ...claimMatch, claims: { [long(256)]: 'x' } }),
  match('a claim that is too long', ['claims{value}:string.max_len'], { ...claimMatch, claims: { claim: tooLong } }),
  match('more than 50 claim patterns', ['claim_patterns:map.max_pairs'], { ...claimMatch, claimPatterns: pairs(51) }),
  match('a claim pattern without a name', ['claim_patterns{key}:string.min_len'], { ...claimMatch, claimPatterns: { '': 'x' } }),
  match('a claim pattern whose name is too long', ['claim_patterns{key}:string.max_len'], { ...claimMatch, claimPatterns: { [long(256)]: 'x' } }),
  match('an empty claim pattern', ['claim_patterns{value}:string.min_len'], { ...claimMatch, claimPatterns: { claim: '' } }),
  match('a claim pattern that is too long', ['claim_patterns{value}:string.max_len'], { ...claimMatch, claimPatterns: { claim: tooLong } }),
  match('an issuer pattern that does not compile', [], { issuerPattern: '(', subject: 'foreign-name' }, ['claim_match.issuer_pattern']),
  match('a subject pattern that does not compile', [], { issuer, subjectPattern: '[' }, ['claim_match.subject_pattern']),
  match('an audience pattern that does not compile', [], { ...claimMatch, audiencePattern: '*' }, ['claim_match.audience_pattern']),
  match('a claim pattern that does not compile', [], { ...claimMatch, claimPatterns: { claim: '(?=x)' } }, ['claim_match.claim_patterns']),
  match('an issuer pattern that matches everything', [], { issuerPattern: '.*', subject: 'foreign-name' }, ['claim_match.issuer_pattern']),
  { ...match('both forms of the issuer', [], { ...claimMatch, issuerPattern: 'x' }), only: 'rest', fields: ['claim_match.issuer_pattern'] },
  { ...match('both forms of the subject', [], { ...claimMatch, subjectPattern: 'x' }), only: 'rest', fields: ['claim_match.subject_pattern'] },
  { ...match('a number for the issuer', [], { ...claimMatch, issuer: 5 }), only: 'rest', fields: ['claim_match.issuer'] },
  { ...match('a list for the claims', [], { ...claimMatch, claims: ['x'] }), only: 'rest', fields: ['claim_match.claims'] },
]

const keys = { issuer, subject: 'foreign-name', issuerKeys: '{"keys":[]}' }
/** An elliptic-curve key without any use; `d` makes it a private key. */
const publicKey = {
  kty: 'EC',
  crv: 'P-256',
  x: 'f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU',
  y: 'x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0',
  kid: 'one',
  alg: 'ES256',
}
const jwks = JSON.stringify({ keys: [publicKey] })
const privateJwks = JSON.stringify({ keys: [{ ...publicKey, d: 'jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI' }] })

function staticKeys(what: string, breaks: readonly string[], change: JsonObject, fields?: readonly string[]): BadField {
  const set = { staticKeys: { ...keys, ...change } }
  return { what, breaks: breaks.map((one) => `static_keys.${one}`), clear: ['claimMatch'], set, ...(fields === undefined ? {} : { fields }) }
}

const badStaticKeys: readonly BadField[] = [
  staticKeys('static keys without an issuer', ['issuer:required'], { issuer: '' }),
  staticKeys('a static issuer that is too long', ['issuer:string.max_len'], { issuer: tooLong }),
  staticKeys('static keys without a subject', ['subject:required'], { subject: '' }),
  staticKeys('a static subject that is too long', ['subject:string.max_len'], { subject: tooLong }),
  staticKeys('static keys without keys', ['issuer_keys:required'], { issuerKeys: '' }),
  staticKeys('keys over 64 KiB', ['issuer_keys:string.max_bytes'], { issuerKeys: long(65_537) }),
  staticKeys('two audiences', ['audiences:repeated.max_items'], { audiences: ['one', 'two'] }),
  staticKeys('an empty static audience', ['audiences[]:string.min_len'], { audiences: [''] }),
  staticKeys('a static audience that is too long', ['audiences[]:string.max_len'], { audiences: [tooLong] }),
  staticKeys('keys that are no JSON', [], { issuerKeys: 'keys' }, ['static_keys.issuer_keys']),
  staticKeys('a private key', [], { issuerKeys: privateJwks }, ['static_keys.issuer_keys']),
  staticKeys('keys that live longer than 365 days', [], { issuerKeys: jwks, expirationTime: '2999-01-01T00:00:00.000Z' }, ['static_keys.expiration_time']),
  { ...staticKeys('an expiry that is no time', [], { issuerKeys: jwks, expirationTime: 'tomorrow' }, ['static_keys.expiration_time']), only: 'rest' },
]

const aws = { awsAccount: '123456789012', arn: 'arn:aws:sts::123456789012:assumed-role/x/y', userId: 'AROA:y' }

function awsIdentity(what: string, breaks: readonly string[], awsIdentityValue: JsonObject): BadField {
  return { what, breaks: breaks.map((one) => `aws_identity.${one}`), clear: ['claimMatch'], set: { awsIdentity: awsIdentityValue } }
}

const { awsAccount, arn, userId } = aws
const badAwsIdentity: readonly BadField[] = [
  awsIdentity('no AWS account', ['aws_account:required'], { arn, userId }),
  awsIdentity('an AWS account of 11 digits', ['aws_account:string.pattern'], { ...aws, awsAccount: '12345678901' }),
  awsIdentity('neither ARN nor pattern', ['aws_arn:oneof.required'], { awsAccount, userId }),
  awsIdentity('neither AWS user nor pattern', ['aws_user_id:oneof.required'], { awsAccount, arn }),
  awsIdentity('an empty ARN', ['arn:string.min_len'], { ...aws, arn: '' }),
  awsIdentity('an ARN that is too long', ['arn:string.max_len'], { ...aws, arn: tooLong }),
  awsIdentity('an empty ARN pattern', ['arn_pattern:string.min_len'], { awsAccount, userId, arnPattern: '' }),
  awsIdentity('an ARN pattern that is too long', ['arn_pattern:string.max_len'], { awsAccount, userId, arnPattern: tooLong }),
  awsIdentity('an empty AWS user', ['user_id:string.min_len'], { ...aws, userId: '' }),
  awsIdentity('an AWS user that is too long', ['user_id:string.max_len'], { ...aws, userId: tooLong }),
  awsIdentity('an empty AWS user pattern', ['user_id_pattern:string.min_len'], { awsAccount, arn, userIdPattern: '' }),
  awsIdentity('an AWS user pattern that is too long', ['user_id_pattern:string.max_len'], { awsAccount, arn, userIdPattern: tooLong }),
]

const badIdentity: readonly BadField[] = [
  { what: 'no name', breaks: ['name:required'], clear: ['name'] },
  { what: 'a name with capitals', breaks: ['name:string.pattern'], set: { name: 'Builder' } },
  { what: 'a name with a line break at its end', breaks: ['name:string.pattern'], set: { name: 'builder\n' } },
  { what: 'a name of 256 characters', breaks: ['name:string.max_len'], set: { name: long(256) } },
  { what: 'a description of 513 characters', breaks: ['description:string.max_len'], set: { description: long(513) } },
  { what: 'a company of 256 characters', breaks: ['company:string.max_len'], set: { company: long(256) } },
  { what: 'no relationship', breaks: ['relationship:oneof.required'], clear: ['claimMatch'] },
  { what: 'neither name nor relationship', clear: ['name', 'claimMatch'], fields: ['name', 'claim_match'] },
  { what: 'a service principal that is unknown', breaks: ['service_principal:enum.defined_only'], clear: ['claimMatch'], set: { servicePrincipal: 99 } },
  { what: 'the service principal 0', breaks: ['service_principal:enum.not_in'], clear: ['claimMatch'], set: { servicePrincipal: 0 } },
  { what: 'a number for a name', only: 'rest', set: { name: 1 }, fields: ['name'] },
  { what: 'a text for the claim match', only: 'rest', set: { claimMatch: 'anybody' }, fields: ['claim_match'] },
  { what: 'two relationships', only: 'rest', set: { claimMatch, staticKeys: { ...keys, issuerKeys: jwks } }, fields: ['static_keys'] },
  ...badClaimMatch,
  ...badStaticKeys,
  ...badAwsIdentity,
]

/** No identity may name this server's issuer (docs/spec/identities.md#relationships). */
function ownIssuer(make: (valid: JsonObject, own: JsonObject) => JsonObject): BadInput {
  return {
    what: 'the issuer of this platform',
    request: (valid, world) => make(valid, { issuer: world.server.config.baseUrl, subject: 'foreign-name' }),
    fields: ['claim_match.issuer'],
  }
}

function newIdentity(world: World): Promise<string> {
  return made(world, 'CreateIdentity', { parent: world.group, identity: { name: freshName('identity'), claimMatch } })
}

/** IdentitiesService. */
export const identityCases: Readonly<Record<string, MethodCase>> = {
  'IdentitiesService/GetIdentity': { request: async (world): Promise<JsonObject> => ({ uid: await newIdentity(world) }), badInputs: [] },
  'IdentitiesService/DeleteIdentity': { request: async (world) => ({ uid: await newIdentity(world) }), badInputs: [] },
  'IdentitiesService/ListIdentities': {
    request: (world) => ({ uidp: { descendantsOf: world.group }, orderBy: 'created_at desc', pageSize: 200 }),
    list: {
      item: (world, parent) => made(world, 'CreateIdentity', { parent, identity: { name: `of ${parent.slice(0, 40)}`, claimMatch } }),
      filters: (world) => [{ name: `of ${world.group}` }, { name: `of ${world.group}`, relationshipType: 'RELATIONSHIP_TYPE_CLAIM_MATCH' }],
    },
    badInputs: [
      { what: 'a name that is too long', breaks: ['name:string.max_len'], request: (valid) => ({ ...valid, name: long(256) }), fields: ['name'] },
      {
        what: 'a relationship type whose number is unknown',
        breaks: ['relationship_type:enum.defined_only'],
        request: (valid) => ({ ...valid, relationshipType: 99 }),
        fields: ['relationship_type'],
      },
      {
        what: 'a relationship type whose name is unknown',
        only: 'rest',
        request: (valid) => ({ ...valid, relationshipType: 'RELATIONSHIP_TYPE_FRIEND' }),
        fields: ['relationship_type'],
      },
    ],
  },
  'IdentitiesService/CreateIdentity': {
    request: (world) => ({ parent: world.group, identity: { name: freshName('made'), claimMatch } }),
    badInputs: [
      { what: 'no identity at all', breaks: ['identity:required'], request: ({ parent = '' }) => ({ parent }), fields: ['name', 'claim_match'] },
      ownIssuer(({ parent = '' }, own) => ({ parent, identity: { name: 'mine', claimMatch: own } })),
      ...inCreate('identity', badIdentity),
    ],
  },
  'IdentitiesService/UpdateIdentity': {
    request: async (world) => ({ identity: { uid: await newIdentity(world), description: 'changed' } }),
    badInputs: [
      ownIssuer(({ identity }, own) => ({ identity: { uid: (identity as JsonObject)['uid'] ?? '', claimMatch: own } })),
      ...inUpdate('identity', badIdentity),
    ],
  },
  'IdentitiesService/LookupIdentity': {
    request: () => claimMatch,
    badInputs: [
      { what: 'no issuer', breaks: ['issuer:required'], request: () => ({ subject: 'foreign-name' }), fields: ['issuer'] },
      {
        what: 'an issuer that is too long',
        breaks: ['issuer:string.max_len'],
        request: () => ({ issuer: tooLong, subject: 'foreign-name' }),
        fields: ['issuer'],
      },
      { what: 'no subject', breaks: ['subject:required'], request: () => ({ issuer }), fields: ['subject'] },
      { what: 'a subject that is too long', breaks: ['subject:string.max_len'], request: () => ({ issuer, subject: tooLong }), fields: ['subject'] },
      { what: 'nothing', request: () => ({}), fields: ['issuer', 'subject'] },
    ],
  },
}
