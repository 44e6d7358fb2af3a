import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { roleUid } from '../../support/test-server.ts'
import { answerAbout, ask, forEach, nowhere } from './asking.ts'
import { callerRows, realPlaces, type CallerRow } from './callers.ts'
import { may } from './expected.ts'
import type { Ground } from './places-suite.ts'
import type { MatrixWorld } from './world.ts'

/** A method about a record outside the places of the matrix, and the callers that it accepts. */
interface ExceptionRow {
  readonly title: string
  readonly method: string
  /** The uid in the request; empty if it names none. */
  readonly about: (world: MatrixWorld) => string
  readonly request: (uid: string) => JsonObject
  /** The expected code for callers with a token. */
  readonly code: (caller: CallerRow) => number
  readonly because: string
}

function isOperator({ standing }: CallerRow): boolean {
  return standing.own === 'everything'
}

function listsRoles(caller: CallerRow): boolean {
  return realPlaces.some((place) => may(caller, place, ['roles.list']))
}

const claimMatch = { issuer: 'https://issuer.example', subject: 'mallory' }
const byUid = (uid: string): JsonObject => ({ uid })
const viewer = (): string => roleUid('viewer')
const builtIn = { about: viewer, because: 'each caller who may list roles reads it, and no caller changes it' }
const changeOfBuiltIn = { ...builtIn, code: (caller: CallerRow) => (listsRoles(caller) ? 7 : 5) }
/** People have bindings in the tenant, and belong to none (docs/spec/resources.md#uid-hierarchy). */
const person = {
  about: ({ things }: MatrixWorld) => things.own.person,
  code: (caller: CallerRow) => (isOperator(caller) ? 0 : 5),
  because: 'people are roots, and are no tenant’s to read or change',
}

const rows: readonly ExceptionRow[] = [
  { title: 'a built-in role is read', method: 'GetRole', request: byUid, ...builtIn, code: (caller) => (listsRoles(caller) ? 0 : 5) },
  { title: 'a built-in role is changed', method: 'UpdateRole', request: (uid) => ({ role: { uid, description: 'mine' } }), ...changeOfBuiltIn },
  { title: 'a built-in role is deleted', method: 'DeleteRole', request: byUid, ...changeOfBuiltIn },
  { title: 'a person is read', method: 'GetIdentity', request: byUid, ...person },
  { title: 'a person is changed', method: 'UpdateIdentity', request: (uid) => ({ identity: { uid, claimMatch } }), ...person },
  { title: 'a person is deleted', method: 'DeleteIdentity', request: byUid, ...person },
  {
    title: 'a root group is made',
    method: 'CreateGroup',
    about: () => '',
    request: () => ({ group: { name: 'made by the matrix' } }),
    code: (caller) => (isOperator(caller) ? 0 : 7),
    because: 'self service is off', // docs/spec/iam.md#root-groups
  },
]

/** Tries methods about records outside the places of the matrix, with every caller. */
export function exceptionsSuite(ground: Ground): void {
  test.each(rows)('$title: only permitted callers succeed ($because)', async ({ method, about, request, code }) => {
    const world = ground.world()
    const uid = about(world)
    await forEach(callerRows, async ([name, caller]) => {
      const call = (one: string) => ask(ground.apiClient(), { name: method, request: request(one), token: world.tokens[name], options: { validateOnly: true } })
      const reply = await call(uid)
      expect({ name, code: reply.code, message: reply.message }).toMatchObject({ name, code: caller.anonymous === true ? 16 : code(caller) })
      if (reply.code !== 5) return
      const missing = nowhere(uid)
      expect(answerAbout(reply, uid)).toBe(answerAbout(await call(missing), missing))
    })
  })
}
