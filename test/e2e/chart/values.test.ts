import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { loadConfig } from '../../../src/config/load-config.ts'
import type { Role } from '../../../src/config/config.ts'
import { tokenWithClaims } from '../../auth/unsigned-token.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'
import { chartDirectory, helm, one, render, type Values } from './helm.ts'
import { valueSets } from './value-sets.ts'

const gateway = { enabled: true, parentRefs: [{ name: 'public' }] }

/** Values that are refused, and the parts of the error message. */
const refused: readonly (readonly [sentence: string, values: Values, named: readonly string[]])[] = [
  ['an unknown key', { replicas: 3 }, ['replicas']],
  ['an unknown nested key', { api: { ingress: { host: 'x' } } }, ['/api/ingress', 'host']],
  ['text in place of a number', { api: { replicas: 'three' } }, ['/api/replicas']],
  ['two etcd members', { etcd: { replicas: 2 } }, ['/etcd/replicas']],
  ['a URL with a slash at its end', { baseUrl: 'https://platform.example.com/' }, ['/baseUrl']],
  ['a tag in place of a digest', { image: { digest: 'latest' } }, ['/image/digest']],
  ['an invalid object name', { encryption: { existingSecret: 'My_Secret' } }, ['/encryption/existingSecret']],
  ['an operator without a subject', { operators: [{ issuer: 'https://login.example.com' }] }, ['/operators/0', 'subject']],
  ['configuration that the chart itself sets', { config: { store: { kind: 'sqlite' } } }, ['/config', 'store']],
  ['an unknown configuration key', { config: { log: { colour: 'red' } } }, ['/config/log', 'colour']],
  ['a configuration value of another type', { config: { registry: { collect: { graceHours: 'long' } } } }, ['/config/registry/collect/graceHours']],
  ['an invalid size', { etcd: { persistence: { size: 'large' } } }, ['/etcd/persistence/size']],
  ['no image', { image: { repository: '' } }, ['image.repository is missing: set it to the repository of your image']],
  [
    'no store, no upstream, half a credential: all reported at once',
    { etcd: { enabled: false }, upstream: { enabled: false, external: { username: 'x' } } },
    ['etcd.external.endpoints is missing', 'upstream.external.url is missing', 'upstream.external: set both username and passwordSecret'],
  ],
  ['Secrets that do not exist', { initSecrets: { enabled: false } }, ['taproot-encryption', 'taproot-etcd-server', 'taproot-upstream-tls']],
  [
    'a grace period shorter than a pod needs to stop',
    { registry: { terminationGracePeriodSeconds: 10, drainSeconds: 10 } },
    ['registry.terminationGracePeriodSeconds'],
  ],
  ['a minimum of pods above the maximum', { api: { autoscaling: { enabled: true, minReplicas: 6 } } }, ['api.autoscaling.minReplicas must not be more than']],
  [
    'one volume claim for three members',
    { etcd: { replicas: 3, persistence: { existingClaim: 'data' } } },
    ['etcd.persistence.existingClaim works with one member only'],
  ],
  ['a disruption budget that is not a number', { api: { podDisruptionBudget: { minAvailable: 'half' } } }, ['/api/podDisruptionBudget/minAvailable']],
  ['a route to no Gateway', { api: { httpRoute: { enabled: true } } }, ['api.httpRoute.parentRefs']],
  [
    'HTTP and gRPC on one host of one listener',
    { baseUrl: 'https://p.example.com', api: { httpRoute: gateway, grpcRoute: { ...gateway, hosts: ['p.example.com'] } } },
    ['p.example.com is a host of api.httpRoute'],
  ],
  [
    'HTTP and gRPC on one host of an Ingress',
    { baseUrl: 'https://p.example.com', api: { ingress: { enabled: true }, grpcIngress: { enabled: true, hosts: ['p.example.com'] } } },
    ['p.example.com is a host of api.ingress'],
  ],
]

const clusterIssuer = 'https://oidc.cloud.example/id/4711/'
/** The path of the token that contains the cluster's issuer in pods of the chart. */
const mountedToken = '/var/run/secrets/taproot/kubernetes/token'

/** Loads a file of the rendered ConfigMap in a role, like a pod of a cluster whose issuer is not kubeadm's. */
async function loadRendered(text: string, role: Role): Promise<ReturnType<typeof loadConfig>> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-rendered-'))
  try {
    const file = join(directory, 'taproot.yaml')
    const tokenFile = join(directory, 'token')
    await writeFile(tokenFile, tokenWithClaims({ iss: clusterIssuer }))
    await writeFile(file, text.replaceAll(mountedToken, tokenFile))
    return loadConfig({ file, env: {}, role })
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

describeWithPart('helm', 'values of the chart', () => {
  test.for(refused)('values of the chart are refused: %s', async ([, values, named]) => {
    const { code, stderr } = await helm(['template', 'taproot', chartDirectory], values)
    expect(code).not.toBe(0)
    for (const part of named) expect(stderr).toContain(part)
  })

  test.for(Object.entries(valueSets))('%s: render a configuration that Taproot accepts', async ([, values]) => {
    const objects = await render(values)
    const map = objects.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name.endsWith('-config'))
    const roles: readonly Role[] = objects.some(({ kind, metadata }) => kind === 'Deployment' && metadata.name.endsWith('-registry'))
      ? ['api', 'registry']
      : ['api']
    for (const role of roles) expect((await loadRendered(map?.['data']['taproot.yaml'], role)).warnings).toEqual([])
    const ofController = map?.['data']['controller.yaml']
    if (ofController !== undefined) expect((await loadRendered(ofController, 'controller')).config.kubernetes.lease.namespace).toBe('platform')
  })

  test('values of the chart make the service account of the release an operator, with tokens signed by the cluster', async () => {
    const jwksUri = 'https://kubernetes.default.svc/openid/v1/jwks'
    const subject = 'system:serviceaccount:platform:taproot-admin'
    const given = 'https://issuer.example'
    for (const [values, issuer] of [[{}, clusterIssuer] as const, [{ kubernetes: { issuer: given } }, given] as const]) {
      const objects = await render({ ...values, operators: [{ subject: 'system:serviceaccount:ops:robot' }] })
      const { data } = one(objects, 'ConfigMap', 'taproot-config')
      const { config } = await loadRendered(data['taproot.yaml'], 'api')
      expect(config.bootstrap.operators).toEqual([subject, 'system:serviceaccount:ops:robot'].map((name) => ({ issuer, subject: name })))
      expect(config.issuers).toEqual([expect.objectContaining({ issuer, jwksUri, allowPrivate: true })])
      expect((await loadRendered(data['controller.yaml'], 'controller')).config.kubernetes.issuer).toBe(issuer)
    }
  })

  test('mount the service account token that contains the issuer in every role', async () => {
    const objects = await render()
    for (const role of ['api', 'registry', 'controller', 'worker']) {
      const { volumes, containers } = one(objects, 'Deployment', `taproot-${role}`).spec.template.spec
      const { mountPath } = containers[0].volumeMounts.find(({ name }: { name: string }) => name === 'kubernetes')
      const { sources } = volumes.find(({ name }: { name: string }) => name === 'kubernetes').projected
      expect(sources.map(({ serviceAccountToken: token }: { serviceAccountToken?: { path: string } }) => token && `${mountPath}/${token.path}`)).toContain(
        mountedToken,
      )
    }
  })

  test('mount the files that the configuration names', async () => {
    const values = valueSets['production: stores of your own behind an Ingress']
    const objects = await render({ ...values, api: { ...values.api, tls: { existingSecret: 'api-tls' } } })
    const { config } = await loadRendered(one(objects, 'ConfigMap', 'taproot-config')['data']['taproot.yaml'], 'api')
    const { volumes } = one(objects, 'Deployment', 'taproot-api').spec.template.spec
    const secrets = volumes.find(({ name }: { name: string }) => name === 'secrets').projected.sources
    const paths = secrets.flatMap(({ secret }: { secret: { items: { path: string }[] } }) => secret.items.map(({ path }) => `/etc/taproot/secrets/${path}`))
    const { etcd } = config.store
    const named = [config.encryption.keyFile, etcd.tls?.caFile, etcd.passwordFile, config.registry.upstream?.passwordFile, config.registry.upstream?.caFile]
    expect(paths.toSorted()).toEqual(named.toSorted())
    expect(config.api.tls).toEqual({ certFile: '/etc/taproot/api-tls/tls.crt', keyFile: '/etc/taproot/api-tls/tls.key' })
  })
})
