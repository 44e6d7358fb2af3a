import type { JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { suspend } from '../../support/suspend.ts'
import { makePerson, roleUid } from '../../support/test-server.ts'
import { basic } from '../../registry/tokens/registry-world.ts'
import { missingSibling } from '../walk/world.ts'
import { answerAbout } from './asking.ts'
import type { Stage } from './stage.ts'

/** Attempts to reach a suspended organisation, and to act as another identity through a header. */
export function closedSuite(get: () => Stage): void {
  test('members and outsiders get nothing from a suspended organisation', async () => {
    const stage = get()
    const [org, other] = [await stage.organisation(), await stage.organisation()]
    const subject = stage.person()
    const { uid, token } = await makePerson(stage.server, { issuer: stage.issuer.issuer, subject: subject.subject })
    for (const each of [org, other]) await stage.bind(each, uid, 'owner')
    const repo = await stage.uid('CreateRepo', { parent: org.group, repo: { name: 'source', description: 'a secret' } }, org.token)
    const synced = (source: string): JsonObject => ({ parent: other.group, repo: { name: 'copy', syncConfig: { source } } })
    expect((await stage.call('CreateRepo', synced(repo), token, { validateOnly: true })).code).toBe(0)
    await suspend(stage.server, org.group)

    // Members are informed, others are not.
    for (const member of [org.token, token]) {
      for (const call of [
        ['GetRepo', { uid: repo }],
        ['DeleteRepo', { uid: repo }],
        ['CreateGroup', { parent: org.group, group: { name: 'team' } }],
      ] as const) {
        const { details } = await stage.refused(7, [...call, member])
        expect(details['ErrorInfo']).toMatchObject({ reason: 'ORGANIZATION_SUSPENDED' })
      }
      expect((await stage.ok('ListRepos', { uidp: { descendantsOf: org.group } }, member))['totalCount']).toBe('0')
    }
    const answers = await Promise.all(
      [repo, missingSibling(repo)].map(async (asked) => answerAbout(await stage.call('GetRepo', { uid: asked }, other.token, { requestId: 'same' }), asked)),
    )
    expect(answers[0]).toBe(answers[1])
    // Nothing of the organisation can be used from outside.
    const sources = await Promise.all([repo, missingSibling(repo)].map((source) => stage.refused(3, ['CreateRepo', synced(source), token])))
    expect(new Set(sources.map(({ message }) => message)).size).toBe(1)
  })

  test('the identity header gives a caller no rights of another identity', async () => {
    const stage = get()
    const org = await stage.organisation()
    const weak = await stage.holding(org, ['groups.list'])
    const change = { group: { uid: org.group, description: 'mine' } }
    // A token of this server names its own identity; the header is for tokens of other issuers.
    expect((await stage.call('UpdateGroup', change, weak.token, { identity: org.owner })).code).not.toBe(0)
    const person = stage.person()
    const external = await stage.external(person)
    const refusals = await Promise.all(
      [org.owner, weak.uid, missingSibling(org.owner), roleUid('owner')].map((identity) => stage.call('UpdateGroup', change, external, { identity })),
    )
    expect(refusals.map(({ code }) => code)).toEqual([7, 7, 7, 7])
    expect(new Set(refusals.map(({ message }) => message)).size).toBe(1)
    if (stage.apiClient.name === 'grpc') return
    for (const [user, password] of [
      [org.owner, weak.token],
      [org.owner, external],
    ] as const) {
      const response = await fetch(`http://127.0.0.1:${stage.server.config.api.port}/iam/v2/groups/${org.group}`, {
        headers: { authorization: basic(user, password) },
      })
      expect([401, 403]).toContain(response.status)
    }
  })
}
