import { schemaOf, schemasIn, placeName } from './definitions.ts'
import { childUid, fullSpecs, rootUid } from './full-objects.ts'

type Spec = Readonly<Record<string, unknown>>

/** Accepted and refused objects of a CEL rule. */
export interface RuleCase {
  readonly kind: string
  /** `spec.claimMatch`; empty for the object itself. */
  readonly at: string
  /** The rule's message. */
  readonly rule: string
  readonly accepted: readonly RuleInput[]
  readonly refused: readonly RuleInput[]
}

/** An object to send: created, or as a replacement of `before`. */
export interface RuleInput {
  /** metadata.name */
  readonly name?: string
  readonly before?: Spec
  readonly spec: Spec
}

const first = (kind: string): Spec => fullSpecs[kind]?.[0] ?? {}
const withFields = (kind: string, fields: Spec): RuleInput => ({ spec: { ...first(kind), ...fields } })

/** Cases of a reference: it names its record in exactly one way, and never changes. */
function referenceCases(kind: string, field: string, ways: Spec): readonly RuleCase[] {
  const at = `spec.${field}`
  const given = Object.entries(ways).map(([way, value]) => ({ [way]: value }))
  const [one = {}, other = {}] = given
  const sent = (reference: unknown): RuleInput => withFields(kind, { [field]: reference })
  const change = (from: unknown, to: unknown): RuleInput => ({ before: sent(from).spec, ...sent(to) })
  return [
    {
      kind,
      at,
      rule: `exactly one of ${Object.keys(ways).join(', ')}`,
      accepted: given.map(sent),
      refused: [sent({}), sent({ ...one, ...other }), sent(ways)],
    },
    { kind, at, rule: `${field} never changes`, accepted: [change(one, one)], refused: [change(one, other), change({ name: 'web' }, { name: 'other' })] },
  ]
}

/** The case in which the object's own name replaces the record's name. */
function nameCase(kind: string, bad: string): RuleCase {
  const { name: _, ...spec } = first(kind)
  const rule = 'metadata.name is not a valid name for the record: set spec.name'
  return {
    kind,
    at: '',
    rule,
    accepted: [
      { name: 'a-good-name', spec },
      { name: bad, spec: { ...spec, name: 'a good name' } },
    ],
    refused: [{ name: bad, spec }],
  }
}

const claimMatch = { issuer: 'https://idp.example', subject: 'ann' }
const match = (fields: Spec): RuleInput => withFields('PlatformIdentity', { claimMatch: fields })

/** Cases of exactly one, or at most one, of two members of a message. */
function pairCase(at: string, [one, other]: readonly [string, string], { others, optional = false }: { others: Spec; optional?: boolean }): RuleCase {
  const kind = 'PlatformIdentity'
  const { claimMatch: _, ...spec } = first(kind)
  const sent = (fields: Spec): RuleInput => ({ spec: { ...spec, [at]: { ...others, ...fields } } })
  const none = sent({})
  const either = [sent({ [one]: 'x' }), sent({ [other]: 'x' })]
  const rule = `${optional ? 'at most' : 'exactly'} one of ${one}, ${other}`
  return {
    kind,
    at: `spec.${at}`,
    rule,
    accepted: optional ? [...either, none] : either,
    refused: [sent({ [one]: 'x', [other]: 'x' }), ...(optional ? [] : [none])],
  }
}

/** Cases of a field with a pattern. */
function patternCase(at: string, field: string, others: Spec): RuleCase {
  const kind = 'PlatformIdentity'
  const { claimMatch: _, ...spec } = first(kind)
  const sent = (pattern: unknown): RuleInput => ({ spec: { ...spec, [at]: { ...others, [field]: pattern } } })
  const inMap = field === 'claimPatterns'
  const form = (pattern: string): unknown => (inMap ? { ref: 'x', other: pattern } : pattern)
  const rule = 'a regular expression in RE2 syntax'
  const accepted = ['a+', '^(a|b){1,10}$', '[\\pL]*'].map((pattern) => sent(form(pattern)))
  return { kind, at: `spec.${at}.${field}`, rule, accepted, refused: ['a(', '(?=a)', '(a)\\1', '['].map((pattern) => sent(form(pattern))) }
}

/** Cases of the keys of a map. */
function keyCases(kind: string, at: string, sent: (map: Spec) => RuleInput): readonly RuleCase[] {
  const case_ = (rule: string, good: string, bad: string): RuleCase => ({
    kind,
    at,
    rule,
    accepted: [sent({ [good]: 'x' })],
    refused: [sent({ [bad]: 'x' }), sent({ a: 'x', [bad]: 'x' })],
  })
  return [case_('keys have at least 1 character', 'a', ''), case_('keys have at most 255 characters', 'é'.repeat(255), 'a'.repeat(256))]
}

const overlay = (fields: Spec): RuleInput => withFields('PlatformRepo', { customOverlay: fields })
const { claimMatch: __, ...account } = first('PlatformIdentity')
const keys = { issuer: 'https://idp.example', subject: 'ann' }
const ways = {
  claimMatch,
  staticKeys: { ...keys, issuerKeys: '{}' },
  awsIdentity: { awsAccount: '123456789012', arn: 'a', userId: 'u' },
  serviceAccountRef: { name: 'ci' },
}
const aws = { awsAccount: '123456789012' }
const certificate = (content: string): RuleInput => overlay({ certificates: { additional: [{ name: 'ca', content }] } })
const namedGroup = { name: 'web', uid: rootUid }

const sinkCase = (rule: string, accepted: readonly string[], refused: readonly string[]): RuleCase => {
  const sent = (sink: string): RuleInput => withFields('PlatformSubscription', { sink })
  return { kind: 'PlatformSubscription', at: 'spec.sink', rule, accepted: accepted.map(sent), refused: refused.map(sent) }
}

/** Every rule of crds/, with accepted and refused objects. */
export const ruleCases: readonly RuleCase[] = [
  ...['PlatformGroup', 'PlatformIdentity', 'PlatformRole', 'PlatformRoleBinding', 'PlatformRepo', 'PlatformSubscription'].flatMap((kind) =>
    referenceCases(kind, 'parentRef', namedGroup),
  ),
  ...referenceCases('PlatformRoleBinding', 'identityRef', { name: 'web', uid: childUid }),
  ...referenceCases('PlatformRoleBinding', 'roleRef', { name: 'web', uid: childUid, builtIn: 'viewer' }),
  {
    kind: 'PlatformGroup',
    at: 'spec',
    rule: 'parentRef never changes',
    accepted: [
      { before: {}, spec: { description: 'a root stays one' } },
      { before: { parentRef: { name: 'web' } }, spec: { parentRef: { name: 'web' }, description: 'new' } },
    ],
    refused: [
      { before: {}, spec: { parentRef: { name: 'web' } } },
      { before: { parentRef: { name: 'web' } }, spec: {} },
    ],
  },
  nameCase('PlatformGroup', 'a'.repeat(64)),
  {
    kind: 'PlatformIdentity',
    at: 'spec',
    rule: 'exactly one of claimMatch, staticKeys, awsIdentity, serviceAccountRef',
    accepted: Object.entries(ways).map(([way, value]) => ({ spec: { ...account, [way]: value } })),
    refused: [
      { spec: account },
      ...Object.entries(ways).map(([way, value]) => ({
        spec: { ...account, [way]: value, ...(way === 'claimMatch' ? { serviceAccountRef: ways.serviceAccountRef } : { claimMatch }) },
      })),
    ],
  },
  pairCase('claimMatch', ['issuer', 'issuerPattern'], { others: { subject: 'ann' } }),
  pairCase('claimMatch', ['subject', 'subjectPattern'], { others: { issuer: 'https://idp.example' } }),
  pairCase('claimMatch', ['audience', 'audiencePattern'], { others: claimMatch, optional: true }),
  pairCase('awsIdentity', ['arn', 'arnPattern'], { others: { ...aws, userId: 'u' } }),
  pairCase('awsIdentity', ['userId', 'userIdPattern'], { others: { ...aws, arn: 'a' } }),
  patternCase('claimMatch', 'issuerPattern', { subject: 'ann' }),
  patternCase('claimMatch', 'subjectPattern', { issuer: 'https://idp.example' }),
  patternCase('claimMatch', 'audiencePattern', claimMatch),
  patternCase('claimMatch', 'claimPatterns', claimMatch),
  patternCase('awsIdentity', 'arnPattern', { ...aws, userId: 'u' }),
  patternCase('awsIdentity', 'userIdPattern', { ...aws, arn: 'a' }),
  ...keyCases('PlatformIdentity', 'spec.claimMatch.claims', (claims) => match({ ...claimMatch, claims })),
  ...keyCases('PlatformIdentity', 'spec.claimMatch.claimPatterns', (claimPatterns) => match({ ...claimMatch, claimPatterns })),
  {
    kind: 'PlatformIdentity',
    at: 'spec.staticKeys.issuerKeys',
    rule: 'at most 65536 bytes',
    accepted: ['a'.repeat(65_536), 'é'.repeat(32_768)].map((issuerKeys) => ({ spec: { ...account, staticKeys: { ...keys, issuerKeys } } })),
    refused: ['é'.repeat(32_769), '😀'.repeat(16_385)].map((issuerKeys) => ({ spec: { ...account, staticKeys: { ...keys, issuerKeys } } })),
  },
  ...keyCases('PlatformRepo', 'spec.customOverlay.environment', (environment) => overlay({ environment })),
  ...keyCases('PlatformRepo', 'spec.customOverlay.annotations', (annotations) => overlay({ annotations })),
  {
    kind: 'PlatformRepo',
    at: 'spec.customOverlay.environment',
    rule: 'keys must not start with TAPROOT_',
    accepted: [overlay({ environment: { MY_TAPROOT_: 'x', TAPROOT: 'x' } })],
    refused: [overlay({ environment: { PATH: '/bin', TAPROOT_X: 'x' } })],
  },
  {
    kind: 'PlatformRepo',
    at: 'spec.customOverlay.annotations',
    rule: 'keys must not start with dev.taproot. or org.opencontainers.',
    accepted: [overlay({ annotations: { 'com.example.team': 'x' } })],
    refused: [overlay({ annotations: { 'dev.taproot.x': 'x' } }), overlay({ annotations: { 'org.opencontainers.image.title': 'x' } })],
  },
  {
    kind: 'PlatformRepo',
    at: 'spec.customOverlay.certificates.additional[].content',
    rule: 'at most 51200 bytes',
    accepted: [certificate('a'.repeat(51_200)), certificate('é'.repeat(25_600))],
    refused: [certificate('é'.repeat(25_601))],
  },
  sinkCase(
    'must be an https URL, such as https://hooks.example/taproot',
    ['https://hooks.example', 'https://hooks.example:8443/a@b?c=d', 'https://[2001:db8::1]/x'],
    ['http://hooks.example', 'hooks.example', 'https:///x', 'https://hooks.example/a b', 'https://hooks.example/\n'],
  ),
  sinkCase('must not contain a user or a password', ['https://hooks.example/@'], ['https://me@hooks.example', 'https://me:secret@hooks.example/x']),
  sinkCase('must not contain a fragment', ['https://hooks.example/%23'], ['https://hooks.example/#', 'https://hooks.example#x']),
  {
    kind: 'PlatformSubscription',
    at: 'spec',
    rule: 'secretName needs signing: STANDARD_WEBHOOKS',
    accepted: [withFields('PlatformSubscription', { secretName: 'hook' })],
    refused: [undefined, 'SIGNING_UNSPECIFIED'].map((signing) => withFields('PlatformSubscription', { secretName: 'hook', signing })),
  },
  {
    kind: 'PlatformNamespaceGrant',
    at: 'spec.maxRole',
    rule: 'exactly one of uid, builtIn',
    accepted: [{ uid: childUid }, { builtIn: 'owner' }].map((maxRole) => withFields('PlatformNamespaceGrant', { maxRole })),
    refused: [{}, { uid: childUid, builtIn: 'owner' }].map((maxRole) => withFields('PlatformNamespaceGrant', { maxRole })),
  },
]

/** Returns `PlatformIdentity spec.claimMatch: exactly one of issuer, issuerPattern` for each rule of a kind's schema. */
export function ruleNames(kind: string): readonly string[] {
  return [...schemasIn(schemaOf(kind))].flatMap(([place, schema]) =>
    (schema['x-kubernetes-validations'] ?? []).map(({ message }) => `${kind} ${placeName(place)}: ${message}`),
  )
}
