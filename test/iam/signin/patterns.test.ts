import { create } from '@bufbuild/protobuf'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { trustedUid } from '../../../src/base/uid.ts'
import { IdentitySchema } from '../../../src/gen/taproot/iam/v2/identities_pb.ts'
import { ChangeSet, newEtag } from '../../../src/engine/change-set.ts'
import { identityKind } from '../../../src/iam/records/identities.ts'
import type { Resource } from '../../../src/cache/records/cached-record.ts'
import { slowness } from '../../budgets.ts'
import { cpuTimeMs } from '../../support/cpu-time.ts'
import { makeOrganisation, ok, startTestServer, type Organisation, type TestServer } from '../../support/test-server.ts'
import { memoryInUse } from '../../support/parts/memory-in-use.ts'

let server: TestServer
let organisation: Organisation
beforeAll(async () => {
  server = await startTestServer()
  organisation = await makeOrganisation(server)
})
afterAll(() => server.stop())

const dear = '\\pL'.repeat(330)

test.each(['rest', 'grpc'] as const)(
  'over %s a dry run with 50 expensive patterns is refused, takes little time and leaves no memory in use',
  async (transport) => {
    const { group, token } = organisation
    const ask = async (round: number): Promise<void> => {
      const claimPatterns = Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`c${index}`, `${round}${index}${dear}`]))
      const identity = { name: 'dear', claimMatch: { issuer: server.devIssuer.issuer, subject: 'x', claimPatterns } }
      const reply = await server[transport].call('CreateIdentity', { parent: group, identity }, { token, validateOnly: true })
      expect(reply).toMatchObject({
        code: 3,
        message: expect.stringMatching(/(?:claim_match\.claim_patterns|claimMatch\.claimPatterns)\["c\d+"\]: must have at most 10 Unicode classes/) as unknown,
      })
    }
    for (let round = 0; round < 5; round++) await ask(round)
    const [memory, time] = [await memoryInUse(), cpuTimeMs()]
    for (let round = 5; round < 25; round++) await ask(round)
    expect((cpuTimeMs() - time) / 20).toBeLessThan(30 * slowness())
    const after = await memoryInUse()
    expect(after.heap + after.external - memory.heap - memory.external).toBeLessThan(8 * 1024 * 1024)
  },
)

/** Writes an identity to the store without checks, as an earlier version may have stored it. */
async function stored(segment: string, subjectPattern: string): Promise<string> {
  const { engine } = server.running
  const uid = trustedUid(`${organisation.group}/${segment.repeat(16)}`)
  const sub = { case: 'subjectPattern', value: subjectPattern } as const
  const value = { iss: { case: 'issuer', value: server.devIssuer.issuer } as const, sub }
  const record = create(IdentitySchema, { name: 'stored', relationship: { case: 'claimMatch', value } }) as unknown as Resource
  const nowMs = engine.services.clock.now()
  const changes = new ChangeSet()
  changes.create(identityKind, { uid, record, facts: { etag: newEtag(engine.services.random), createMs: nowMs, updateMs: nowMs, managedBy: '' } })
  const outcome = await engine.store.transact(changes, AbortSignal.timeout(60_000))
  if (outcome.committed) await engine.cache.reached(outcome.revision, AbortSignal.timeout(60_000))
  return uid
}

test('a stored pattern within the limits matches; one beyond them matches nothing, and the log names its identity once', async () => {
  const [within, beyond] = [await stored('a', '\\pL{1,64}'), await stored('b', `(?:${dear}|.*)`)]
  const token = await server.devIssuer.mintDevToken({ subject: 'deployer', audience: server.config.baseUrl })
  const exchange = (identity: string) => server.grpc.call('SecurityTokenService/Exchange', { identity }, { token })
  ok(await exchange(within))
  for (let again = 0; again < 3; again++) expect((await exchange(beyond)).code).toBe(7)
  const warnings = server.logs.filter(({ level, message }) => level === 'warn' && message.includes('patterns'))
  expect(warnings.map(({ fields }) => fields)).toEqual([{ identity: beyond, fault: 'must have at most 10 Unicode classes, such as \\pL' }])
})
