import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { mustRunKubeClient } from '../../support/parts/kubernetes/kube-client.ts'
import { startKube, type Kube } from '../../support/parts/kubernetes/kube.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { chartDirectory, withImage, type Values } from './helm.ts'

describeWithPart('kube-apiserver', 'a release of the chart', () => {
  let kube: Kube
  let directory: string

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'taproot-release-'))
    kube = await startKube()
  })
  afterAll(async () => {
    await kube?.stop()
    await rm(directory, { recursive: true, force: true })
  })

  const helm = (...args: readonly string[]): Promise<string> => mustRunKubeClient('helm', args, { kubeconfigFile: kube.kubeconfigFile })
  const list = async (kind: string, namespace = 'platform'): Promise<string[]> =>
    (await kube.kubectl(['-n', namespace, 'get', kind, '-o', 'name']))
      .trim()
      .split('\n')
      .filter((name) => name !== '')

  async function put(command: 'install' | 'upgrade', name: string, options: { readonly namespace?: string; readonly values?: Values } = {}): Promise<void> {
    const { namespace = 'platform', values = {} } = options
    const file = join(directory, 'values.yaml')
    await writeFile(file, JSON.stringify(withImage(values)))
    const make = command === 'install' ? ['--create-namespace'] : []
    await helm(command, name, chartDirectory, '--namespace', namespace, '--values', file, ...make)
  }

  test('a release of the chart is installed, upgraded, uninstalled without its definitions and Secrets, and installed again with them', async () => {
    await put('install', 'taproot')
    const [job, ...more] = await list('jobs')
    expect([job, more]).toEqual([expect.stringMatching(/^job\.batch\/taproot-init-secrets-[0-9a-f]{8}$/), []])
    await kube.kubectl(['-n', 'platform', 'create', 'secret', 'generic', 'taproot-encryption', '--from-literal=key=x'])

    await put('upgrade', 'taproot', { values: { api: { replicas: 3 } } })
    expect(await list('jobs')).toEqual([job])
    expect(await list('poddisruptionbudgets')).toEqual(['poddisruptionbudget.policy/taproot-api'])
    // Other pods of the Job need another Job, since a Job is immutable.
    await put('upgrade', 'taproot', { values: { image: { tag: 'next' } } })
    const [next] = await list('jobs')
    expect(next).not.toBe(job)
    expect(await list('jobs')).toHaveLength(1)
    // The next upgrade repairs a damaged definition.
    await kube.kubectl(['patch', 'crd', 'platformgroups.taproot.dev', '--type=json', '-p', '[{"op":"remove","path":"/spec/names/shortNames"}]'])
    await put('upgrade', 'taproot', { values: { image: { tag: 'other' } } })
    expect(await kube.kubectl(['get', 'crd', 'platformgroups.taproot.dev', '-o', 'jsonpath={.spec.names.shortNames}'])).toBe('["pg"]')

    await helm('uninstall', 'taproot', '--namespace', 'platform')
    expect(await list('deployments,statefulsets,jobs,services,roles')).toEqual([])
    expect(await list('secrets')).toContain('secret/taproot-encryption')
    expect((await list('crds')).filter((name) => name.endsWith('.taproot.dev')).length).toBeGreaterThan(5)

    await put('install', 'taproot')
    expect(await list('deployments')).toHaveLength(4)
    await put('install', 'second', { namespace: 'elsewhere', values: { crds: { enabled: false }, kubernetes: { mirror: { policy: false } } } })
    expect(await list('deployments', 'elsewhere')).toHaveLength(4)
  })
})
