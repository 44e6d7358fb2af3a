import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import type { Reply } from '../../support/api-clients.ts'
import { fieldNameAt, methodNamed } from '../walk/cases/method-case.ts'
import { answerAbout, ask, forEach, nowhere } from './asking.ts'
import { callerRows, realPlaces, type CallerName } from './callers.ts'
import { grantable, may } from './expected.ts'
import { externalMethods, publicMethods, sharedMethods, signedInMethods, type PlainRow } from './methods.ts'
import type { Ground } from './places-suite.ts'
import type { Things } from './world.ts'

/** Returns the fields in which these methods name their subject. */
export function signedInFields(): string[] {
  const marker = 'a marker'
  // Every property is the marker.
  const things = new Proxy({}, { get: () => marker }) as Things
  return Object.entries({ ...signedInMethods, ...externalMethods }).flatMap(([name, row]) => {
    const { input } = methodNamed(name)
    const request = row.request(things)
    return input.fields.filter(({ jsonName }) => request[jsonName] === marker).map((field) => fieldNameAt(input, [field.name]))
  })
}

/** Methods without a needed capability, for every caller, about a record in every place. */
export function signedInSuite(ground: Ground): void {
  const call = (name: string, caller: CallerName, request: JsonObject): Promise<Reply> =>
    ask(ground.apiClient(), { name, request, token: ground.world().tokens[caller] })

  /** Returns the answers about each place, and about a missing record. */
  async function answersOf(name: string, caller: CallerName, row: PlainRow): Promise<{ codes: number[]; texts: Set<string> }> {
    const { about } = row
    const things: readonly Things[] = realPlaces.map((place) => ground.world().things[place])
    const absent = about === undefined ? [] : things.map((one): Things => ({ ...one, [about]: nowhere(one[about]) }))
    const replies: { readonly one: Things; readonly reply: Reply }[] = []
    // One after the other: an organisation may have 100 searches that wait.
    for (const one of [...things, ...absent]) replies.push({ one, reply: await call(name, caller, row.request(one)) })
    const texts = replies.map(({ one, reply }) => {
      const uid = about === undefined ? '' : one[about]
      // The parent of a uid with one part is `/`.
      return uid === '' ? '' : answerAbout(reply, uid).replaceAll('"<parent>"', '"/"').replaceAll('\\"<parent>\\"', '\\"/\\"')
    })
    return { codes: replies.map(({ reply }) => reply.code), texts: new Set(texts) }
  }

  test.each(Object.entries({ ...signedInMethods, ...externalMethods }))(
    '%s: every signed-in caller gets the same answer about every record',
    async (name, row) => {
      const chosen = ground.chosen(callerRows, { nameOf: ([caller]) => `${name} ${caller}`, kindOf: ([caller]) => caller })
      await forEach(chosen, async ([caller, { anonymous }]) => {
        const { codes, texts } = await answersOf(name, caller, row)
        const answered = caller === 'an operator' ? (row.operators ?? row.code) : row.code
        const code = anonymous === true ? 16 : answered
        expect({ caller, codes: [...new Set(codes)] }).toEqual({ caller, codes: [code] })
        expect([...texts], caller).toHaveLength(1)
      })
    },
  )

  // docs/spec/iam.md#test-capabilities
  test('AccessService/TestCapabilities: every caller gets the capabilities that calls in that place need', async () => {
    await forEach(callerRows, async ([caller, row]) => {
      for (const place of realPlaces) {
        const resource = ground.world().things[place].repo
        const expected = grantable.filter((name) => may(row, place, [name]))
        const reply = await call('AccessService/TestCapabilities', caller, { resource, capabilities: [...grantable] })
        expect(row.anonymous === true ? reply.code : reply.body['capabilities'], `${caller} ${place}`).toEqual(row.anonymous === true ? 16 : expected)
      }
    })
  })

  test.each(Object.entries(sharedMethods))('%s: each caller with the capability in some group gets the same answer', async (name, { needs, request, code }) => {
    await forEach(callerRows, async ([caller, row]) => {
      const isAllowed = realPlaces.some((place) => may(row, place, needs))
      expect((await call(name, caller, request)).code, caller).toBe(row.anonymous === true ? 16 : isAllowed ? code : 7)
    })
  })

  test.each(Object.entries(publicMethods))('%s: every caller gets the same answer, with or without a credential', async (name, code) => {
    await forEach(callerRows, async ([caller]) => expect((await call(name, caller, {})).code, caller).toBe(code))
  })
}
