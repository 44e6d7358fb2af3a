import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { methodName } from '../../../../src/base/schema/method.ts'
import { methods } from '../../../../src/base/schema/schema.ts'
import { unservedMethods, unservedRoutes } from '../../../../src/v1/index.ts'
import { TermsNotAcceptedDetailSchema } from '../../../../src/gen/taproot/iam/v1/terms_pb.ts'
import { differences, methodDifferences, wireName } from './differences.ts'
import { v1Enums } from './wire-enums.ts'
import { unservedInContract } from './wire-reports.ts'
import { wireMessages, wireMethods } from './wire-v1.ts'

/** The differences from the public clients, and their reasons. */
const known: readonly { readonly difference: RegExp; readonly because: string }[] = [
  { difference: /: not in the contract: 1\d{3} \w+ \w+$/, because: 'numbers from 1000 are those of Taproot, which other clients skip' },
  { difference: /^AdvisoryEvent: missing: 16 /, because: 'the documents of the wire contract do not describe this event' },
  { difference: /^ServicePrincipal: /, because: 'no service principal is known, so no answer has the name of one' },
  { difference: /^SeverityType: missing: UBUNTU 4$/, because: 'version 2 has no such severity, so no answer has it' },
]

describe('the schema of version 1', () => {
  const served = new Map(methods.filter(({ service }) => service.includes('.v1.')).map((method) => [wireName(method), method]))

  test('it has the numbers, names and types of the public clients, except for what is listed', () => {
    const comparison = { table: wireMessages, enums: v1Enums, compared: new Set<string>() }
    // No method names the detail of an error.
    const detail = [...differences(TermsNotAcceptedDetailSchema, 'TermsNotAcceptedDetail', comparison)]
    expect(detail).toEqual([])
    const found = [...served].flatMap(([name, method]) => [...methodDifferences(method, wireMethods[name] ?? { input: '', output: '' }, comparison)])
    expect(found.filter((one) => !known.some(({ difference }) => difference.test(one)))).toEqual([])
    expect(known.filter(({ difference }) => !found.some((one) => difference.test(one)))).toEqual([])
    // No message and no enum of the tables is left out.
    const compared = new Set([...comparison.compared].map((pair) => pair.split(' ')[1]))
    expect(Object.keys({ ...wireMessages, ...v1Enums }).filter((name) => !compared.has(name))).toEqual([])
  })

  test('each method of the public clients is served, or is listed', async () => {
    expect(Object.keys(wireMethods).toSorted()).toEqual([...served.keys()].toSorted())
    const routes = new Map(unservedRoutes.map(({ name, verb, template }) => [name, `${verb} ${template}`]))
    expect(unservedMethods).toEqual(expect.arrayContaining(Object.keys(unservedInContract)))
    for (const [name, route] of Object.entries(unservedInContract)) expect(routes.get(name) ?? '', name).toBe(route)
    const names = new Set(methods.map(methodName))
    expect(unservedMethods.filter((name) => names.has(`taproot.${name}`))).toEqual([])
    const rows = (await readFile('docs/api.md', 'utf8')).split('\n')
    const isListed = (name: string): boolean => {
      const [service = '', rpc = ''] = name.split('/')
      return rows.some((row) => row.startsWith(`| \`${service}\``) && row.includes(`\`${rpc}\``))
    }
    expect(unservedMethods.filter((name) => !isListed(name))).toEqual([])
  })
})
