import { describe, expect, test } from 'vitest'
import { columnsOf } from '../../src/cli/client/columns.ts'
import { clientKinds, findKind } from '../../src/cli/client/kinds.ts'
import { UsageError } from '../../src/cli/exit-codes.ts'
import { methods } from '../../src/base/schema/schema.ts'
import { handlers } from '../../src/domains/handlers.ts'

describe('the kinds of taproot get', () => {
  test('the kinds of taproot get include every list that the API serves, each with unique names', () => {
    const listed = methods.filter((method) => method.verb === 'list' && handlers.has(method)).map(({ kind }) => kind)
    expect(clientKinds.map(({ kind }) => kind).toSorted()).toEqual([...listed, 'Delivery'].toSorted())
    const names = clientKinds.flatMap((kind) => kind.names)
    expect(new Set(names).size).toBe(names.length)
  })

  test.for([
    ['groups', 'Group'],
    ['Group', 'Group'],
    ['pg', 'Group'],
    ['roleBindings', 'RoleBinding'],
    ['role-binding', 'RoleBinding'],
    ['role_bindings', 'RoleBinding'],
    ['prb', 'RoleBinding'],
    ['pid', 'Identity'],
    ['prole', 'Role'],
    ['prepo', 'Repo'],
    ['ptag', 'Tag'],
    ['pidp', 'IdentityProvider'],
    ['pinv', 'GroupInvite'],
    ['psub', 'Subscription'],
    ['deliveries', 'Delivery'],
    ['advisories', 'Advisory'],
    ['padv', 'Advisory'],
    ['artifacts', 'Artifact'],
    ['part', 'Artifact'],
    ['artifact-versions', 'ArtifactVersion'],
    ['versions', 'ArtifactVersion'],
    ['terms-acceptance', 'TermsAcceptance'],
    ['vulnerability-metadata', 'VulnerabilityMetadata'],
  ] as const)('the kinds of taproot get resolve %s to %s', ([name, kind]) => {
    expect(findKind(name, 'taproot').kind).toBe(kind)
  })

  test('the kinds of taproot get suggest the nearest kind for an unknown one, as a usage error', () => {
    expect(() => findKind('identitys', 'taproot')).toThrow(UsageError)
    expect(() => findKind('identitys', 'taproot')).toThrow('did you mean identit')
    expect(() => findKind('qqqqqqqqq', 'taproot')).toThrow(/"qqqqqqqqq": taproot get --help/)
  })

  test('the kinds of taproot get have the filters that narrow a list by value', () => {
    expect(findKind('groups', 'taproot').filters).toEqual(['name'])
    expect(findKind('rolebindings', 'taproot').filters).toEqual(['identity', 'group', 'role'])
    expect(findKind('terms', 'taproot')).toMatchObject({ listVariable: 'group', filters: [] })
  })

  test.each(clientKinds)('the kinds of taproot get have columns that are fields of their records: $kind', ({ kind, list }) => {
    const fields = list.output.fields.find(({ fieldKind }) => fieldKind === 'list')?.message
    for (const column of columnsOf(kind)) {
      const found = column.at.some((path) => {
        let message = fields
        return path.split('.').every((step) => {
          const field = message?.fields.find(({ jsonName }) => jsonName === step)
          message = field?.message
          return field !== undefined
        })
      })
      expect(found || ['NAME', 'PATH', 'GROUP', 'UID'].includes(column.head) || column.head === 'AGE', `${kind} ${column.head}`).toBe(true)
    }
  })
})
