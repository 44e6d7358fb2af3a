import { expect, test } from 'vitest'
import { makeOrganisation, roleUid } from '../support/test-server.ts'
import { expectSoundStore } from '../conformance/model/store-invariants.ts'
import { subgroup } from '../conformance/spec/spec-kinds.ts'
import { specSuiteEverywhere } from '../conformance/spec/spec-suite.ts'

specSuiteEverywhere(
  'records created in a group during its deletion',
  (spec) => {
    // docs/spec/conventions.md#deletion-order
    test("records created during a group's deletion either keep the group or are refused: nothing is left below a deleted group", async () => {
      const { group, token } = await makeOrganisation(spec.server)
      const made: (readonly [deletion: number, rest: readonly number[]])[] = []
      for (let round = 0; round < 12; round += 1) {
        const parent = await subgroup(spec, group, token)
        const [deleted, ...others] = await Promise.all([
          spec.call('DeleteGroup', { uid: parent }, { token }),
          spec.call('CreateGroupInvite', { parent, groupInvite: { roleUid: roleUid('viewer'), ttl: '60s' } }, { token }),
          spec.call('CreateAccountAssociation', { parent, accountAssociation: { name: 'a', amazon: { account: '123456789012' } } }, { token }),
          spec.call('AcceptTerms', { group: parent, documentIds: ['terms'] }, { token }),
        ])
        made.push([deleted.code, others.map(({ code }) => code)])
      }
      for (const [deletion, [invite, association, acceptance]] of made) {
        expect([invite, association]).toEqual(deletion === 0 ? [5, 5] : [expect.toBeOneOf([0, 5]), expect.toBeOneOf([0, 5])])
        if (deletion !== 0) expect([deletion, [invite, association].includes(0), acceptance]).toEqual([9, true, 0])
      }
      await expectSoundStore(spec.server.running.engine.store)
    })
  },
  { env: { TAPROOT_TERMS: JSON.stringify([{ id: 'terms', label: 'Terms', url: 'https://example.com/terms' }]) } },
)
