import { create, getOption, hasOption, ScalarType, type DescField, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf'
import type { GenMessage } from '@bufbuild/protobuf/codegenv2'
import type { Message } from '@bufbuild/protobuf'
import { createValidator } from '@bufbuild/protovalidate'
import { describe, expect, it } from 'vitest'
import { capabilityByName } from '../../src/base/capability.ts'
import { fileDescriptors, methods, registry, resources } from '../../src/base/schema/schema.ts'
import { field_behavior, FieldBehavior } from '../../src/gen/google/api/field_behavior_pb.ts'
import { resource as resourceOption } from '../../src/gen/taproot/api/v1/annotations_pb.ts'
import { AccountAssociationSchema } from '../../src/gen/taproot/iam/v2/account_associations_pb.ts'
import { GroupInviteSchema } from '../../src/gen/taproot/iam/v2/group_invites_pb.ts'
import { GroupSchema } from '../../src/gen/taproot/iam/v2/groups_pb.ts'
import { IdentitySchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { BatchCreateRoleBindingsRequestSchema, RoleBindingSchema } from '../../src/gen/taproot/iam/v2/role_bindings_pb.ts'
import { RoleSchema } from '../../src/gen/taproot/iam/v2/roles_pb.ts'
import { ListReposRequestSchema, RepoSchema } from '../../src/gen/taproot/registry/v2/repos_pb.ts'
import { TagSchema } from '../../src/gen/taproot/registry/v2/tags_pb.ts'

const messages = [...registry].filter((entry) => entry.kind === 'message').filter(({ typeName }) => /^taproot\.\w+\.v\d+\./.test(typeName))
const fieldNames = (message: DescMessage): string[] => message.fields.map(({ name }) => name)

function typeOf(field: DescField): string {
  const scalar = (type: ScalarType): string => (ScalarType[type] ?? '').toLowerCase()
  const value = field.message?.typeName ?? field.enum?.typeName ?? (field.scalar === undefined ? '' : scalar(field.scalar))
  if (field.fieldKind === 'map') return `map<${scalar(field.mapKey)}, ${value}>`
  return field.fieldKind === 'list' ? `repeated ${value}` : value
}

/** Returns one line for each fact of the wire format that clients depend on. */
function wireFacts(): string {
  const fields = messages.flatMap((message) =>
    message.fields.map((field) => `${message.typeName} ${field.number} ${field.name}: ${typeOf(field)}${field.oneof ? ` oneof ${field.oneof.name}` : ''}`),
  )
  const routes = methods.flatMap((row) => row.http.map((http) => `${row.service}/${row.rpc} ${http.verb} ${http.template} ${http.body}`.trimEnd()))
  const values = [...registry]
    .filter((entry) => entry.kind === 'enum')
    .filter(({ typeName }) => typeName.startsWith('taproot.'))
    .flatMap((entry) => entry.values.map((value) => `${entry.typeName} ${value.number} ${value.name}`))
  return [...routes, ...fields, ...values].join('\n') + '\n'
}

describe('the wire contract', () => {
  it('the wire contract keeps each number, name, type and route of clients, or the golden file changes too', async () => {
    await expect(wireFacts()).toMatchFileSnapshot('wire.golden.txt')
  })

  it('the wire contract reserves the numbers of retired capabilities and service principals', () => {
    const reserved = (name: string): number[] => (registry.getEnum(name)?.proto.reservedRange ?? []).flatMap(({ start, end }) => [start, end])
    expect(reserved('taproot.common.v2.Capability')).toEqual([1, 1, 1601, 1601, 1602, 1602, 1873, 1873])
    expect(reserved('taproot.iam.v2.ServicePrincipal')).toEqual([1, 13])
  })

  it('the wire contract lists each descriptor once, after its dependencies', () => {
    const names = fileDescriptors.map(({ name }) => name)
    expect(new Set(names).size).toBe(names.length)
    for (const file of fileDescriptors) for (const dependency of file.dependency) expect(names.indexOf(dependency)).toBeLessThan(names.indexOf(file.name))
  })
})

describe('API methods', () => {
  it.each(methods.map((row) => [`${row.service}/${row.rpc}`, row] as const))('%s has routes whose variables are fields of the request', (_name, row) => {
    for (const { template } of row.http) {
      for (const [, path = ''] of template.matchAll(/\{([\w.]+)/g)) {
        let message: DescMessage | undefined = row.input
        for (const step of path.split('.')) {
          const field: DescField | undefined = message?.fields.find(({ name }) => name === step)
          expect(field, `${template}: ${step}`).toBeDefined()
          message = field?.message
        }
      }
    }
  })

  it('API methods have known capabilities, and a scope field if scoped', () => {
    for (const row of methods) {
      for (const name of row.capabilities) expect(capabilityByName(name)?.internal, name).toBe(false)
      if (row.scope === 'scoped') expect(row.scopePath.length, row.rpc).toBeGreaterThan(0)
      else expect(row.scopePath, row.rpc).toEqual([])
    }
  })

  it('API methods that list have the paging fields in request and answer', () => {
    for (const row of methods.filter(({ verb }) => verb === 'list')) {
      const plural = resources.get(row.kind ?? '')?.plural ?? ''
      expect(fieldNames(row.input), row.rpc).toEqual(expect.arrayContaining(['page_size', 'page_token', 'order_by', 'skip']))
      expect(fieldNames(row.output), row.rpc).toEqual([plural, 'next_page_token', 'total_count', 'skipped'])
    }
  })

  it('API methods that create or update take and return the resource', () => {
    for (const row of methods.filter(({ verb }) => verb === 'create' || verb === 'update')) {
      expect(row.output.name, row.rpc).toBe(row.kind)
      expect(row.input.fields.find(({ name }) => name === row.http[0]?.body)?.message, row.rpc).toBe(row.output)
    }
  })

  it('API methods emit an event for every change to a resource and none for a read', () => {
    for (const row of methods.filter(({ kind, rpc }) => kind !== undefined && rpc !== 'RequestGroupAccess'))
      expect(row.event !== undefined, row.rpc).toBe(row.mutation)
  })

  it.each([
    ['CreateGroup', { scope: 'unscoped', verb: 'create', capabilities: ['groups.create'], scopePath: [] }],
    ['UpdateGroup', { scope: 'scoped', verb: 'update', scopePath: ['group', 'uid'], event: { type: 'iam.group.updated.v1', group: 'self', internal: false } }],
    ['CheckAccountAssociation', { verb: 'custom', mutation: false, event: undefined }],
    ['CreateTag', { verb: 'create', event: { type: 'platform.registry.tag.created.v1', group: 'root', internal: false } }],
    ['GetRepoReadme', { verb: 'get', kind: 'RepoReadme', capabilities: ['repo.list'] }],
    ['ListDocuments', { verb: 'custom', scope: 'public', kind: undefined }],
  ])('API methods have the annotations of the schema: %s', (rpc, expected) => {
    expect(methods.find((row) => row.rpc === rpc && !row.service.includes('.registry.v1.'))).toMatchObject(expected)
  })

  it('API methods exchange tokens by GET and by POST', () => {
    const row = methods.find(({ rpc }) => rpc === 'Exchange')
    expect(row).toMatchObject({
      scope: 'external',
      http: [
        { verb: 'GET', template: '/sts/exchange', body: '' },
        { verb: 'POST', template: '/sts/exchange', body: '' },
      ],
    })
  })
})

describe('API resources', () => {
  it('API resources are exactly the messages marked as resources', () => {
    expect([...resources.keys()].sort()).toEqual(
      messages
        .filter((message) => hasOption(message, resourceOption))
        .map(({ name }) => name)
        .sort(),
    )
  })

  it.each([...resources.values()].filter((row) => !row.embedded && (!row.catalogue || row.kind === 'Advisory')).map((row) => [row.kind, row] as const))(
    '%s has uid, etag, create and update time, and a parent',
    (_kind, { desc }) => {
      const numbers = new Map(desc.fields.map(({ name, number }) => [name, number]))
      expect(numbers.get('uid')).toBe(1)
      expect(numbers.get('etag')).toBe(1000)
      expect(numbers.get('managed_by')).toBe(1003)
      expect(numbers.get('create_time')).toSatisfy((number) => number === 1001 || number < 1000)
      expect(numbers.get('update_time')).toSatisfy((number) => number === 1002 || number < 1000)
      for (const field of desc.fields.filter(({ name }) => ['uid', 'create_time', 'update_time', 'managed_by'].includes(name))) {
        expect(getOption(field, field_behavior), field.name).toContain(FieldBehavior.OUTPUT_ONLY)
      }
    },
  )

  it('API resources can be sorted by every spelling of a sort key', () => {
    const fields = resources.get('Group')?.sortFields
    for (const spelling of ['created_at', 'createdAt', 'create_time', 'createTime']) expect(fields?.get(spelling)).toBe('create_time')
    expect(resources.get('AccountAssociation')?.sortFields.get('group')).toBe('uid')
    expect(resources.get('GroupInvite')?.defaultOrder).toBe('created_at desc')
  })
})

/** Paths and rules of the violations, e.g. `name string.pattern`. */
function violations<T extends Message>(schema: GenMessage<T>, init: MessageInitShape<GenMessage<T>>): string[] {
  const result = createValidator().validate(schema, create(schema, init))
  if (result.kind === 'error') throw result.error
  return result.kind === 'valid' ? [] : result.violations.map((violation) => violation.toString().replace(/^(.*?):.*\[(.*)\]$/, '$1 $2'))
}

const uid = `${'a'.repeat(40)}/${'b'.repeat(16)}`

describe('field constraints', () => {
  it('field constraints are prepared for every request', () => {
    const validator = createValidator({ registry })
    for (const { input, rpc } of methods) expect(validator.validate(input, create(input)).kind, rpc).not.toBe('error')
  })

  it('field constraints leave an empty name to the check of required fields', () => {
    expect(violations(GroupSchema, {})).toEqual([])
    expect(violations(IdentitySchema, {})).toEqual(['relationship required'])
  })

  it.each([
    ['a', []],
    ['qa', []],
    ['a/b', ['name string.pattern']],
    ['a'.repeat(63), []],
    ['a'.repeat(64), ['name string.pattern']],
    ['Upper', ['name string.pattern']],
  ])('group name %j', (name, expected) => {
    expect(violations(GroupSchema, { name })).toEqual(expected)
  })

  it('field constraints require issuer and subject of a claim match', () => {
    const match = (value: object): string[] => violations(IdentitySchema, { name: 'ci', relationship: { case: 'claimMatch', value } })
    expect(match({})).toEqual(['claim_match.iss required', 'claim_match.sub required'])
    expect(match({ iss: { case: 'issuer', value: 'https://a.example' }, sub: { case: 'subjectPattern', value: '.*' } })).toEqual([])
    expect(match({ iss: { case: 'issuer', value: '' }, sub: { case: 'subject', value: 's' } })).toEqual(['claim_match.issuer string.min_len'])
  })

  it('field constraints do not know service principals', () => {
    // Any number that a client may send.
    expect(violations(IdentitySchema, { name: 'x', relationship: { case: 'servicePrincipal', value: 3 as 0 } })).toEqual([
      'service_principal enum.defined_only',
    ])
  })

  it('field constraints check uids, e-mail address and lifetime of an invite', () => {
    expect(violations(GroupInviteSchema, { roleUid: 'x', email: 'unknown', ttl: { seconds: 31_536_001n } })).toEqual([
      'role_uid string.pattern',
      'email string.email',
      'ttl duration.gt_lte',
    ])
    expect(violations(GroupInviteSchema, { roleUid: uid, ttl: { seconds: 31_536_000n } })).toEqual([])
  })

  it('field constraints require a provider block in an account association', () => {
    expect(violations(AccountAssociationSchema, { name: 'x' })).toHaveLength(1)
    expect(violations(AccountAssociationSchema, { name: 'x', amazon: { account: '12345' } })).toEqual(['amazon.account string.pattern'])
    expect(violations(AccountAssociationSchema, { name: 'x', amazon: { account: '123456789012' } })).toEqual([])
  })

  it('field constraints allow at most 25 bindings in a batch', () => {
    const batch = (count: number): string[] =>
      violations(BatchCreateRoleBindingsRequestSchema, { requests: Array.from({ length: count }, () => ({ roleBinding: { identityUid: uid, roleUid: uid } })) })
    expect(batch(25)).toEqual([])
    expect(batch(26)).toEqual(['requests repeated.max_items'])
    expect(violations(RoleBindingSchema, { identityUid: 'me' })).toEqual(['identity_uid string.pattern'])
  })

  it('field constraints require known capabilities in a role', () => {
    expect(violations(RoleSchema, { name: 'r', capabilities: [] })).toEqual(['capabilities repeated.min_items'])
    expect(violations(RoleSchema, { name: 'r', capabilities: [103, 0] })).toEqual(['capabilities[1] enum.not_in'])
  })

  it('field constraints check every field of a repo', () => {
    const init = { name: 'a/b', description: 'two\nlines', bundles: ['base', 'best'], aliases: ['no-tag'], customOverlay: { environment: { TAPROOT_X: '1' } } }
    expect(violations(RepoSchema, init)).toEqual([
      'name string.pattern',
      'description string.pattern',
      'bundles[1] string.in',
      'aliases[0] string.pattern',
      'custom_overlay.environment["TAPROOT_X"] environment.reserved',
    ])
    expect(violations(RepoSchema, { name: 'nginx 1.0', description: 'é'.repeat(512), aliases: ['library/nginx:latest'] })).toEqual([])
  })

  it('field constraints check name and digest of a tag', () => {
    expect(violations(TagSchema, { name: '-x', digest: 'sha256:00' })).toEqual(['name string.pattern', 'digest string.pattern'])
    expect(violations(TagSchema, { name: 'v1.0', digest: `sha256:${'0'.repeat(64)}` })).toEqual([])
  })

  it('field constraints refuse negative page sizes and offsets', () => {
    expect(violations(ListReposRequestSchema, { pageSize: -1, skip: -1 })).toEqual(['page_size int32.gte', 'skip int32.gte'])
  })
})
