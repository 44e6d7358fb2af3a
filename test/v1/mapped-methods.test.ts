import { describe, expect, test } from 'vitest'
import { methodName } from '../../src/base/schema/method.ts'
import { methods } from '../../src/base/schema/schema.ts'
import { mappedMethods } from '../../src/v1/index.ts'

/** Services of version 1 that have handlers of their own. */
const unmapped = /^taproot\.(?:auth|oidc)\.v1\./

describe('methods of version 1', () => {
  test('each method of version 1 is answered by one of version 2', () => {
    const all = methods.filter(({ service }) => service.includes('.v1.') && !unmapped.test(service))
    expect([...mappedMethods.keys()].map(methodName).toSorted()).toEqual(all.map(methodName).toSorted())
  })

  test.each([...mappedMethods].map(([row, mapped]) => [methodName(row), row, mapped] as const))(
    '%s has the annotations of its method of version 2',
    (_, row, mapped) => {
      const { scope, capabilities, kind, event, mutation, domain } = mapped.method
      expect({ ...row }).toMatchObject({ scope, capabilities, kind, mutation, domain })
      expect(row.event).toEqual(event)
      expect(row.maxRequestBytes).toBeGreaterThanOrEqual(mapped.method.maxRequestBytes)
    },
  )
})
