import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { mustRunKubeClient } from '../../support/parts/kubernetes/kube-client.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { helm, chartDirectory, names, objectsOf, one, type Rendered } from './helm.ts'

const folder = resolve(import.meta.dirname, '../../../deploy/kustomize')

async function build(name: string): Promise<readonly Rendered[]> {
  return objectsOf(await mustRunKubeClient('kubectl', ['kustomize', `${folder}/${name}`], { kubeconfigFile: '/dev/null' }))
}

/** A repository that no registry has: an overlay replaces it. */
const unsetImage = 'example.invalid/taproot'

/** Returns the rendered chart without the parts that only Helm needs. */
function withoutHelm(text: string): string {
  return text
    .replaceAll('app.kubernetes.io/managed-by: Helm', 'app.kubernetes.io/managed-by: kustomize')
    .replaceAll(/^ *helm\.sh\/chart: .*\n/gm, '')
    .replaceAll(/^# Source: .*\n/gm, '')
    .replaceAll(/[ \t]+$/gm, '')
}

describeWithPart('kubectl', 'deploy/kustomize', () => {
  test('base/taproot.yaml equals the rendered chart (`npx vitest run test/e2e/chart/kustomize.test.ts -u` updates it)', async () => {
    const { stdout, stderr, code } = await helm(['template', 'taproot', chartDirectory, '--namespace', 'taproot', '--skip-tests'], {
      image: { repository: unsetImage },
    })
    expect(code, stderr).toBe(0)
    const notice = '# Rendered from charts/taproot with its defaults: `npx vitest run test/e2e/chart/kustomize.test.ts -u`.\n'
    await expect(notice + withoutHelm(stdout)).toMatchFileSnapshot('../../../deploy/kustomize/base/taproot.yaml')
  })

  test('the base and the overlay build', async () => {
    expect(names(await build('base'), 'Deployment')).toEqual(['taproot-api', 'taproot-controller', 'taproot-registry', 'taproot-worker'])
    const api = one(await build('example'), 'Deployment', 'taproot-api')
    expect(api['spec'].replicas).toBe(3)
    expect(api['spec'].template.spec.containers[0].image).toBe('registry.example.com/platform/taproot:0.2.0')
  })
})
