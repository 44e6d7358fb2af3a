import { describe, expect, test } from 'vitest'
import { resources } from '../../../src/base/schema/schema.ts'
import { kinds } from '../../../src/domains/kinds.ts'
import { parseOrder } from '../../../src/cache/lists/order.ts'

const identity = resources.get('Identity') ?? fail()
const binding = resources.get('RoleBinding') ?? fail()

function fail(): never {
  throw new Error('no such kind')
}

describe('parseOrder', () => {
  test.each([
    ['created_at', 'createMs+uid+'],
    ['createdAt desc', 'createMs-uid+'],
    ['create_time ASC', 'createMs+uid+'],
    ['CREATETIME', 'createMs+uid+'],
    ['updateTime', 'updateMs+uid+'],
    ['Name', 'name+uid+'],
    [' name  desc , created_at', 'name-createMs+uid+'],
    ['name, name desc', 'name+uid+'],
    ['uid desc, name', 'uid-'],
  ])('parseOrder parses "%s" as %s', (text, id) => {
    expect(parseOrder(text, identity).id).toBe(id)
  })

  test.each(['', 'nosuch', 'name up', 'name desc asc', 'name,', 'description', '__proto__', 'constructor'])('parseOrder refuses "%s"', (text) => {
    expect(() => parseOrder(text, identity)).toThrow(expect.objectContaining({ code: 3 }))
  })

  test('parseOrder accepts only sort keys that the schema lists for the kind', () => {
    expect(() => parseOrder('name', binding)).toThrow(expect.objectContaining({ code: 3 }))
  })

  test.each([...kinds.keys()])('parseOrder accepts every spelling of %s', (kind) => {
    const row = resources.get(kind) ?? fail()
    for (const spelling of [...row.sortable, ...row.sortFields.keys(), row.defaultOrder]) expect(parseOrder(spelling, row).terms.length).toBeGreaterThan(0)
  })
})
