import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { describeWithPart } from '../support/parts/require-part.ts'
import { definitionOf, definitions, documentsOf, schemaOf, schemasIn } from './crd/definitions.ts'
import { childUid, rootUid } from './crd/full-objects.ts'
import { startObjectApi, type ObjectApi } from './object-api.ts'

const kinds = [...definitions.keys()]
const since = '2026-01-01T00:00:00Z'
const samples = ['deploy/samples/grant.yaml', 'deploy/samples/organisation.yaml']

/** Parses a table of kubectl: a row per line, cells by column. AGE is left out, because it changes. */
function tableOf(printed: string): readonly Readonly<Record<string, string>>[] {
  const [header = '', ...rows] = printed.split('\n').filter((line) => line !== '')
  const columns = [...header.matchAll(/\S+ */g)].map((match) => ({ name: match[0].trim(), from: match.index, to: match.index + match[0].length }))
  const cell = (line: string, { from, to }: { from: number; to: number }): string => line.slice(from, to > header.length - 1 ? undefined : to).trim()
  return rows.map((line) => Object.fromEntries(columns.filter(({ name }) => name !== 'AGE').map((column) => [column.name, cell(line, column)])))
}

/** The names of the columns. */
const columnsOf = (printed: string): readonly string[] => printed.split('\n')[0]?.split(/\s+/) ?? []

const condition = (type: string, status: string, reason: string): object => ({
  type,
  status,
  reason,
  message: `${reason} it is`,
  observedGeneration: 1,
  lastTransitionTime: since,
})
const status = (ready: string, reason: string): object => ({
  uid: childUid,
  observedGeneration: 1,
  conditions: [condition('Ready', ready, reason), condition('Synced', 'True', 'Synced')],
})

describe('the descriptions in kubectl explain', () => {
  test.each(kinds)('the descriptions in kubectl explain describe each field of %s', (kind) => {
    const named = [...schemasIn(schemaOf(kind))].filter(([place]) => !['[]', '{}'].includes(place.at(-1) ?? ''))
    expect(named.filter(([, { description = '' }]) => !/^[A-Z'].*[.]$/s.test(description)).map(([place]) => place.join('.'))).toEqual([])
  })
})

describeWithPart('kube-apiserver', 'kubectl with crds/', () => {
  let api: ObjectApi
  let kubectl: ObjectApi['kube']['kubectl']

  beforeAll(async () => {
    api = await startObjectApi({})
    kubectl = api.kube.kubectl
    await kubectl(['apply', ...samples.flatMap((path) => ['-f', path])])
    const patch = (resource: string, value: object): Promise<string> =>
      kubectl(['patch', resource, '-n', 'acme', '--subresource=status', '--type=merge', '-p', JSON.stringify({ status: value })])
    await Promise.all([
      patch('platformgroup/web', status('True', 'InSync')),
      patch('platformrolebinding/deployer-reads', status('False', 'RefNotFound')),
      patch('platformidentity/deployer', status('True', 'InSync')),
    ])
  })

  afterAll(() => api?.stop())

  test('applies the samples, and a second time without a change', async () => {
    const printed = await kubectl(['apply', ...samples.flatMap((path) => ['-f', path])])
    const lines = printed.trim().split('\n')
    expect(lines).toHaveLength(samples.flatMap(documentsOf).length)
    expect(lines.filter((line) => !line.endsWith(' unchanged'))).toEqual([])
  })

  test('applies the definitions and the policy again, server-side and client-side', async () => {
    await kubectl(['apply', '--server-side', '-f', 'crds', '-f', 'deploy/mirror-policy'])
    await kubectl(['apply', '-f', 'crds', '-f', 'deploy/mirror-policy'])
  })

  test.each([
    ['platformgroup', 'A node of the tree.'],
    ['platformgroup.spec', 'parentRef\t<Object>'],
    ['pid.spec.serviceAccountRef', 'name\t<string> -required-'],
    ['prb.spec.roleRef.builtIn', 'registry.push'],
    ['prole.spec.capabilities', 'Capabilities, in the order of their numbers.'],
    ['prepo.spec.customOverlay.accounts.users.homeDir', 'The home directory.'],
    ['pg.status.conditions', 'lastTransitionTime\t<string> -required-'],
    ['psub.spec.suspend', 'If true, pauses deliveries.'],
    ['png.spec.maxRole', 'Maximum role: role bindings'],
  ])('explains %s', async (path, text) => {
    expect(await kubectl(['explain', path])).toContain(text)
  })

  test.each([
    ['pg', ['NAME', 'READY', 'SYNCED', 'RECORD', 'UID', 'PARENT', 'AGE']],
    ['pid', ['NAME', 'READY', 'SYNCED', 'ISSUER', 'SUBJECT', 'UID', 'PARENT', 'AGE']],
    ['prole', ['NAME', 'READY', 'SYNCED', 'UID', 'PARENT', 'AGE']],
    ['prb', ['NAME', 'READY', 'SYNCED', 'ROLE', 'IDENTITY', 'UID', 'PARENT', 'AGE']],
    ['prepo', ['NAME', 'READY', 'SYNCED', 'UID', 'PARENT', 'AGE']],
    ['psub', ['NAME', 'READY', 'SYNCED', 'STATE', 'SINK', 'UID', 'PARENT', 'AGE']],
  ])('get %s prints its columns, and the reason with -o wide', async (shortName, columns) => {
    expect(columnsOf(await kubectl(['get', shortName, '-n', 'acme']))).toEqual(columns)
    expect(columnsOf(await kubectl(['get', shortName, '-n', 'acme', '-o', 'wide']))).toEqual([...columns, 'REASON', 'MESSAGE'])
  })

  test('get pg prints readiness, uid and parent', async () => {
    expect(tableOf(await kubectl(['get', 'pg', '-n', 'acme']))).toEqual([
      { NAME: 'acme', READY: '', SYNCED: '', RECORD: '', UID: '', PARENT: '' },
      { NAME: 'web', READY: 'True', SYNCED: 'True', RECORD: '', UID: childUid, PARENT: 'acme' },
    ])
  })

  test('get prb prints role and identity, whichever way they are given', async () => {
    expect(tableOf(await kubectl(['get', 'prb', '-n', 'acme', '-o', 'wide']))).toMatchObject([
      { NAME: 'deployer-pushes', ROLE: 'registry.push', IDENTITY: 'deployer', PARENT: 'web' },
      { NAME: 'deployer-reads', READY: 'False', ROLE: 'tag-reader', IDENTITY: 'deployer', PARENT: 'acme', REASON: 'RefNotFound', MESSAGE: 'RefNotFound it is' },
    ])
  })

  test('get pid prints issuer and subject for each kind of sign-in', async () => {
    const identity = (name: string, way: object): object => ({
      apiVersion: 'taproot.dev/v1alpha1',
      kind: 'PlatformIdentity',
      metadata: { name, namespace: 'default' },
      spec: { parentRef: { uid: rootUid }, ...way },
    })
    const items = [
      identity('aws', { awsIdentity: { awsAccount: '123456789012', arn: 'arn:aws:iam::1:role/x', userId: 'u' } }),
      identity('claims', { claimMatch: { issuer: 'https://idp.example', subjectPattern: 'a.*' } }),
      identity('keys', { staticKeys: { issuer: 'https://ci.example', subject: 'job', issuerKeys: '{}' } }),
      identity('pod', { serviceAccountRef: { name: 'builder' } }),
    ]
    await kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }))
    expect(tableOf(await kubectl(['get', 'pid'])).map(({ NAME, ISSUER, SUBJECT, PARENT }) => [NAME, ISSUER, SUBJECT, PARENT])).toEqual([
      ['aws', '', 'arn:aws:iam::1:role/x', rootUid],
      ['claims', 'https://idp.example', 'a.*', rootUid],
      ['keys', 'https://ci.example', 'job', rootUid],
      ['pod', '', 'builder', rootUid],
    ])
  })

  test('get png prints group, maximum role and adoption', async () => {
    expect(tableOf(await kubectl(['get', 'png']))).toEqual([{ NAME: 'acme', READY: '', GROUP: '/', 'MAX-ROLE': 'owner', ADOPTION: 'false', NAMESPACES: '' }])
  })

  test.each([
    ['platform', ['PlatformGroup', 'PlatformIdentity', 'PlatformRole', 'PlatformRoleBinding', 'PlatformRepo', 'PlatformSubscription']],
    ['platform-iam', ['PlatformGroup', 'PlatformIdentity', 'PlatformRole', 'PlatformRoleBinding']],
    ['platform-registry', ['PlatformRepo']],
    ['platform-events', ['PlatformSubscription']],
  ])('get %s -A lists every kind of the category', async (category, members) => {
    const printed = await kubectl(['get', category, '-A', '-o', 'name'])
    const found = new Set(
      printed
        .trim()
        .split('\n')
        .map((line) => line.split('.')[0]),
    )
    expect([...found].sort()).toEqual(members.map((kind) => definitionOf(kind).spec.names.singular).sort())
  })

  test.each([
    ['prb', 'spec.roleRef.builtIn=registry.push', ['deployer-pushes']],
    ['prb', 'spec.identityRef.name=deployer,spec.parentRef.name=acme', ['deployer-reads']],
    ['pg', `status.uid=${childUid}`, ['web']],
    ['prepo', 'spec.parentRef.name=web', ['shop']],
  ])('get %s --field-selector %s finds the matching objects', async (shortName, selector, names) => {
    const printed = await kubectl(['get', shortName, '-n', 'acme', '--field-selector', selector, '-o', 'jsonpath={.items[*].metadata.name}'])
    expect(printed.split(' ')).toEqual(names)
  })

  test('wait --for=condition=Ready ends once an object is ready', async () => {
    const waiting = kubectl(['wait', 'platformrepo/shop', '-n', 'acme', '--for=condition=Ready', '--timeout=60s'])
    await kubectl(['patch', 'prepo/shop', '-n', 'acme', '--subresource=status', '--type=merge', '-p', JSON.stringify({ status: status('True', 'InSync') })])
    expect(await waiting).toContain('condition met')
  })

  test('kustomize replaces the controller account in the policy', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'taproot-kustomize-'))
    const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'taproot-controller' } }
    const replacement = (at: number, field: string): object => ({
      source: { kind: 'ServiceAccount', fieldPath: `metadata.${field}` },
      targets: [{ select: { kind: 'ValidatingAdmissionPolicy' }, fieldPaths: [`spec.variables.${at}.expression`], options: { delimiter: "'", index: 1 } }],
    })
    const overlay = {
      namespace: 'acme',
      nameSuffix: '-2',
      resources: ['policy.yaml', 'account.yaml'],
      replacements: [replacement(0, 'namespace'), replacement(1, 'name')],
    }
    try {
      await copyFile('deploy/mirror-policy/mirror-policy.yaml', join(folder, 'policy.yaml'))
      await writeFile(join(folder, 'account.yaml'), JSON.stringify(account))
      await writeFile(join(folder, 'kustomization.yaml'), JSON.stringify(overlay))
      await kubectl(['apply', '-k', folder])
      const expressions = await kubectl(['get', 'validatingadmissionpolicy/mirrors.taproot.dev-2', '-o', 'jsonpath={.spec.variables[0:2].expression}'])
      expect(expressions).toBe("'acme' 'taproot-controller-2'")
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  test('explains in one line what is invalid in an object', async () => {
    const text = JSON.stringify({
      apiVersion: 'taproot.dev/v1alpha1',
      kind: 'PlatformRoleBinding',
      metadata: { name: 'x' },
      spec: { parentRef: { name: 'web' }, identityRef: {}, roleRef: { builtIn: 'viewer' } },
    })
    await expect(kubectl(['apply', '-f', '-'], text)).rejects.toThrow('spec.identityRef: Invalid value: exactly one of name, uid')
  })
})
