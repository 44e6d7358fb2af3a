import { expect, test } from 'vitest'
import { describeWithPart } from '../../../support/parts/require-part.ts'
import { controllerRights, type ControllerRight } from './controller-rights.ts'
import { one, render, type Rendered, type Values } from '../helm.ts'

/** Returns one line for each verb on each resource (and each name) that a rule allows. */
function linesOf(where: string, rules: Rendered['rules']): string[] {
  return rules.flatMap(({ apiGroups, resources, verbs, resourceNames = ['*'] }: Rendered['rules']) =>
    apiGroups.flatMap((group: string) =>
      resources.flatMap((resource: string) =>
        resourceNames.flatMap((name: string) => verbs.map((verb: string) => `${where}: ${verb} ${resource}.${group} ${name}`)),
      ),
    ),
  )
}

function linesOfRight({ where, group, resource, verbs, names = ['*'] }: ControllerRight): string[] {
  return linesOf(where, [{ apiGroups: [group], resources: [resource], verbs, resourceNames: names }])
}

/** Returns every rule bound to the controller's service account. */
async function rightsIn(values: Values, mirrors = true): Promise<string[]> {
  const objects = await render(values)
  const lines = [
    ...linesOf('cluster', one(objects, 'ClusterRole', 'platform-taproot-controller')['rules']),
    ...linesOf('release', one(objects, 'Role', 'taproot-controller')['rules']),
    ...(mirrors ? linesOf('mirrors', one(objects, 'Role', 'taproot-mirror')['rules']) : []),
  ]
  return lines.toSorted()
}

const expected = (row: (right: ControllerRight) => boolean): string[] => controllerRights.filter(row).flatMap(linesOfRight).toSorted()

describeWithPart('helm', 'Kubernetes rights in the chart', () => {
  test('chart rights of the controller are those of the table, and no others', async () => {
    expect(await rightsIn({})).toEqual(expected(({ pullSecrets }) => pullSecrets !== true))
  })

  test('chart rights on Secrets include writing only with pull secrets enabled', async () => {
    expect(await rightsIn({ kubernetes: { pullSecrets: { enabled: true } } })).toEqual(expected(() => true))
  })

  test('chart rights without mirrors include no creation and no deletion of objects', async () => {
    expect(await rightsIn({ kubernetes: { mirror: { enabled: false } } }, false)).toEqual(
      expected(({ where, pullSecrets }) => where !== 'mirrors' && pullSecrets !== true),
    )
  })

  test('chart rights of people are granted only with aggregated cluster roles enabled', async () => {
    const people = (objects: readonly Rendered[]): readonly Rendered[] =>
      objects.filter(({ kind, metadata }) => kind === 'ClusterRole' && metadata.name !== 'platform-taproot-controller')
    expect(people(await render())).toEqual([])
    const [edit, view] = people(await render({ rbac: { aggregate: true } })).toSorted((left, right) => left.metadata.name.localeCompare(right.metadata.name))
    expect(edit?.metadata.labels).toMatchObject({
      'rbac.authorization.k8s.io/aggregate-to-edit': 'true',
      'rbac.authorization.k8s.io/aggregate-to-admin': 'true',
    })
    expect(view?.metadata.labels).toMatchObject({ 'rbac.authorization.k8s.io/aggregate-to-view': 'true' })
    // Only the people who run the platform decide about grants.
    for (const { rules } of [edit, view].filter((role) => role !== undefined)) expect(JSON.stringify(rules)).not.toContain('grants')
  })

  test('chart rights of other accounts do not exist, except for the Job, which can access only its own Secrets', async () => {
    const objects = await render()
    const bindings = objects.filter(({ kind }) => kind === 'RoleBinding' || kind === 'ClusterRoleBinding')
    const subjects = bindings.flatMap(({ subjects: all }) => all.map(({ name }: { name: string }) => name))
    expect([...new Set(subjects)].toSorted()).toEqual(['taproot-controller', 'taproot-init-secrets'])
    const [create, others] = one(objects, 'Role', 'taproot-init-secrets')['rules']
    expect(create).toEqual({ apiGroups: [''], resources: ['secrets'], verbs: ['create'] })
    expect(others.verbs).toEqual(['get', 'update'])
    expect(others.resourceNames).toContain('taproot-encryption')
    const own = await render({ encryption: { existingSecret: 'mine' } })
    expect(one(own, 'Role', 'taproot-init-secrets')['rules'][1].resourceNames).not.toContain('mine')
  })
})
